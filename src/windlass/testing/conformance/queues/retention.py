"""Retention: how long ended jobs of one queue are kept, and those of all others."""

from __future__ import annotations

from datetime import timedelta

from windlass._core.job.outcome import GaveUp, Succeeded
from windlass._core.job.state import State
from windlass._core.job.transition import cancel
from windlass._core.job.unique import Window
from windlass._storage.protocol.storage import Storage
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    DAY,
    HOUR,
    INSTANT,
    MINUTE,
    OOPS,
    a_job,
    add,
    claim,
    ended,
    enlist,
    happened,
    keyed,
    total,
)

__all__ = ["RetentionConformance"]


async def done(storage: Storage, *queues: str, state: State = State.SUCCEEDED) -> None:
    """Store one ended job in each of these queues."""
    await enlist(storage)
    for queue in queues:
        await add(storage, a_job(queue=queue))
        (running,) = await claim(storage, queue=queue)
        match state:
            case State.FAILED:
                await happened(storage, running, GaveUp(OOPS))
            case State.CANCELLED:
                await ended(storage, cancel(running, by="w1"))
            case _:
                await happened(storage, running, Succeeded())


async def prune(
    storage: Storage,
    older_than: timedelta,
    apart: dict[str, timedelta] | None = None,
    *,
    state: State = State.SUCCEEDED,
    limit: int = 100,
) -> int:
    return await storage.maintenance.prune(
        state=state, older_than=older_than, limit=limit, apart=apart
    )


async def kept(storage: Storage) -> dict[str, int]:
    """Ended jobs that are still there, by queue."""
    counted = {
        count.queue: count.succeeded + count.failed + count.cancelled + count.discarded
        for count in await storage.admin.counts()
    }
    return {queue: count for queue, count in counted.items() if count}


class RetentionConformance:
    """`MaintenanceStore.prune`: queues that are set apart follow their own age."""

    async def test_a_queue_set_apart_may_keep_longer_than_the_others(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # TTL-4: strictly older, there too
        await done(storage, *"aab")
        clock.advance(HOUR + INSTANT)
        assert await prune(storage, HOUR, {"a": DAY}) == 1
        assert await kept(storage) == {"a": 2}
        clock.advance(DAY - HOUR - INSTANT)
        assert await prune(storage, HOUR, {"a": DAY}) == 0
        clock.advance(INSTANT)
        assert await prune(storage, HOUR, {"a": DAY}) == 2

    async def test_a_queue_set_apart_may_keep_shorter_than_the_others(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await done(storage, *"aab")
        clock.advance(MINUTE)
        assert await prune(storage, HOUR, {"a": MINUTE}) == 0
        clock.advance(INSTANT)
        assert await prune(storage, HOUR, {"a": MINUTE}) == 2
        assert await kept(storage) == {"b": 1}

    async def test_a_queue_that_keeps_nothing_loses_all_that_ended_before_now(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await done(storage, *"ab")
        assert await prune(storage, HOUR, {"a": 0 * HOUR}) == 0
        clock.advance(INSTANT)
        await done(storage, "a")
        assert await prune(storage, HOUR, {"a": 0 * HOUR}) == 1
        assert await kept(storage) == {"a": 1, "b": 1}

    async def test_the_others_may_keep_nothing(self, storage: Storage, clock: VirtualClock) -> None:
        await done(storage, *"abc")
        clock.advance(INSTANT)
        assert await prune(storage, 0 * HOUR, {"b": HOUR}) == 2
        assert await kept(storage) == {"b": 1}

    async def test_unknown_queues_may_be_set_apart(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await done(storage, "a")
        clock.advance(HOUR)
        assert await prune(storage, MINUTE, {"nobody": DAY, "": DAY}) == 1

    async def test_none_set_apart_is_as_if_nothing_was_said(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await done(storage, *"ab")
        clock.advance(HOUR)
        assert await prune(storage, HOUR, {}) == 0
        clock.advance(INSTANT)
        assert await prune(storage, HOUR, {}) == 2

    async def test_each_queue_set_apart_has_its_own_age(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await done(storage, *"abcd")
        apart = {"a": 1 * MINUTE, "b": 2 * MINUTE, "c": 4 * MINUTE}
        gone: list[dict[str, int]] = []
        for _ in range(5):
            clock.advance(MINUTE + INSTANT)
            await prune(storage, 3 * MINUTE, apart)
            gone.append(await kept(storage))
        assert gone == [
            {"b": 1, "c": 1, "d": 1},
            {"c": 1, "d": 1},
            {"c": 1},
            {},
            {},
        ]

    async def test_the_limit_counts_all_queues_together(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await done(storage, *"aaabbcc")
        clock.advance(HOUR)
        apart = {"a": 0 * HOUR, "b": MINUTE}
        counts = [await prune(storage, MINUTE, apart, limit=3) for _ in range(4)]
        assert counts == [3, 3, 1, 0]
        assert await total(storage) == 0

    async def test_kept_jobs_never_stop_the_deletion_of_later_ones(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await done(storage, *"aaaaa")
        clock.advance(MINUTE)
        await done(storage, *"bb")
        clock.advance(HOUR)
        assert await prune(storage, MINUTE, {"a": DAY}, limit=2) == 2
        assert await kept(storage) == {"a": 5}

    async def test_only_the_state_that_was_asked_for_is_pruned(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await done(storage, *"ab")
        await done(storage, *"ab", state=State.FAILED)
        await done(storage, *"ab", state=State.CANCELLED)
        clock.advance(HOUR)
        assert await prune(storage, DAY, {"a": MINUTE}, state=State.FAILED) == 1
        assert await prune(storage, DAY, {"a": MINUTE}, state=State.CANCELLED) == 1
        counts = {count.queue: count for count in await storage.admin.counts()}
        assert (counts["a"].succeeded, counts["a"].failed, counts["a"].cancelled) == (1, 0, 0)
        assert (counts["b"].succeeded, counts["b"].failed, counts["b"].cancelled) == (1, 1, 1)

    async def test_waiting_and_running_jobs_are_always_kept(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage)
        await add(storage, a_job(), a_job())
        await claim(storage)
        clock.advance(DAY)
        for state in State:
            assert await prune(storage, 0 * HOUR, {"default": 0 * HOUR}, state=state) == 0
        assert await total(storage) == 2

    async def test_history_and_key_go_with_the_job(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage)
        (job,) = await add(storage, keyed("k", Window.FOR_A_TIME, queue="a"))
        (running,) = await claim(storage, queue="a")
        await happened(storage, running, GaveUp(OOPS))
        clock.advance(MINUTE)
        assert await prune(storage, DAY, {"a": 0 * HOUR}, state=State.FAILED) == 1
        assert list(await storage.admin.history(job)) == []
        await add(storage, keyed("k", Window.FOR_A_TIME))
