"""``windlass completion``, and the names that TAB brings."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.desk import Desk
from tests.cli.processes import windlass


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_is_printed_that_the_shell_understands(shell: str, tmp_path: Path) -> None:
    said = windlass("completion", shell, cwd=tmp_path)
    assert said.returncode == 0, said.stderr
    assert "_WINDLASS_COMPLETE" in said.stdout
    assert f"{shell}_complete" in said.stdout
    program = shutil.which(shell)
    if program is not None:
        script = tmp_path / "script"
        script.write_text(said.stdout, encoding="utf-8")
        flags = ["--no-execute"] if shell == "fish" else ["-n"]
        subprocess.run([program, *flags, str(script)], check=True, timeout=20)


def completed(folder: Path, *words: str, **environment: str) -> list[str]:
    """What TAB offers at the end of these words."""
    line = {
        "_WINDLASS_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(["windlass", *words]),
        "COMP_CWORD": str(len(words)),
    }
    said = windlass(cwd=folder, env={**line, **environment})
    assert said.stderr == ""
    return [offer.partition(",")[2] for offer in said.stdout.splitlines() if offer]


def test_commands_options_and_names_are_completed(desk: Desk, tmp_path: Path) -> None:
    desk.serve.enqueue_sync("acme")
    desk("queues", "set", "archive", "--max-running", "2")
    assert completed(tmp_path, "doc") == ["doctor"]
    assert "--created-from" in completed(tmp_path, "jobs", "list", "--cr")
    assert completed(tmp_path, "jobs", "list", "--url", desk.url, "--queue", "") == [
        *("archive", "mail")
    ]
    at_home = {"WINDLASS_URL": desk.url}
    assert completed(tmp_path, "queues", "pause", "ma", **at_home) == ["mail"]
    assert completed(tmp_path, "limits", "show", "", **at_home) == ["printer", "tenant"]
    assert completed(tmp_path, "jobs", "list", "--state", "re", **at_home) == [
        *("ready", "retrying")
    ]


def test_tasks_come_from_the_app_and_trouble_is_silent(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "from windlass import Windlass\n"
        "app = Windlass('sqlite:///shop.db')\n"
        "@app.task(name='mail.send', queue='mail')\n"
        "async def send() -> None: ...\n"
    )
    for app in (["shop:app"], ["shop", ":", "app"]):  # as bash takes it apart
        assert completed(tmp_path, "jobs", "list", *app, "--task", "") == ["mail.send"]
    assert completed(tmp_path, "jobs", "list", "shop:app", "--queue", "m") == ["mail"]
    assert completed(tmp_path, "jobs", "list", "nowhere:app", "--task", "") == []
    assert completed(tmp_path, "jobs", "list", "--queue", "") == []
