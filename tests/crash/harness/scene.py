"""One place for jobs, their effects, and the processes that come and go around it."""

from __future__ import annotations

import asyncio
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

from tests.crash.harness.audit import audit
from tests.crash.harness.backends import Place, on_file
from tests.crash.harness.effects import EffectLog
from tests.crash.harness.processes import PATIENCE, Process, Processes, until
from tests.crash.harness.shop import EFFECTS, SETTINGS, Shop
from tests.crash.harness.store import RUNNING, StoredJob


class Scene:
    """A folder, and a store: a database file in it, unless it is said to be elsewhere."""

    def __init__(self, folder: Path, processes: Processes, place: Place | None = None) -> None:
        self.folder = folder
        self.processes = processes
        self.file = folder / "jobs.db"
        """The database, unless it is elsewhere."""
        self.place = place or on_file(self.file)
        self.store = self.place.store()
        self.effects = EffectLog(folder / "effects")
        self.gate = folder / "gate"
        self.known: list[str] = []
        """Every job whose enqueue was acknowledged here."""
        self.env = {**SETTINGS, **self.place.env, EFFECTS: str(folder / "effects")}

    # --- processes ---

    def start(self, role: str, **given: Any) -> Process:
        return self.processes.start(role, self.folder, env=self.env, **given)

    def worker(self, *arguments: str, **given: Any) -> Process:
        """``windlass worker``; see `tests.crash.harness.roles.worker`."""
        return self.start("worker", arguments=arguments, **given)

    def stop(self, *workers: Process) -> None:
        """Tell them to stop, and wait until they have, in order."""
        for worker in workers:
            worker.signal(signal.SIGTERM)
        for worker in workers:
            assert worker.wait() == 0, worker.text

    def freeze(self, worker: Process) -> None:
        """Stop a worker with SIGSTOP, but not while it holds a lock that all others wait for."""

        def frozen_without_a_lock() -> bool:
            worker.signal(signal.SIGSTOP)
            worker.wait_until_stopped()
            if not self.store.is_locked():
                return True
            worker.signal(signal.SIGCONT)
            return False

        until(frozen_without_a_lock, f"worker {worker.pid} is frozen outside of a transaction")

    def ready(self, *workers: Process) -> None:
        """Wait until the store knows them, and they know what a signal means."""
        for worker in workers:
            until(partial(self._is_known, worker), f"worker {worker.pid} is ready")

    def _is_known(self, worker: Process) -> bool:
        assert not worker.ended, worker.text
        return self.store.exists() and bool(self.store.workers_of(worker.pid))

    def beat_for(self, seconds: float) -> None:
        """Wait until every live worker has beaten and gone on beating for so long from now."""
        wanted = (time.time() + seconds) * 1_000_000
        until(lambda: self.store.oldest_beat() >= wanted, "every worker beats")

    # --- jobs ---

    def enqueue(self, task: str, *arguments: object, count: int = 1, queue: str = "default") -> str:
        """Enqueue from this process; the id of the last one."""
        shop = self.shop()

        async def enqueue() -> list[str]:
            async with shop.app as app:
                calls = [shop.call(task, *arguments, queue=queue) for _ in range(count)]
                return [job.id for job in await app.enqueue_many(calls)]

        self.known += asyncio.run(enqueue())
        return self.known[-1]

    def shop(self) -> Shop:
        """The app, in this process."""
        return Shop(self.env[EFFECTS], **self.place.settings)

    def job(self, job_id: str) -> StoredJob:
        return self.store.job(job_id)

    def running(self, job_id: str, claim: int = 1) -> bool:
        """Whether its handler has begun under this claim and the store knows it as running."""
        began = any(effect.run == (job_id, claim) for effect in self.effects.read())
        return began and self.job(job_id).state == RUNNING

    def runs(self, job_id: str) -> int:
        """How often its handler has begun."""
        effects = self.effects.read()
        return sum(effect.what == "start" and effect.job == job_id for effect in effects)

    def open_gate(self) -> None:
        self.gate.touch()

    # --- the end ---

    def settle(self, *workers: Process, seconds: float = PATIENCE) -> None:
        """Let these workers, or a fresh one, finish everything; then stop them."""
        rescuers = workers or (self.worker(),)
        self.ready(*rescuers)
        until(lambda: self.store.unfinished() == 0, "everything is finished", seconds)
        until(self._all_buried, "the dead are buried", seconds)
        self.stop(*rescuers)

    def _all_buried(self) -> bool:
        living = [worker for worker in self.store.workers() if worker.state == "live"]
        return all(worker.pid not in self.processes.codes for worker in living)

    def audit(self, *, unknown: int = 0) -> None:
        audit(self.store, self.effects.read(), self.known, unknown=unknown)
