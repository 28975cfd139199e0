"""Schedulers under faults: every slot has one job, and planted bugs are found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from tests.simulation.framework.history import Violation
from tests.simulation.mutants.jobs import Patch, Plant
from tests.simulation.seeds import STORES, reproduce, run_schedules
from tests.simulation.world.schedules import SLOTS, simulate_schedules
from tests.simulation.world.world import StoreName
from windlass._storage.memory.schedules import MemorySchedules
from windlass._storage.protocol.schedules import ScheduleAnswer, ScheduleWrite, Written
from windlass._storage.sqlite import schedules as sqlite_schedules
from windlass._worker.scheduler.fire_decision import FireDecision
from windlass._worker.scheduler.scheduler import Scheduler

SEEDS = {"memory": 4, "sqlite": 2}
"""`make simulate ARGS=--schedules` runs any number."""
SOON = 5
"""Seeds within which a planted bug is found."""

pytestmark = [pytest.mark.simulation, pytest.mark.timeout(600)]


@pytest.mark.parametrize("store", STORES)
def test_every_slot_has_one_job_whoever_dies_and_whatever_fails(store: StoreName) -> None:
    told = run_schedules(store, 0, SEEDS[store])
    again = [
        f"{failure}\n  again: {reproduce(seed, store, schedules=True)}"
        for seed, failure in told.failures
    ]
    assert not again, "\n".join(again)
    assert told.jobs == SLOTS * SEEDS[store]
    assert told.counts["leader killed"] >= 10 * SEEDS[store]
    assert told.counts["killed"]


def test_a_world_of_schedulers_tells_the_same_story_twice() -> None:
    assert simulate_schedules(1) == simulate_schedules(1)


# --- planted bugs ---------------------------------------------------------------------------------


def unfenced_memory(patch: Patch) -> None:
    """Whoever comes, writes: that the row is as it was read was checked by the reader alone."""
    write = MemorySchedules._write

    def unfenced(self: MemorySchedules, one: ScheduleWrite, now: Any) -> Written:
        row = self._db.schedules.get(one.name)
        revision = 0 if row is None else row.revision
        return write(self, msgspec.structs.replace(one, revision=revision), now)

    patch(MemorySchedules, "_write", unfenced)


def unfenced_sqlite(patch: Patch) -> None:
    write = sqlite_schedules._write_one

    def unfenced(connection: Any, one: ScheduleWrite, now: int) -> ScheduleAnswer:
        row = connection.execute(sqlite_schedules._FENCE, (one.name,)).fetchone()
        revision = 0 if row is None else row[0]
        return write(connection, msgspec.structs.replace(one, revision=revision), now)

    patch(sqlite_schedules, "_write_one", unfenced)


def bare(moves: Sequence[FireDecision]) -> list[ScheduleWrite]:
    return [msgspec.structs.replace(one.write, jobs=()) for one in moves]


def check_then_insert(patch: Patch) -> None:
    """The jobs are inserted after a look at the rows, and the rows are moved on afterwards."""

    async def write(self: Scheduler, moves: Sequence[FireDecision]) -> int:
        rows = {row.name: row.revision for row in await self._store.rows()}
        good = [one for one in moves if rows.get(one.write.name) == one.write.revision]
        jobs = [job for one in good for job in one.write.jobs]
        if jobs:
            await self._storage.jobs.insert(jobs)
        await self._store.write(bare(good))
        return len(jobs)

    patch(Scheduler, "_write", write)


def move_then_insert(patch: Patch) -> None:
    """The rows are moved on by compare-and-set, and the jobs come in a call of their own."""

    async def write(self: Scheduler, moves: Sequence[FireDecision]) -> int:
        answers = await self._store.write(bare(moves))
        won = [one for one, answer in zip(moves, answers, strict=True) if answer.what == "written"]
        jobs = [job for one in won for job in one.write.jobs]
        if jobs:
            await self._storage.jobs.insert(jobs)
        return len(jobs)

    patch(Scheduler, "_write", write)


@pytest.mark.parametrize(
    ("plant", "store"),
    [
        (unfenced_memory, "memory"),
        (unfenced_sqlite, "sqlite"),
        (check_then_insert, "memory"),
        (move_then_insert, "memory"),
        (move_then_insert, "sqlite"),
    ],
)
def test_a_planted_bug_is_found_soon(plant: Plant, store: StoreName) -> None:
    patch = Patch()
    plant(patch)
    try:
        found = next(filter(None, (broken(seed, store) for seed in range(SOON))), None)
    finally:
        patch.undo()
    assert found is not None, f"it lived through {SOON} seeds on {store}"
    print(found)  # noqa: T201 -- shown by -rP
    assert found.startswith(("slots", "overlap"))


def broken(seed: int, store: StoreName) -> str | None:
    try:
        simulate_schedules(seed, store)
    except Violation as violation:
        return f"{violation} (seed {seed})"
    return None
