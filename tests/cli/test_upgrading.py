"""A worker that is older than its storage: a newer Windlass has been there while it ran."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from tests.cli.processes import Running, until
from tests.storage.upgrading import downgraded, upgraded
from windlass import Windlass
from windlass.core.job import Job
from windlass.core.state import State
from windlass.storage.open import Opener
from windlass.storage.protocol import Storage

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
