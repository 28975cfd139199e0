"""Schedules that several processes write at once, each by a connection of its own."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack

import pytest
from redis import Redis

from tests.storage.conftest import OPENERS
from tests.storage.redis.key_checker import disorder
from windlass._core.limits.limit import LimitSpec
from windlass._storage.protocol.schedules import ScheduleWrite, Written
from windlass._storage.protocol.storage import Storage
from windlass._storage.redis import open_redis
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.schedules.schedules import a_write, stored, written
from windlass.testing.conformance.steps import HOUR, a_job, keyed, limited, seeded, total

ROUNDS = 15
WRITTEN, STALE = Written.WRITTEN, Written.STALE


@pytest.fixture(params=[name for name in OPENERS if name != "memory"])
async def storages(request: pytest.FixtureRequest) -> AsyncIterator[list[Storage]]:
    """Four doors to one store."""
    opened = request.getfixturevalue(OPENERS[request.param])
    async with AsyncExitStack() as stack:
        doors = []
        for _ in range(4):
            door = await opened()
            stack.push_async_callback(door.close)
            doors.append(door)
        yield doors


async def together(storages: Sequence[Storage], *calls: list[ScheduleWrite]) -> list[list[Written]]:
    """All calls at once, each through its own door as far as there are some."""
    doors = [storages[number % len(storages)] for number, _ in enumerate(calls)]
    async with asyncio.timeout(30):
        return await asyncio.gather(
            *(written(door, *call) for door, call in zip(doors, calls, strict=True))
        )


async def test_exactly_one_of_many_processes_fires_a_slot(storages: list[Storage]) -> None:
    for revision in range(ROUNDS):
        calls = [[a_write(revision=revision, body=b"%d" % n, jobs=(a_job(),))] for n in range(8)]
        answers = await together(storages, *calls)
        assert Counter(answer for (answer,) in answers) == {WRITTEN: 1, STALE: 7}
        row = await stored(storages[0])
        assert (row.revision, row.body) == (revision + 1, b"%d" % answers.index([WRITTEN]))
    assert await total(storages[0]) == ROUNDS


async def test_the_same_firing_by_many_processes_is_one(storages: list[Storage]) -> None:
    await storages[0].limits.define([LimitSpec(name="db", concurrency=1)])
    for revision in range(ROUNDS):
        call = [a_write(revision=revision, jobs=(a_job(), keyed(f"k{revision}"), limited("db")))]
        assert await together(storages, *[call] * 8) == [[WRITTEN]] * 8
        assert await total(storages[0]) == 3 * (revision + 1)


async def test_calls_that_name_the_same_schedules_in_any_order_never_deadlock(
    storages: list[Storage],
) -> None:
    chance = seeded(5)
    names = [f"s{number}" for number in range(12)]
    for revision in range(ROUNDS):
        calls = []
        for caller in range(6):
            order = chance.sample(names, len(names))
            jobs = [keyed(f"{revision}/{name}") for name in chance.sample(names, len(names))]
            body = b"%d" % caller
            calls.append(
                [
                    a_write(name, revision, body=body, jobs=(job,))
                    for name, job in zip(order, jobs, strict=True)
                ]
            )
        declaring = asyncio.gather(
            *(door.schedules.declare(chance.sample(names, 12)) for door in storages)
        )
        answers = await together(storages, *calls)
        await declaring
        assert Counter(answer for call in answers for answer in call)[WRITTEN] == len(names)
        rows = await storages[0].schedules.rows()
        assert {row.revision for row in rows} == {revision + 1}


async def test_names_that_are_deleted_and_made_by_many_are_there_once_or_not_at_all(
    storages: list[Storage],
) -> None:
    chance = seeded(6)
    names = [f"s{number}" for number in range(6)]
    made = 0
    for _ in range(ROUNDS):
        calls = [
            [
                a_write(name, chance.randrange(3), body=chance.choice([None, b"a", b"b"]))
                for name in chance.sample(names, len(names))
            ]
            for _ in range(6)
        ]
        answers = await together(storages, *calls)
        made += sum(answer is WRITTEN for call in answers for answer in call)
        rows = await storages[0].schedules.rows()
        assert [row.name for row in rows] == sorted({row.name for row in rows})
    assert made > ROUNDS


async def test_nothing_is_left_behind_on_redis(
    redis_prefix: tuple[str, str], clock: VirtualClock
) -> None:
    url, prefix = redis_prefix
    storage = await open_redis(url, prefix=prefix, clock=clock)
    chance = seeded(7)
    for _ in range(100):
        next_at = chance.choice([None, clock.now()])
        body = chance.choice([None, b"a", b"b"])
        job = chance.choice([a_job(), keyed("k"), a_job(delay=HOUR)])
        write = a_write(
            chance.choice("abc"), chance.randrange(4), body=body, next_at=next_at, jobs=(job,)
        )
        await written(storage, write)
        await storage.schedules.declare([chance.choice("abcd")])
    await storage.close()
    with Redis.from_url(url) as server:
        assert disorder(server, f"{{{prefix}}}:") == []


async def test_a_write_of_one_process_is_visible_to_another_at_once(
    storages: list[Storage], clock: VirtualClock
) -> None:
    first, second, *_ = storages
    assert await written(first, a_write(next_at=clock.now())) == [WRITTEN]
    assert (await second.schedules.due(10)).rows == [await stored(first)]
    assert await written(second, a_write(revision=1, body=None)) == [WRITTEN]
    assert (await first.schedules.due(10)).rows == []
