"""Enqueues that a unique key answered with a stored job: how they are counted."""

from __future__ import annotations

import msgspec
import pytest

from windlass._core.job.transition import succeed
from windlass._core.job.unique import OnConflict
from windlass._core.stats.rollup import Rollup, minute_of
from windlass._storage.protocol.storage import Storage
from windlass.errors import KeyConflict
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.admin.rollups import rollups
from windlass.testing.conformance.steps import (
    DAY,
    HOUR,
    MINUTE,
    a_job,
    add,
    end,
    keyed,
    started,
    succeeded,
)
from windlass.testing.conformance.unique_keys.replace import REPLACING, insert, meeting

__all__ = ["CoalescedConformance"]


async def counted(storage: Storage) -> dict[tuple[str, str], dict[str, int]]:
    """Return the counts by queue and task."""
    return {(one.queue, one.task): dict(one.counts) for one in await rollups(storage)}


class CoalescedConformance:
    """One count per enqueue that was answered with a stored job, in its minute, queue and task."""

    async def test_an_enqueue_that_meets_the_holder_of_its_key_is_counted(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # ENQ-22
        await add(storage, keyed("k", queue="q", task="mail"))
        for _ in range(2):
            await insert(storage, keyed("k", queue="q", task="mail"))
        minute = minute_of(clock.now())
        assert await rollups(storage) == [
            Rollup(minute=minute, queue="q", task="mail", counts={"coalesce": 2}, wait={}, run={})
        ]

    async def test_queue_and_task_are_those_of_the_enqueue(self, storage: Storage) -> None:
        await insert(storage, keyed("k", queue="a", task="x"))
        await storage.jobs.insert(
            [
                keyed("k", queue="b", task="y"),
                a_job(queue="b", task="y"),
                keyed("k", queue="c", task="y"),
                keyed("k", queue="b", task="y"),
            ]
        )
        assert await counted(storage) == {("b", "y"): {"coalesce": 2}, ("c", "y"): {"coalesce": 1}}

    async def test_an_enqueue_that_replaces_is_counted(self, storage: Storage) -> None:
        await add(storage, keyed("k"))
        for what in REPLACING:
            await insert(storage, meeting(what, payload=b"new"))
        assert [one.counts for one in await rollups(storage)] == [{"coalesce": 3}]

    async def test_jobs_that_are_stored_refused_or_repeated_are_not_counted(
        self, storage: Storage
    ) -> None:
        first = keyed("k")
        await storage.jobs.insert([first, keyed("other"), a_job()])
        await insert(storage, first)
        with pytest.raises(KeyConflict):
            await insert(storage, meeting(OnConflict.RAISE))
        assert await rollups(storage) == []

    async def test_a_job_that_gives_way_after_a_success_is_counted(self, storage: Storage) -> None:
        await add(storage, keyed("k", task="next", queue="later"))
        running = await started(storage, a_job(task="mail"))
        then = keyed("k", task="next", queue="later")
        success = succeed(running, by="w1", result=None)
        await end(storage, msgspec.structs.replace(success, then=(then,)))
        assert await counted(storage) == {
            ("default", "mail"): {"succeed": 1},
            ("later", "next"): {"coalesce": 1},
        }

    async def test_runs_and_coalesced_enqueues_add_up_over_the_hour(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        for _ in range(2):
            running = await started(storage, keyed("k"))
            await insert(storage, keyed("k"))
            await succeeded(storage, running)
            clock.advance(MINUTE)
        clock.advance(DAY)
        while await storage.maintenance.compact_rollups(older_than=HOUR, limit=100):
            pass
        now = await storage.now()
        (rollup,) = await storage.admin.rollups(now - 2 * DAY, now)
        assert rollup.counts == {"succeed": 2, "coalesce": 2}
        assert sum(rollup.run.values()) == 2
