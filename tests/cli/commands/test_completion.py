"""``windlass completion``, and the names that TAB brings."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from click.shell_completion import get_completion_class

from tests.cli.fixtures import Desk
from tests.cli.processes import windlass
from windlass._cli.commands.completion import completion
from windlass._cli.main import cli, main


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_is_printed_that_the_shell_understands(
    shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(completion.name), shell]) == 0
    printed = capsys.readouterr().out
    assert "_WINDLASS_COMPLETE" in printed
    assert f"{shell}_complete" in printed
    program = shutil.which(shell)
    if program is not None:
        script = tmp_path / "script"
        script.write_text(printed, encoding="utf-8")
        flags = ["--no-execute"] if shell == "fish" else ["-n"]
        subprocess.run([program, *flags, str(script)], check=True, timeout=20)


class Tab:
    """What the key offers at the end of some words, in this folder."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(folder)
        monkeypatch.syspath_prepend(folder)
        self._set = monkeypatch.setenv

    def __call__(self, *words: str) -> list[str]:
        self._set("COMP_WORDS", " ".join(["windlass", *words]))
        self._set("COMP_CWORD", str(len(words)))
        kind = get_completion_class("bash")
        assert kind is not None
        offered = kind(cli, {}, "windlass", "_WINDLASS_COMPLETE").complete().splitlines()
        return [offer.partition(",")[2] for offer in offered]


@pytest.fixture
def tab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tab:
    return Tab(tmp_path, monkeypatch)


def test_commands_options_and_names_are_completed(
    desk: Desk, tab: Tab, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.serve.enqueue_sync("acme")
    desk("queues", "set", "archive", "--max-running", "2")
    assert tab("doc") == ["doctor"]
    assert "--created-from" in tab("jobs", "list", "--cr")
    assert tab("jobs", "list", "--url", desk.url, "--queue", "") == ["archive", "mail"]
    assert tab("jobs", "list", "--queue", "") == []  # nobody said where to look
    monkeypatch.setenv("WINDLASS_URL", desk.url)
    assert tab("queues", "pause", "ma") == ["mail"]
    assert tab("limits", "show", "") == ["printer", "tenant"]
    assert tab("jobs", "list", "--state", "re") == ["ready", "retrying"]


def test_tasks_come_from_the_app_and_trouble_is_silent(
    tab: Tab, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "completed_shop.py").write_text(
        "from windlass import Windlass\n"
        "app = Windlass('sqlite:///shop.db')\n"
        "@app.task(name='mail.send', queue='mail')\n"
        "async def send() -> None: ...\n"
    )
    for app in (["completed_shop:app"], ["completed_shop", ":", "app"]):  # as bash takes it apart
        assert tab("jobs", "list", *app, "--task", "") == ["mail.send"]
    assert tab("jobs", "list", "completed_shop:app", "--queue", "m") == ["mail"]
    assert tab("jobs", "list", "nowhere:app", "--task", "") == []
    assert capsys.readouterr() == ("", "")


def test_the_shell_is_answered_by_the_program_itself(tmp_path: Path) -> None:
    asked = {"COMP_WORDS": "windlass com", "COMP_CWORD": "1"}
    said = windlass(cwd=tmp_path, env={**asked, "_WINDLASS_COMPLETE": "bash_complete"})
    assert (said.returncode, said.stdout) == (0, "plain,completion\n")
