"""Workers killed at random instants, again and again, over one store.

``python -m tests.crash.kill_loop --cycles 1000 --backend postgres``: prints where the kills hit,
and fails unless everything that was acknowledged is accounted for in the end. Flows follow, a tenth
as many as kills: workers die while they are started, cancelled and requeued.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.crash.flow_storm import FlowStorm
from tests.crash.harness.backends import (
    DURABLE,
    POSTGRES,
    SQLITE,
    Place,
    on_file,
    on_prefix,
    on_schema,
)
from tests.crash.harness.effects import END, START
from tests.crash.harness.processes import Process, Processes, stand_still, until
from tests.crash.harness.scene import Scene
from tests.servers.postgres import PostgresServer
from tests.servers.valkey import OTHER, ValkeyServer

IDLE, CLAIMED, RUNNING, FINISHING = "idle", "claimed, not started", "running", "finishing"

_BACKLOG = 30
"""Jobs that wait at any time: a worker never runs out of work."""
_LONGEST = 0.15
"""Seconds between a worker's first job and its death, at most."""
_UNPREPARED = 0.04
"""The share of kills that do not wait for the first job: they hit the start."""
_OVERLAPPING = 0.3
"""The share of workers that are still at work when the next one starts."""
_PRODUCER_DIES = 0.05
_FROZEN = 0.04
"""The share of cycles in which somebody stands still before the kill, for up to two leases."""


class KillLoop:
    """One store, a producer that never rests, and workers that do not live long."""

    def __init__(self, scene: Scene, seed: int) -> None:
        self._scene = scene
        self._draw = random.Random(seed)
        self._known: list[Path] = []
        self._workers: list[Process] = []
        self.hits: Counter[str] = Counter()
        """Where the kills have hit."""

    def run(self, cycles: int, told: Callable[[int], None] = lambda _cycle: None) -> None:
        """Kill ``cycles`` workers, then let one live and finish everything."""
        producer = self._start_producer()
        for cycle in range(cycles):
            if self._draw.random() < _PRODUCER_DIES:
                producer.kill()
                producer = self._start_producer()
            self._one_cycle()
            told(cycle + 1)
        producer.kill()
        scene = self._scene
        for path in self._known:
            # What stands after the last line break was being noted down when its producer died.
            *lines, _ = path.read_text(encoding="ascii").split("\n") if path.exists() else [""]
            scene.known += lines
        scene.settle(*self._workers, *([] if self._workers else [scene.worker()]), seconds=60)
        # A producer that was killed may have stored one batch that it did not live to note down.
        scene.audit(unknown=5 * len(self._known))

    def _start_producer(self) -> Process:
        known = self._scene.folder / f"known-{len(self._known)}"
        self._known.append(known)
        seed = self._draw.getrandbits(32)
        return self._scene.start("producer", known=str(known), seed=seed, backlog=_BACKLOG)

    def _one_cycle(self) -> None:
        draw = self._draw
        started = self._scene.worker("--slots", str(draw.randint(3, 6)), "--log-level", "warning")
        self._workers.append(started)
        if draw.random() >= _UNPREPARED:
            until(lambda: self._has_begun(started), "the worker runs a job")
        stand_still(draw.uniform(0, _LONGEST))  # the instant is what is left to chance
        if len(self._workers) == 1 and draw.random() < _OVERLAPPING:
            return self._one_cycle()
        if draw.random() < _FROZEN:
            self._freeze(draw.choice(self._workers))
        victim = self._workers.pop(draw.randrange(len(self._workers)))
        victim.kill()
        self.hits[self._hit(victim.pid)] += 1
        return None

    def _freeze(self, worker: Process) -> None:
        """Long enough, now and then, to be buried by the others and to come back."""
        worker.signal(signal.SIGSTOP)
        stand_still(self._draw.uniform(0.2, 2.0))
        worker.signal(signal.SIGCONT)
        stand_still(self._draw.uniform(0, _LONGEST))

    def _has_begun(self, worker: Process) -> bool:
        assert not worker.ended, worker.text
        return bool(self._scene.effects.of(worker.pid))

    def _hit(self, pid: int) -> str:
        """What the killed process was doing, by what it has left in the store and outside."""
        held = self._scene.store.claims_at_death(pid)
        effects = self._scene.effects.of(pid)
        began = {effect.run for effect in effects if effect.what == START}
        ended = {effect.run for effect in effects if effect.what == END}
        if held & began - ended:
            return RUNNING
        if held & ended:
            return FINISHING
        return CLAIMED if held else IDLE


def distribution(hits: Counter[str]) -> str:
    """Where the kills have hit, as one line."""
    total = max(hits.total(), 1)
    kinds = (IDLE, CLAIMED, RUNNING, FINISHING)
    return ", ".join(f"{kind} {hits[kind]} ({hits[kind] / total:.0%})" for kind in kinds)


@contextmanager
def _opened(backend: str, folder: Path) -> Iterator[Place]:
    """A place of this run's own, on a server of its own where there must be one."""
    if backend == SQLITE:
        yield on_file(folder / "jobs.db")
        return
    server = PostgresServer() if backend == POSTGRES else ValkeyServer()
    try:
        yield (on_schema if backend == POSTGRES else on_prefix)(server.url, "windlass")
    finally:
        server.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=1000)
    parser.add_argument("--backend", choices=DURABLE, default=SQLITE)
    parser.add_argument("--server", help="another Redis server than Valkey, 7.0 or newer: its path")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    asked = parser.parse_args()
    if asked.server is not None:
        os.environ[OTHER] = asked.server
    print(  # noqa: T201
        f"{asked.cycles} kills on {asked.backend} with --seed {asked.seed}", flush=True
    )
    began = time.monotonic()

    def told(cycle: int) -> None:
        if cycle % 50 == 0:
            print(f"{cycle} kills after {time.monotonic() - began:.0f} s", flush=True)  # noqa: T201

    folder = Path(tempfile.mkdtemp(prefix="kill-loop-"))
    with Processes() as processes, _opened(asked.backend, folder) as place:
        scene = Scene(folder, processes, place)
        loop = KillLoop(scene, asked.seed)
        try:
            loop.run(asked.cycles, told)
        except BaseException:
            print(f"what it has left is in {folder}", flush=True)  # noqa: T201
            raise
        ends = Counter(job.ended_verb or "cancel" for job in scene.store.jobs())
        storm = FlowStorm(scene, asked.seed)
        storm.run(max(asked.cycles // 10, 1), 50, max(asked.cycles // 20, 1))
        print(f"{storm.acted} actions on flows; each has ended, whole", flush=True)  # noqa: T201
        scene.store.close()
    shutil.rmtree(folder)
    seconds = time.monotonic() - began
    print(f"{asked.cycles} kills in {seconds:.0f} s: {distribution(loop.hits)}")  # noqa: T201
    print(f"{ends.total()} jobs, each finished once: {dict(ends)}; the accounts agree")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
