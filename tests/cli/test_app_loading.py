"""``module:app``: found, or what to do about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.processes import windlass

FILES = {
    "shop.py": "from windlass import Windlass\n"
    "app = Windlass('memory://')\n"
    "@app.task\n"
    "def work() -> None: ...\n"
    "number = 3\n"
    "def make_app() -> Windlass: return app\n",
    "empty.py": "from windlass import Windlass\ndef make_app(): return Windlass('memory://')\n",
    "pack/__init__.py": "",
    "pack/jobs.py": "from shop import app\nclass Holder:\n    inner = app\n",
    "broken.py": "def inner():\n    import not_installed_anywhere\ninner()\n",
    "typo.py": "x = undefined_name\n",
    "quits.py": "raise SystemExit('no settings given')\n",
    "syntax.py": "def work(:\n    pass\n",
    "deeper.py": "import syntax\n",
    "badurl.py": "from windlass import Windlass\napp = Windlass('sqlit:///jobs.db')\n",
    "imports.py": "from windlass import Windlass\napp = Windlass('memory://', imports=['typo'])\n",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("apps")
    (made / "pack").mkdir()
    for name, text in FILES.items():
        (made / name).write_text(text)
    return made


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("shop", "'shop' names no app. Write module:app, for example shop:app"),
        (":app", "':app' names no app"),
        ("shop:", "'shop:' names no app"),
        ("shpo:app", "no module named 'shpo'. Did you mean 'shop'? Looked in"),
        ("pack.job:app", "no module named 'pack.job'"),
        ("nowhere.jobs:app", "no module named 'nowhere' (for 'nowhere.jobs')"),
        ("shop.py:app", "'shop.py' is a file; name it as Python imports it: shop:app"),
        ("./pack/jobs.py:app", "name it as Python imports it: pack.jobs:app"),
        ("shop:ap", "module 'shop' has no 'ap'. Its app is called app: use shop:app"),
        ("empty:app", "module 'empty' has no 'app'. Create one there: app = Windlass("),
        ("empty:makeapp", "module 'empty' has no 'makeapp'. Did you mean 'make_app'?"),
        ("shop:number", "'shop:number' is an int, not a Windlass app. Use shop:app"),
        ("shop:work", "'shop:work' is a task, not an app. Use shop:app"),
        ("empty:make_app", "is a function, not a Windlass app. If it makes one, keep it: app ="),
    ],
)
def test_a_name_that_leads_nowhere_is_refused_with_what_to_do(
    folder: Path, target: str, says: str
) -> None:
    ended = windlass("worker", target, "--until-empty", cwd=folder)
    assert ended.returncode == 1
    assert says in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("target", ["shop:app", "pack.jobs:app", "pack.jobs:Holder.inner"])
def test_an_app_is_found_from_the_current_directory(folder: Path, target: str) -> None:
    ended = windlass("worker", target, "--until-empty", "--allow-memory", cwd=folder)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize(
    ("target", "raised", "where"),
    [
        ("broken:app", "ModuleNotFoundError: No module named 'not_installed_anywhere'", "inner"),
        ("typo:app", "NameError: name 'undefined_name' is not defined", "<module>"),
        ("quits:app", "SystemExit: no settings given", "<module>"),
        ("deeper:app", "SyntaxError: invalid syntax", "<module>"),
        ("badurl:app", "Did you mean 'sqlite'?", "<module>"),
        ("imports:app", "NameError: name 'undefined_name' is not defined", "<module>"),
    ],
)
def test_an_error_inside_the_module_shows_its_own_traceback(
    folder: Path, target: str, raised: str, where: str
) -> None:
    ended = windlass("worker", target, cwd=folder)
    assert ended.returncode == 1
    assert raised in ended.stderr
    files = [line for line in ended.stderr.splitlines() if 'File "' in line]
    # It starts in the user's file, not in the import system or in ours.
    assert str(folder) in files[0]
    assert any(line.endswith(f"in {where}") for line in files)


def frames(text: str) -> list[str]:
    return [line for line in text.splitlines() if 'File "' in line]


def test_a_mistake_in_the_syntax_shows_the_line_and_no_way_to_it(folder: Path) -> None:
    ended = windlass("worker", "syntax:app", cwd=folder)
    assert ended.returncode == 1
    (line,) = frames(ended.stderr)
    assert f'"{folder}/syntax.py", line 1' in line
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("wrong", [{"WINDLASS_SLOTS": "many"}, {"WINDLASS_CONFIG": "missing.toml"}])
def test_a_wrong_setting_is_reported_without_a_traceback(
    folder: Path, wrong: dict[str, str]
) -> None:
    ended = windlass("worker", "shop:app", cwd=folder, env=wrong)
    assert ended.returncode == 1
    (line,) = frames(ended.stderr)
    assert f'"{folder}/shop.py", line 2' in line
    assert "Traceback" not in ended.stderr
    first = ended.stderr.splitlines()[0]
    assert "importing 'shop': " in first
    assert "raised" not in first
    assert "slots" in first or "cannot read the settings file missing.toml" in first


def test_a_supervisor_does_not_try_a_wrong_setting_again(folder: Path) -> None:
    wrong = {"WINDLASS_SLOTS": "many"}
    ended = windlass("worker", "shop:app", "--processes", "2", cwd=folder, env=wrong)
    assert ended.returncode == 1
    assert "giving up: worker 1 cannot start: importing 'shop': " in ended.stderr
    assert "started again" not in ended.stderr


def test_a_storage_that_cannot_be_opened_is_an_error_and_no_crash(folder: Path) -> None:
    (folder / "nofolder.py").write_text(
        f"from windlass import Windlass\napp = Windlass('sqlite:///{folder}/shop.py/jobs.db')\n"
    )
    ended = windlass("worker", "nofolder:app", cwd=folder)
    assert ended.returncode == 1
    assert "shop.py/jobs.db" in ended.stderr
