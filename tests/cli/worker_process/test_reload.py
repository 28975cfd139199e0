"""``windlass worker --reload``: the worker starts again when the app's code has changed."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.cli.processes import Running, windlass
from windlass._cli.worker_process.file_changes import FileChanges, source_folders

SHOP = """\
from windlass import Windlass
app = Windlass("sqlite:///jobs.db")
@app.task(name="{name}")
def work() -> None: ...
"""


def write(folder: Path, name: str) -> None:
    (folder / "shop.py").write_text(SHOP.format(name=name))


def test_a_changed_file_is_named_and_the_new_code_runs(tmp_path: Path) -> None:
    write(tmp_path, "first")
    with Running("worker", "shop:app", "--reload", cwd=tmp_path) as reloading:
        reloading.wait_for(r"tasks +1: first")
        reloading.wait_for(r"stop +Ctrl-C")
        write(tmp_path, "the_second")
        reloading.wait_for(r"shop\.py changed: the worker stops and starts again")
        reloading.wait_for(r"tasks +1: the_second")
        reloading.wait_for(r"stop +Ctrl-C")
        reloading.signal(signal.SIGTERM)
        assert reloading.wait() == 0


def test_code_that_cannot_be_imported_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("def broken(:\n")
    with Running("worker", "shop:app", "--reload", cwd=tmp_path) as reloading:
        reloading.wait_for(r"SyntaxError")
        reloading.wait_for(r"ended with code 1 and starts again when a file has changed")
        write(tmp_path, "mended")
        reloading.wait_for(r"shop\.py changed: the worker starts again")
        reloading.wait_for(r"tasks +1: mended")
        reloading.wait_for(r"stop +Ctrl-C")
        reloading.signal(signal.SIGINT)
        assert reloading.wait() == 0


def test_a_stop_while_no_worker_runs_ends_it(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("raise RuntimeError\n")
    with Running("worker", "shop:app", "--reload", cwd=tmp_path) as reloading:
        reloading.wait_for(r"starts again when a file has changed")
        reloading.signal(signal.SIGTERM)
        assert reloading.wait() == 1


def test_a_worker_that_ends_by_itself_ends_it(tmp_path: Path) -> None:
    write(tmp_path, "first")
    ended = windlass("worker", "shop:app", "--reload", "--until-empty", cwd=tmp_path)
    assert ended.returncode == 0


def test_it_is_refused_with_several_processes(tmp_path: Path) -> None:
    ended = windlass("worker", "shop:app", "--reload", "--processes", "2", cwd=tmp_path)
    assert ended.returncode == 1
    assert "--reload is for development and runs one process: leave out --processes" in ended.stderr


# --- files ---------------------------------------------------------------------------------------


def test_changed_added_and_removed_files_are_found_once(tmp_path: Path) -> None:
    kept, gone = tmp_path / "kept.py", tmp_path / "gone.py"
    for file in (kept, gone):
        file.write_text("x = 1\n")
    changes = FileChanges([tmp_path])
    assert changes.since() == []
    kept.write_text("x = 100\n")
    gone.unlink()
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "new.py").write_text("")
    assert changes.since() == [tmp_path / "deep" / "new.py", gone, kept]
    assert changes.since() == []


@pytest.mark.parametrize("folder", [".git", "__pycache__", "site-packages", "node_modules", "env"])
def test_code_of_others_is_not_watched(tmp_path: Path, folder: str) -> None:
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "pyvenv.cfg").write_text("")
    (tmp_path / folder).mkdir(exist_ok=True)
    changes = FileChanges([tmp_path])
    (tmp_path / folder / "library.py").write_text("")
    (tmp_path / "notes.txt").write_text("")
    assert changes.since() == []


def test_the_package_of_an_app_is_watched_or_the_folder_of_its_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "reload_package").mkdir()
    (tmp_path / "reload_package" / "__init__.py").write_text("raise RuntimeError\n")
    (tmp_path / "reload_module.py").write_text("raise RuntimeError\n")
    assert source_folders("reload_package.jobs:app") == [tmp_path / "reload_package"]
    assert source_folders("reload_module:app") == [tmp_path]
    assert source_folders("reload_nowhere:app") == [tmp_path]
