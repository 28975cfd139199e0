"""`CopyStore.restore`: what it does, and does again."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from windlass._core.job.state import State
from windlass._core.limits.queue_settings import QueueSettings
from windlass._core.stats.rollup import Rollup
from windlass._storage.protocol.actions import Edit
from windlass._storage.protocol.copy import CopiedRecord
from windlass._storage.protocol.journal import EventRecord
from windlass._storage.protocol.limits import LimitState
from windlass._storage.protocol.storage import Storage
from windlass.errors import LimitUnknown
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.copy.dump import SPECS, dumped, furnished, moved
from windlass.testing.conformance.steps import (
    DAY,
    HOUR,
    MINUTE,
    a_job,
    a_note,
    add,
    claim,
    claim_one,
    enlist,
    failed,
    ids,
    limited,
    look,
    obeyed,
    queue_record,
    started,
    succeeded,
    throttled,
    total,
)

__all__ = ["RestoreConformance"]


class RestoreConformance:
    """The effect of restoring, also of repeating it."""

    async def test_restored_twice_jobs_are_stored_once(
        self, storage: Storage, elsewhere: Storage, clock: VirtualClock
    ) -> None:
        await furnished(storage, clock)
        jobs = await moved(storage, elsewhere)
        there = await dumped(elsewhere)
        assert await elsewhere.moving.restore(jobs) == 0
        assert await elsewhere.moving.restore([*jobs[:2], *jobs[:2]]) == 0
        assert await dumped(elsewhere) == there

    async def test_a_job_that_went_on_is_not_set_back(
        self, storage: Storage, elsewhere: Storage
    ) -> None:
        await add(storage, a_job())
        jobs = await moved(storage, elsewhere)
        await enlist(elsewhere)
        await succeeded(elsewhere, await claim_one(elsewhere))
        assert await elsewhere.moving.restore(jobs) == 0
        assert (await look(elsewhere, jobs[0].job.id)).state is State.SUCCEEDED

    async def test_jobs_whose_limits_are_not_defined_are_refused_all_together(
        self, storage: Storage, elsewhere: Storage
    ) -> None:
        await storage.limits.define(SPECS)
        await add(storage, a_job(), limited("one"))
        jobs = await dumped(storage)
        with pytest.raises(LimitUnknown):
            await elsewhere.moving.restore(jobs)
        assert await total(elsewhere) == 0

    async def test_a_restored_job_can_be_changed_by_actions(
        self, storage: Storage, elsewhere: Storage
    ) -> None:
        (job,) = await add(storage, a_job(delay=DAY))
        await moved(storage, elsewhere)
        await enlist(elsewhere)
        await obeyed(elsewhere, Edit(due=await elsewhere.now(), queue="b"), job)
        assert ids(await claim(elsewhere, queue="b")) == [job]

    async def test_rollups_add_to_what_was_counted_there(
        self, storage: Storage, elsewhere: Storage, clock: VirtualClock
    ) -> None:
        await succeeded(storage, await started(storage))
        await succeeded(elsewhere, await started(elsewhere))
        span = (clock.now() - HOUR, clock.now() + HOUR)
        ours = await storage.admin.rollups(*span)
        assert await elsewhere.moving.restore(ours) == 1
        assert await elsewhere.moving.restore(ours) == 0
        (both,) = await elsewhere.admin.rollups(*span)
        assert (both.counts, sum(both.run.values())) == ({"succeed": 2}, 2)

    async def test_a_later_copy_of_a_rollup_replaces_the_earlier_one(
        self, elsewhere: Storage, clock: VirtualClock
    ) -> None:
        minute = clock.now().replace(second=0, microsecond=0)
        early = Rollup(
            minute=minute, queue="q", task="t", counts={"fail": 1}, wait={3: 1}, run={70: 1}
        )
        late = replace(
            early, counts={"fail": 1, "succeed": 2, "coalesce": 4}, wait={3: 3}, run={70: 2, 71: 1}
        )
        for copy in (early, late):
            await elsewhere.moving.restore([copy])
        assert list(await elsewhere.admin.rollups(minute, minute + HOUR)) == [late]

    async def test_queues_and_budgets_are_there_as_they_were_here(
        self, storage: Storage, elsewhere: Storage, clock: VirtualClock
    ) -> None:
        await self._busy(storage)
        things: list[CopiedRecord] = [*await storage.queues.queues()]
        for spec in SPECS:
            things += await storage.limits.states(spec.name)
        await elsewhere.limits.define(SPECS)
        await elsewhere.admin.pause("default")
        await elsewhere.moving.restore(things)
        assert await elsewhere.moving.restore(things) == 0
        assert list(await elsewhere.queues.queues()) == list(await storage.queues.queues())
        assert (await queue_record(elsewhere)).cool_until == clock.now() + HOUR
        for spec in SPECS:
            here, there = [
                [_told(state) for state in await store.limits.states(spec.name)]
                for store in (storage, elsewhere)
            ]
            assert there == here
            assert here, spec.name
        await enlist(elsewhere)
        await add(elsewhere, limited("fuse", queue="b"), limited("rate", queue="b"))
        assert await claim(elsewhere, 10, queue="b") == []
        clock.advance(MINUTE)
        assert len(await claim(elsewhere, 10, queue="b")) == 1

    async def _busy(self, storage: Storage) -> None:
        """Make a cooling queue and one with settings, a spent rate, and an open breaker."""
        await storage.limits.define(SPECS)
        await storage.limits.drain("rate")
        await failed(storage, limited("fuse"))
        await succeeded(storage, await started(storage, limited("one:x")))
        await storage.queues.change(
            "set", QueueSettings(max_running=3, keep_failed=DAY), old=QueueSettings()
        )
        await storage.admin.pause("set")
        await throttled(storage, await started(storage), HOUR)

    async def test_records_and_events_are_there_once(
        self, storage: Storage, elsewhere: Storage, clock: VirtualClock
    ) -> None:
        (job,) = await add(storage, a_job())
        await elsewhere.admin.pause("theirs", audit=a_note(subject="theirs"))
        for subject in ("first", "second"):
            await storage.admin.pause(subject, audit=a_note(subject=subject))
            clock.advance(MINUTE)
        now = clock.now()
        events = [
            EventRecord(at=now, kind=kind, job=job, task="t", queue="q") for kind in ("a", "b")
        ]
        await storage.journal.append_events(events)
        await moved(storage, elsewhere)
        audits = list(await storage.orders.audits(limit=10))[::-1]
        things: list[CopiedRecord] = [*audits, *events]
        assert await elsewhere.moving.restore(things) == 4
        assert await elsewhere.moving.restore(things) == 0
        there = [(one.note, one.at, one.count) for one in await elsewhere.orders.audits(limit=2)]
        assert there == [(one.note, one.at, one.count) for one in audits[::-1]]
        assert len(await elsewhere.orders.audits(limit=10)) == 3
        assert list(await elsewhere.journal.events(now, now + DAY, limit=10)) == events

    async def test_nothing_at_all_is_nothing_new(self, elsewhere: Storage) -> None:
        assert await elsewhere.moving.restore([]) == 0
        assert await dumped(elsewhere) == []


def _told(state: LimitState) -> LimitState:
    """Return the copied part of a budget: lanes and claims are those of the stored jobs."""
    return replace(state, running=0, parked=0)
