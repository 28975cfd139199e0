"""What an explanation says and what a claim gives agree, whatever has happened before."""

from __future__ import annotations

import random

import pytest

from tests.admin.test_explain import explain
from windlass._core.job.job import ClaimedJob, JobRecord
from windlass._core.job.outcome import GaveUp, Missing, Outcome, Raised, Snoozed, Succeeded
from windlass._core.job.state import State
from windlass._core.limits.breaker import Breaker
from windlass._core.limits.limit import LimitSpec, Rate
from windlass._core.limits.queue_settings import QueueSettings
from windlass._storage.memory import MemoryDatabase, MemoryStorage
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._storage.protocol.storage import Storage
from windlass.admin import Explanation
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    HOUR,
    MINUTE,
    OOPS,
    SECOND,
    a_worker,
    add,
    claim,
    happened,
    limited,
    seeded,
    throttled,
)

FORBIDS = {
    "scheduled",
    "retry_due",
    "snoozed",
    "throttled",
    "queue_paused",
    "queue_cooling",
    "queue_full",
    "limit_full",
    "rate_spent",
    "breaker_open",
    "expired",
}
"""A job that one of these holds is not claimed. The rest is about workers, or a matter of turns."""


async def prepared(storage: Storage) -> None:
    await storage.workers.register(a_worker(lease=24 * HOUR))
    await storage.limits.define(
        [
            LimitSpec(name="one", concurrency=1),
            LimitSpec(name="api", rate=Rate(6, per=60, burst=2)),
            LimitSpec(name="gate", breaker=Breaker(2, cool_down=MINUTE)),
        ]
    )


async def step(
    storage: Storage, clock: VirtualClock, held: list[ClaimedJob], by: random.Random
) -> None:
    match by.randrange(8):
        case 0 | 1:
            limits = by.choice([(), ("one:a",), ("one:b",), ("api",), ("gate",), ("one:a", "api")])
            delay = by.choice([None, None, None, MINUTE])
            expires = by.choice([None, None, None, 20 * SECOND])
            priority = by.choice([0, 0, -1])
            await add(storage, limited(*limits, delay=delay, expires=expires, priority=priority))
        case 2:
            held += await claim(storage, by.choice([1, 1, 2]))
        case 3 | 6 if held:
            job = held.pop(by.randrange(len(held)))
            outcomes: list[Outcome] = [
                Succeeded(None),
                Raised(OOPS),
                GaveUp(OOPS),
                Snoozed(MINUTE),
                Missing(OOPS),
            ]
            await happened(storage, job, by.choice(outcomes))
        case 4 if held and by.random() < 0.3:
            await throttled(storage, held.pop(), 20 * SECOND)
        case 5:
            clock.advance(by.choice([1, 5, 15]))
        case _:
            await settings(storage, by)


async def settings(storage: Storage, by: random.Random) -> None:
    match by.randrange(6):
        case 0:
            await storage.admin.pause("default")
        case 1 | 2:
            await storage.admin.resume("default")
        case _:
            most = QueueSettings(max_running=by.choice([None, None, 1, 3]))
            records = await storage.queues.queues()
            old = next((one.settings for one in records), QueueSettings())
            assert await storage.queues.change("default", most, old=old)


async def told_of_all(storage: Storage) -> dict[str, Explanation]:
    found = await storage.admin.find(JobFilter(), limit=1000)
    return {job.id: await explain(storage, job.id) for job in found}


def gates(job: JobRecord) -> set[str]:
    return {use.gate for use in job.limits}


def must_start(one: Explanation, told: dict[str, Explanation], *, bounded: bool) -> bool:
    """Ready, and nobody before it in line takes what it needs."""
    job = one.job
    if one.causes[0].code != "ready":
        return False
    place = (job.priority, job.due, job.seq)
    waiting = [other.job for other in told.values() if other.job.state is State.WAITING]
    ahead = [other for other in waiting if (other.priority, other.due, other.seq) < place]
    return not any(bounded or gates(other) & gates(job) for other in ahead)


async def agreed(storage: Storage) -> list[ClaimedJob]:
    """Asks about all jobs, claims all there is, and compares."""
    told = await told_of_all(storage)
    for one in told.values():
        if one.job.state is not State.WAITING:
            assert one.causes[0].code in ("running", one.job.state.value)
    bounded = any(record.settings.max_running for record in await storage.queues.queues())
    claimed = await claim(storage, 1000)
    names = {job.claim.job for job in claimed}
    assert not {cause.code for name in names for cause in told[name].causes} & FORBIDS
    for name, one in told.items():
        if must_start(one, told, bounded=bounded):
            assert name in names
    return claimed


@pytest.mark.parametrize("seed", range(40))
async def test_explained_holds_agree_with_claims(seed: int) -> None:
    by, clock = seeded(seed), VirtualClock()
    storage = MemoryStorage(MemoryDatabase(clock))
    await prepared(storage)
    held: list[ClaimedJob] = []
    for _ in range(8):
        for _ in range(10):
            await step(storage, clock, held, by)
        held += await agreed(storage)
