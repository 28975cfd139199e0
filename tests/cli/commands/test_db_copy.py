"""``windlass db copy``: what `tests/admin/test_copy.py` holds to, from a shell."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.source import ROOT
from tests.cli.fixtures import Desk, Said
from windlass import Windlass
from windlass._app.parts import parts_of
from windlass._cli.commands.db import copy
from windlass._cli.main import main
from windlass.testing.conformance.steps import HOUR, a_worker


class Move:
    """Copies the desk's storage to a file of its own."""

    def __init__(self, desk: Desk, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.desk = desk
        self.url = f"sqlite:///{folder}/new.db"
        self._capsys = capsys

    def __call__(self, *options: str) -> Said:
        self._capsys.readouterr()
        code = main(["db", "copy", self.desk.url, self.url, *options])
        return Said(code, *self._capsys.readouterr())


@pytest.fixture
def move(everywhere: Desk, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Move:
    return Move(everywhere, tmp_path, capsys)


@pytest.fixture
def move_file(desk: Desk, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Move:
    return Move(desk, tmp_path, capsys)


def test_everything_is_copied_and_again_nothing_is(move: Move) -> None:
    desk = move.desk
    ids = [desk.fetch.enqueue_sync(str(page)).id for page in range(3)]
    desk.serve.options(delay=60).enqueue_sync("acme")
    desk("queues", "set", "mail", "--max-running", "2")
    told = move("--json").json
    assert (told["jobs"], told["new"], told["queues"], told["problems"]) == (4, 4, 1, [])
    assert told["audits"] == 1
    again = move("--json").json
    assert (again["jobs"], again["new"]) == (4, 0)
    assert again["checksum"] == told["checksum"]
    said = move()
    assert said.code == 0
    assert "4, 0 of them copied now" in said.out
    assert "equal on both sides" in said.out
    new = Windlass(move.url)
    stored = new.blocking.run(new.admin.jobs.find(limit=9))
    assert {job.id for job in stored} >= set(ids)
    new.blocking.run(new.close())
    parts_of(new).blocking_loop.stop()


def test_live_workers_are_named_and_nothing_is_copied(move_file: Move) -> None:
    desk = move_file.desk

    async def register() -> None:
        await (await parts_of(desk.app).storage()).workers.register(a_worker("w1", lease=HOUR))

    desk.run(register())
    said = move_file()
    assert said.code == 1
    assert "1 worker live on SQLite" in said.err
    assert "w1 (process 1 on host)" in said.err
    assert "Stop workers" in said.err


def test_an_impossible_copy_is_refused_with_the_reason(move_file: Move) -> None:
    capsys = move_file._capsys
    for words, says in (
        (("memory://", move_file.url), "memory:// ends with this command"),
        ((move_file.desk.url, move_file.desk.url), "name another storage to copy to"),
        ((move_file.desk.url, "nowhere"), "names no app"),
        (("sqlite:////nowhere/jobs.db", move_file.url), "there is no file /nowhere/jobs.db"),
    ):
        capsys.readouterr()
        assert main(["db", "copy", *words]) == 1
        assert says in capsys.readouterr().err


def test_a_copy_that_was_interrupted_is_run_again(move_file: Move, tmp_path: Path) -> None:
    """Ctrl-C in the middle, as a person does it; the rest follows with the next run."""
    desk = move_file.desk

    async def fill() -> None:
        for _ in range(6):
            await desk.app.enqueue_many([desk.fetch.call(str(page)) for page in range(1000)])

    desk.run(fill())
    code = tmp_path / "halting.py"
    code.write_text(
        "import os, signal\n"
        "from windlass._admin.copy import checks\n"
        "from windlass._cli.main import main\n"
        "import sys\n"
        # Whoever runs this in the background has it ignored, for its children as well.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "add = checks.JobChecksum.add\n"
        "def halting(self, jobs):\n"
        "    add(self, jobs)\n"
        "    if self.count >= 2000: os.kill(os.getpid(), signal.SIGINT)\n"
        "checks.JobChecksum.add = halting\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    ended = subprocess.run(
        [sys.executable, str(code), "db", "copy", desk.url, move_file.url],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 130, ended.stderr
    assert "Traceback" not in ended.stderr
    told = move_file("--json").json
    assert (told["jobs"], told["problems"]) == (6000, [])
    assert 0 < told["new"] < 6000


def test_the_page_tells_every_option() -> None:
    text = (ROOT / "docs" / "operating" / "storages.md").read_text(encoding="utf-8")
    assert "windlass db copy" in text
    options = [name for option in copy.params for name in option.opts]
    assert [name for name in options if name.startswith("--") and name not in text] == []
