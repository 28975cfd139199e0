"""A large part on Redis that is placed in portions, beside other flows."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest

from windlass._storage.protocol.storage import Storage
from windlass._storage.redis import open_redis
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.flows.steps import Plan, finish, start
from windlass.testing.conformance.steps import claim, enlist


@pytest.fixture
async def storage(redis_prefix: tuple[str, str], clock: VirtualClock) -> AsyncIterator[Storage]:
    url, prefix = redis_prefix
    opened = await open_redis(url, clock=clock, prefix=prefix)
    yield opened
    await opened.close()


async def test_a_large_part_does_not_hold_back_an_urgent_job_of_another_flow(
    storage: Storage,
) -> None:
    await enlist(storage)
    large, urgent = Plan(), Plan()
    large.part("first")
    large.part("row", 1_000, after=["first"])
    for name, after in (("one", []), ("two", ["one"])):
        urgent.part(name, after=after)
        urgent.jobs[name] = [msgspec.structs.replace(job, priority=-5) for job in urgent.jobs[name]]
    await start(storage, large)
    await start(storage, urgent)
    one, first = await claim(storage, 2)
    assert (one.task, first.task) == ("one", "first")
    await finish(storage, first)
    await finish(storage, *await claim(storage, 10))
    await finish(storage, one)
    started: list[str] = []
    while "two" not in started:
        jobs = await claim(storage, 10)
        started += [job.task for job in jobs]
        await finish(storage, *jobs)
    assert len(started) <= 100  # a claim settles 200 jobs
