"""Limited jobs that one call handles together: what is delivered, and what is left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from redis import Redis

from tests.storage.redis.key_checker import disorder
from windlass._core.job.job import JobId, LimitUse, NewJob
from windlass._core.job.state import State
from windlass._core.job.transition import retry, succeed
from windlass._core.job.unique import OnConflict, UniqueKey, Window
from windlass._core.limits.breaker import Breaker
from windlass._core.limits.limit import LimitSpec, Rate
from windlass._storage.protocol.jobs import Verdict
from windlass._storage.protocol.storage import Storage
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    OOPS,
    a_job,
    add,
    at_most,
    claim,
    end,
    enlist,
    ids,
    limited,
    look,
)

pytestmark = pytest.mark.timeout(120)

REMEMBERED = 2000
"""Kinds of limited jobs that a Redis server remembers unpacked: see specials.lua."""


@pytest.fixture(autouse=True)
def keys_agree(storage: Storage, request: pytest.FixtureRequest) -> Iterator[None]:
    """Check on Redis that the keys agree with each other in the end."""
    prefixed = request.node.callspec.params["storage"] == "redis"
    url, prefix = request.getfixturevalue("redis_prefix") if prefixed else ("", "")
    yield
    if prefixed:
        with Redis.from_url(url) as server:
            assert disorder(server, f"{{{prefix}}}:") == []


async def finish_all(storage: Storage, limit: int) -> list[JobId]:
    """Claim and finish until nothing is left; the jobs in the order of their claims."""
    done: list[JobId] = []
    while jobs := await claim(storage, limit):
        done += ids(jobs)
        answers = await end(storage, *(succeed(job, by="w1", result=None) for job in jobs))
        assert {answer.verdict for answer in answers} == {Verdict.APPLIED}
    return done


async def usage(storage: Storage, limit: str) -> int:
    return sum(state.running for state in await storage.limits.states(limit))


class TestClaims:
    @pytest.mark.parametrize("at_once", [1, 7, 100])
    async def test_lanes_and_plain_jobs_come_in_the_order_they_were_stored(
        self, storage: Storage, at_once: int
    ) -> None:
        await at_most(storage, own=2, all=50)
        kinds: list[Callable[[], NewJob]] = [
            a_job,
            lambda: limited("own:a", "all"),
            lambda: limited("own:b"),
            a_job,
            lambda: limited("all"),
            lambda: limited("all", "own:c"),
        ]
        jobs = [kinds[number % len(kinds)]() for number in range(60)]
        made = await add(storage, *jobs)
        if at_once == 1:
            assert await finish_all(storage, 1) == made
        else:
            assert sorted(await finish_all(storage, at_once)) == sorted(made)
        assert await usage(storage, "own") == await usage(storage, "all") == 0

    async def test_a_claim_takes_from_every_lane_as_much_as_its_limit_allows(
        self, storage: Storage
    ) -> None:
        await at_most(storage, own=2)
        made = await add(storage, *(limited(f"own:{n % 30}") for n in range(150)))
        assert ids(await claim(storage, 150)) == made[:60]
        assert await claim(storage, 150) == []

    async def test_a_lane_comes_again_in_one_claim_where_its_next_job_goes_before_others(
        self, storage: Storage
    ) -> None:
        await at_most(storage, own=3)
        urgent, second, plain, third, other, last = await add(
            storage,
            limited("own:a", priority=-1),
            limited("own:a"),
            a_job(priority=1),
            limited("own:a", priority=2),
            limited("own:b", priority=3),
            limited("own:a", priority=3),
        )
        jobs = await claim(storage, 6)
        assert ids(jobs) == [urgent, second, plain, third, other]
        await end(storage, succeed(jobs[0], by="w1", result=None))
        assert ids(await claim(storage, 6)) == [last]

    async def test_a_lane_joins_the_group_of_a_lane_that_the_same_claim_took_from(
        self, storage: Storage
    ) -> None:
        await at_most(storage, own=1)
        first, both, behind = await add(
            storage, limited("own:b"), limited("own:a", "own:b"), limited("own:b")
        )
        (running,) = await claim(storage, 3)
        assert running.claim.job == first
        assert await claim(storage, 3) == []
        await end(storage, succeed(running, by="w1", result=None))
        assert await finish_all(storage, 3) == [both, behind]

    async def test_an_urgent_job_moves_a_lane_to_the_front_after_claims_from_it(
        self, storage: Storage
    ) -> None:
        await at_most(storage, own=9)
        made = await add(storage, *(limited(f"own:{n % 3}") for n in range(9)))
        assert ids(await claim(storage, 4)) == made[:4]
        (urgent,) = await add(storage, limited("own:2", priority=-1))
        assert ids(await claim(storage, 9)) == [urgent, *made[4:]]

    async def test_fresh_retried_expiring_and_expired_jobs_share_a_lane(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await at_most(storage, one=10)
        (again,) = await add(storage, limited("one"))
        (running,) = await claim(storage)
        await end(storage, retry(running, by="w1", error=OOPS, delay=timedelta(0)))
        minute = timedelta(minutes=1)
        late, soon, fresh = await add(
            storage,
            limited("one", expires=minute),
            limited("one", expires=minute * 9),
            limited("one"),
        )
        clock.advance(120)
        jobs = await claim(storage, 9)
        assert sorted(ids(jobs)) == sorted([again, soon, fresh])
        assert {job.claim.job: job.attempt for job in jobs} == {again: 2, soon: 1, fresh: 1}
        assert (await look(storage, late)).state is State.DISCARDED
        assert await usage(storage, "one") == 3

    async def test_more_kinds_of_limited_jobs_than_a_server_remembers_are_all_delivered(
        self, storage: Storage
    ) -> None:
        await at_most(storage, own=1)
        jobs = [limited(f"own:{number}") for number in range(REMEMBERED + 100)]
        made = await add(storage, *jobs)
        assert await finish_all(storage, 500) == made

    async def test_a_rate_lets_through_what_it_holds_and_the_rest_when_it_refills(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage)
        rate = Rate(10, timedelta(seconds=1), burst=10)
        await storage.limits.define([
            LimitSpec(name="api", rate=rate), LimitSpec(name="own", concurrency=2)
        ])  # fmt: skip
        made = await add(storage, *(limited(f"own:{n % 15}", "api") for n in range(30)))
        delivered: list[JobId] = []
        for _ in range(3):
            some = await finish_all(storage, 30)
            assert len(some) == 10
            delivered += some
            clock.advance(1)
        assert sorted(delivered) == sorted(made)


class TestSuccesses:
    @pytest.mark.parametrize("keep", [True, False])
    async def test_successes_of_one_batch_give_back_units_and_keys(
        self, storage: Storage, *, keep: bool
    ) -> None:
        await at_most(storage, own=1, all=20)
        jobs = [
            NewJob(
                id=a_job().id,
                task="t",
                limits=(LimitUse("own", str(number)), LimitUse("all")),
                unique=UniqueKey(f"key {number}", Window.UNTIL_FINISHED, None)
                if number % 2
                else None,
            )
            for number in range(20)
        ]
        await add(storage, *jobs)
        waiting = await add(storage, *(limited(f"own:{n}", "all") for n in range(20)))
        running = await claim(storage, 40)
        assert len(running) == 20
        await end(storage, *(succeed(job, by="w1", result=b"1", keep=keep) for job in running))
        assert await usage(storage, "own") == await usage(storage, "all") == 0
        again = [
            a_job(unique=UniqueKey(f"key {n}", Window.UNTIL_FINISHED, None)) for n in range(20)
        ]
        await add(storage, *again)
        assert set(waiting) <= set(ids(await claim(storage, 60)))
        if keep:
            assert (await look(storage, running[1])).result == b"1"

    async def test_a_key_held_for_a_time_outlasts_the_batch(self, storage: Storage) -> None:
        await at_most(storage, all=5)
        hour = timedelta(hours=1)
        unique = UniqueKey("report", Window.FOR_A_TIME, hour)
        (held,) = await add(storage, limited("all", unique=unique))
        running = await claim(storage, 5)
        await end(storage, *(succeed(job, by="w1", result=None) for job in running))
        (answer,) = await storage.jobs.insert([limited("all", unique=unique)])
        assert (answer.id, answer.created) == (held, False)

    async def test_successes_of_one_batch_close_a_breaker(self, storage: Storage) -> None:
        await enlist(storage)
        breaker = Breaker(failures=3)
        await storage.limits.define([LimitSpec(name="api", breaker=breaker)])
        await add(storage, *(limited("api") for _ in range(6)))
        jobs = await claim(storage, 6)
        for job in jobs[:2]:
            await end(storage, retry(job, by="w1", error=OOPS, delay=timedelta(hours=1)))
        await end(storage, *(succeed(job, by="w1", result=None) for job in jobs[2:5]))
        await end(storage, retry(jobs[5], by="w1", error=OOPS, delay=timedelta(hours=1)))
        (made,) = await add(storage, limited("api"))
        assert ids(await claim(storage)) == [made]


class TestInserts:
    async def test_a_better_job_of_a_later_batch_comes_first_in_its_lane(
        self, storage: Storage
    ) -> None:
        await at_most(storage, own=1)
        common = await add(storage, *(limited("own:a") for _ in range(3)))
        better = await add(
            storage, limited("own:a"), limited("own:a", priority=-5), limited("own:a", priority=-9)
        )
        wanted = [better[2], better[1], *common, better[0]]
        assert await finish_all(storage, 6) == wanted

    async def test_a_job_of_the_batch_that_is_replaced_within_it_stands_in_its_new_lane(
        self, storage: Storage
    ) -> None:
        await at_most(storage, own=1)
        unique = UniqueKey("report", Window.UNTIL_FINISHED, None, OnConflict.REPLACE_ARGUMENTS)
        first, second = (
            limited(f"own:{lane}", unique=unique, payload=lane.encode()) for lane in "ab"
        )
        other = limited("own:b")
        answers = await storage.jobs.insert([first, other, second])
        assert [answer.id for answer in answers] == [first.id, other.id, first.id]
        running = await claim(storage, 9)
        assert len(running) == 1
        await end(storage, *(succeed(job, by="w1", result=None) for job in running))
        assert {*ids(running), *await finish_all(storage, 9)} == {first.id, other.id}
