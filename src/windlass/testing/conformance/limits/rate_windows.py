"""Rates, measured: a window of one period slides over everything that has started."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

from windlass._core.job.job import ClaimedJob, LimitUse
from windlass._core.limits.limit import LimitSpec, Rate
from windlass._storage.protocol.jobs import Want
from windlass._storage.protocol.storage import Storage
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    SECOND,
    a_job,
    add,
    claim,
    enlist,
    limited,
    seeded,
    succeeded,
)

__all__ = ["RateWindowConformance"]

WORKERS = ("w1", "w2", "w3", "w4")
Start = tuple[datetime, float]
ALL_OF_IT = Want("default", 50)


async def define(storage: Storage, rate: Rate) -> None:
    await enlist(storage, *WORKERS)
    await storage.limits.define([LimitSpec(name="api", rate=rate)])


def costs(*given: float) -> list[tuple[LimitUse, ...]]:
    return [(LimitUse("api", cost=cost),) for cost in given]


async def claimed_by_all(storage: Storage) -> list[ClaimedJob]:
    """Return the claims of several workers that ask at the same time."""
    replies = await asyncio.gather(*(claim(storage, 5, worker=worker) for worker in WORKERS))
    return [job for jobs in replies for job in jobs]


async def starts(
    storage: Storage, clock: VirtualClock, uses: list[tuple[LimitUse, ...]], pauses: list[float]
) -> list[Start]:
    """Run jobs that cost so much as they are let, and note when each starts."""
    chance = seeded(len(uses))
    jobs = [a_job(limits=use) for use in uses]
    cost = {job.id: job.limits[0].cost for job in jobs}
    await add(storage, *jobs)
    begun: list[Start] = []
    while len(begun) < len(jobs):
        clock.advance(chance.choice(pauses))
        for job in await claimed_by_all(storage):
            begun.append((job.started_at, cost[job.claim.job]))
            await succeeded(storage, job)
    return begun


def most_spent(begun: list[Start], per: timedelta, burst: int) -> float:
    """Return the most that any half-open window spends; the fullest one begins at a start.

    What its last start owes beyond the burst is paid by the windows after it.
    """
    spent: list[float] = []
    for first, _ in begun:
        window = [cost for at, cost in begun if first <= at < first + per]
        spent.append(sum(window) - max(window[-1] - burst, 0))
    return max(spent)


class RateWindowConformance:
    """Guarantee 6: at most n + burst - 1 starts in any half-open window, over all workers."""

    async def test_several_workers_at_once_never_overspend(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await define(storage, Rate(5, 10 * SECOND, 2))
        begun = await starts(storage, clock, costs(*[1.0] * 40), [0.3, 1.1, 2.0, 7.5])
        assert most_spent(begun, 10 * SECOND, 2) <= 5 + 2 - 1

    async def test_a_fractional_rate_holds_for_the_next_whole_one(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await define(storage, Rate(2.5, SECOND))
        begun = await starts(storage, clock, costs(*[1.0] * 40), [0.05, 0.2, 0.4, 0.9])
        assert most_spent(begun, SECOND, 1) <= 3

    async def test_a_fractional_rate_with_a_burst_and_costs_never_overspends(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        chance = seeded(5)
        await define(storage, Rate(3.7, 7 * SECOND, 4))
        wanted = [chance.choice([0.25, 0.5, 1.0, 1.5, 3.0]) for _ in range(40)]
        begun = await starts(storage, clock, costs(*wanted), [0.4, 1.3, 2.9, 6.0])
        assert most_spent(begun, 7 * SECOND, 4) < 3.7 + 4

    async def test_costs_above_the_burst_are_paid_for_by_those_behind(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        chance = seeded(6)
        await define(storage, Rate(4, 10 * SECOND, 3))
        wanted = [chance.choice([1.0, 2.0, 5.0, 9.0]) for _ in range(30)]
        begun = await starts(storage, clock, costs(*wanted), [0.5, 2.5, 4.0, 11.0])
        assert most_spent(begun, 10 * SECOND, 3) <= 4 + 3 - 1
        periods = (begun[-1][0] - begun[0][0]) / (10 * SECOND)
        assert sum(wanted[:-1]) <= 4 * periods + 3

    async def test_asking_at_next_at_gets_the_whole_rate(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        rate = Rate(7, 10 * SECOND, 3)
        await define(storage, rate)
        await add(storage, *(limited("api") for _ in range(31)))
        first, last, begun = clock.now(), clock.now(), 0
        while begun < 31:
            reply = await storage.jobs.claim("w1", [ALL_OF_IT], total=50)
            begun += len(reply.jobs)
            last = reply.at
            if begun < 31:
                assert reply.next_at is not None
                clock.set(reply.next_at)
        assert last - first == rate.spacing * (31 - 3)

    async def test_keys_are_measured_apart(self, storage: Storage, clock: VirtualClock) -> None:
        await define(storage, Rate(2, 10 * SECOND))
        jobs = [limited(f"api:{key}") for key in "abcabcabc"]
        await add(storage, *jobs)
        key = {job.id: job.limits[0].key for job in jobs}
        begun: dict[str, list[Start]] = {"a": [], "b": [], "c": []}
        for _ in range(20):
            for job in await claimed_by_all(storage):
                begun[key[job.claim.job]].append((job.started_at, 1.0))
            clock.advance(2.5)
        assert [len(of_key) for of_key in begun.values()] == [3, 3, 3]
        assert all(most_spent(of_key, 10 * SECOND, 1) <= 2 for of_key in begun.values())

    async def test_from_the_change_on_a_changed_rate_is_what_holds(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await define(storage, Rate(10, 10 * SECOND, 5))
        await starts(storage, clock, costs(*[1.0] * 21), [0.1, 0.5])
        await define(storage, Rate(2, 10 * SECOND))
        begun = await starts(storage, clock, costs(*[1.0] * 12), [0.5, 3.0, 5.0])
        assert most_spent(begun, 10 * SECOND, 1) <= 2
