"""A worker that is older than its storage: a newer Windlass has been there while it ran."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.cli.processes import Running, environment, until
from tests.storage.upgrading import downgraded, upgraded
from windlass import Windlass
from windlass.core.job import Job
from windlass.core.state import State
from windlass.storage.open import Opener
from windlass.storage.protocol import Storage
from windlass.storage.sqlite.rows import CODES

APP = """
import asyncio, pathlib
from windlass import Windlass

app = Windlass({url!r})

@app.task(name="held")
async def held(gate: str) -> str:
    while not pathlib.Path(gate).exists():
        await asyncio.sleep(0.02)
    return "done"
"""


OLDER = "112971ac48021395a473e4b7b0528fa4abb88fcb"
"""A commit whose code checks the stored version when it claims."""
ENQUEUE = """
import sys
from yard import held
held.enqueue_sync(sys.argv[1])
"""
STATES = "SELECT state FROM jobs ORDER BY seq"


class Yard:
    """An app in a folder, and a gate that holds its jobs."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.gate = folder, folder / "gate"
        self._app = Windlass(url)
        self._held = self._app.task(name="held")(_held)
        self._storage = self._app.blocking.run(Opener(self._app.settings)._open())
        (folder / "yard.py").write_text(APP.format(url=url), encoding="utf-8")

    def enqueue(self) -> str:
        return str(self._held.enqueue_sync(str(self.gate)).id)

    def job(self, job: str) -> Job:
        return self._app.blocking.run(self._app.admin.get(job))

    def change(self, how: Callable[[Storage], Coroutine[Any, Any, None]]) -> None:
        """Do what only the store itself can be asked."""
        self._app.blocking.run(how(self._storage))

    def close(self) -> None:
        self._app.blocking.run(self._storage.close())
        self._app.blocking.run(self._app.close())
        self._app.blocking.stop()


async def _held(gate: str) -> str:
    return gate


def test_a_worker_ends_what_it_runs_takes_nothing_more_and_asks_for_an_upgrade(
    tmp_path: Path, each_url: str
) -> None:
    yard = Yard(tmp_path, each_url)
    running = yard.enqueue()
    try:
        with Running("worker", "yard:app", cwd=tmp_path) as worker:
            worker.wait_for(r"pid \d+")
            assert until(lambda: yard.job(running).state is State.RUNNING)
            yard.change(upgraded)
            waiting = yard.enqueue()
            worker.wait_for("upgrade windlass in this process; it takes no more jobs")
            yard.gate.touch()
            assert worker.wait() == 78
        assert "too old here: upgrade it" in worker.text
        assert yard.job(running).state is State.SUCCEEDED
        assert (yard.job(waiting).state, yard.job(waiting).claim_number) == (State.WAITING, 0)
        with Running("worker", "yard:app", cwd=tmp_path) as worker:
            worker.wait_for("Upgrade windlass in this process")
            assert worker.wait() == 78
    finally:
        yard.change(downgraded)
        yard.close()


def test_a_supervisor_tries_a_worker_that_is_too_old_once_more_and_gives_up(tmp_path: Path) -> None:
    yard = Yard(tmp_path, f"sqlite:///{tmp_path}/jobs.db")
    command = "from windlass.cli import supervisor; supervisor._UPGRADED = 0.2\n"
    command += "from windlass.cli.main import main; raise SystemExit(main())"
    prefix = [sys.executable, "-c", command]
    with Running("worker", "yard:app", "--processes", "2", cwd=tmp_path, instead=prefix) as both:
        both.wait_for("started, pid")
        yard.change(upgraded)
        both.wait_for("is too old for its storage .*: upgrade windlass. It is started again in 0.2")
        both.wait_for("giving up: .* is too old for its storage .*Upgrade windlass in this process")
        assert both.wait() == 78
    yard.close()


@pytest.fixture
def older(tmp_path: Path) -> dict[str, str]:
    """The environment in which processes run the code of an older commit."""
    repository = Path(__file__).parents[2]
    packed = tmp_path / "older.tar"
    archive = ["git", "-C", str(repository), "archive", "-o", str(packed), OLDER, "src/windlass"]
    try:
        subprocess.run(archive, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip(f"needs git and the history back to {OLDER[:7]}: git fetch --unshallow")
    with tarfile.open(packed) as files:
        files.extractall(tmp_path / "older", filter="data")
    return {"PYTHONPATH": str(tmp_path / "older" / "src")}


def test_the_worker_of_an_older_commit_leaves_a_store_of_the_next_version(
    tmp_path: Path, older: dict[str, str]
) -> None:
    file, gate = tmp_path / "jobs.db", tmp_path / "gate"
    (tmp_path / "yard.py").write_text(APP.format(url=f"sqlite:///{file}"), encoding="utf-8")

    def ask(sql: str) -> list[int]:
        connection = apsw.Connection(str(file))
        connection.set_busy_timeout(5000)
        rows = [int(row[0]) for row in connection.execute(sql)]
        connection.close()
        return rows

    with Running("worker", "yard:app", cwd=tmp_path, env=older) as worker:
        worker.wait_for(r"pid \d+")
        command = [sys.executable, "-c", ENQUEUE, str(gate)]
        subprocess.run(command, cwd=tmp_path, env=environment(older), check=True)
        assert until(lambda: ask(STATES) == [CODES[State.RUNNING]])
        ask("PRAGMA user_version = 100")
        worker.wait_for("upgrade windlass in this process; it takes no more jobs")
        gate.touch()
        assert worker.wait() == 78
    assert ask(STATES) == [CODES[State.SUCCEEDED]]
