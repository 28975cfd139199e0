"""Limits on how many run at once."""

from __future__ import annotations

from windlass._core.job.job import LimitUse
from windlass._core.job.outcome import (
    Cancelled,
    Crashed,
    GaveUp,
    Interrupted,
    Lost,
    Outcome,
    Raised,
    Snoozed,
    Succeeded,
    Throttled,
)
from windlass._core.job.state import State
from windlass._core.job.transition import succeed
from windlass._storage.protocol.jobs import Want
from windlass._storage.protocol.limits import LimitState
from windlass._storage.protocol.storage import Storage
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    DAY,
    HOUR,
    OOPS,
    POLICY,
    a_job,
    add,
    at_most,
    claim,
    claim_one,
    ended,
    enlist,
    happened,
    ids,
    limited,
    look,
    seeded,
    started,
    succeeded,
)

__all__ = ["ConcurrencyConformance"]

OUTCOMES: tuple[Outcome, ...] = (
    Succeeded(),
    Raised(OOPS),
    GaveUp(OOPS),
    Crashed(OOPS),
    Snoozed(HOUR),
    Throttled(HOUR),
    Interrupted(),
    Cancelled(),
    Lost(OOPS),
)


class ConcurrencyConformance:
    """A bounded number of claims at a time; each unit comes back when its claim ends."""

    async def test_no_more_than_the_limit_run_at_once(
        self, storage: Storage
    ) -> None:  # CLAIM-16, guarantee 6
        await at_most(storage, db=2)
        wanted = await add(storage, *(limited("db") for _ in range(5)))
        assert ids(await claim(storage, 10)) == wanted[:2]
        assert await claim(storage, 10) == []

    async def test_every_ending_gives_the_unit_back(self, storage: Storage) -> None:  # CLAIM-16
        await at_most(storage, db=1)
        for outcome in OUTCOMES:
            running = await started(storage, limited("db"))
            (behind,) = await add(storage, limited("db", priority=-1))
            assert await claim(storage) == []
            await happened(storage, running, outcome, by="w1")
            following = await claim_one(storage)
            assert following.claim.job == behind, outcome
            await succeeded(storage, following)
            await storage.jobs.cancel([running.claim.job])

    async def test_a_success_that_is_not_kept_gives_the_unit_back(self, storage: Storage) -> None:
        await at_most(storage, db=1)
        running = await started(storage, limited("db"))
        (behind,) = await add(storage, limited("db"))
        await ended(storage, succeed(running, by="w1", result=None, keep=False))
        assert ids(await claim(storage)) == [behind]

    async def test_a_cancel_request_gives_nothing_back_until_the_claim_ends(
        self, storage: Storage
    ) -> None:
        await at_most(storage, db=1)
        running = await started(storage, limited("db"))
        (behind,) = await add(storage, limited("db"))
        await storage.jobs.cancel([running.claim.job])
        assert await claim(storage) == []
        await happened(storage, running, Raised(OOPS))
        assert ids(await claim(storage)) == [behind]

    async def test_declaring_a_worker_dead_frees_no_unit_and_reaping_does(
        self, storage: Storage
    ) -> None:
        await enlist(storage, "w2")
        await at_most(storage, db=1)
        await started(storage, limited("db"))
        (behind,) = await add(storage, limited("db", priority=-1))
        await storage.workers.bury(["w1"])
        assert await claim(storage, worker="w2") == []
        (orphan,) = await storage.workers.orphans(10)
        await happened(storage, orphan, Lost(OOPS), POLICY, by="w2")
        assert ids(await claim(storage, worker="w2")) == [behind]

    async def test_leaving_gives_the_units_back(self, storage: Storage) -> None:
        await enlist(storage, "w2")
        await at_most(storage, db=1)
        running = await started(storage, limited("db"))
        await add(storage, limited("db"))
        await storage.workers.leave("w1", [])
        assert ids(await claim(storage, worker="w2")) == [running.claim.job]

    async def test_cancelling_a_waiting_job_frees_nothing_and_blocks_nothing(
        self, storage: Storage
    ) -> None:
        await at_most(storage, db=1)
        running = await started(storage, limited("db"))
        head, behind = await add(storage, limited("db"), limited("db"))
        assert await claim(storage) == []
        await storage.jobs.cancel([head])
        assert await claim(storage) == []
        await succeeded(storage, running)
        assert ids(await claim(storage)) == [behind]

    async def test_every_key_has_its_own_budget(self, storage: Storage) -> None:
        await at_most(storage, db=1)
        first, _, second = await add(storage, limited("db:a"), limited("db:a"), limited("db:b"))
        assert ids(await claim(storage, 10)) == [first, second]

    async def test_a_limit_holds_across_queues_and_workers(self, storage: Storage) -> None:
        await enlist(storage, "w2")
        await at_most(storage, db=1)
        await started(storage, limited("db"))
        await add(storage, limited("db", queue="other"))
        assert await claim(storage, queue="other", worker="w2") == []

    async def test_a_limit_holds_within_one_claim_of_several_queues(self, storage: Storage) -> None:
        await at_most(storage, db=1)
        await add(storage, limited("db", queue="a"), limited("db", queue="b"))
        reply = await storage.jobs.claim("w1", [Want("a", 5), Want("b", 5)], total=10)
        assert [job.queue for job in reply.jobs] == ["a"]

    async def test_cost_does_not_count_where_jobs_are_counted(self, storage: Storage) -> None:
        await at_most(storage, db=2)
        await add(storage, *(a_job(limits=(LimitUse("db", cost=5),)) for _ in range(3)))
        assert len(await claim(storage, 10)) == 2

    async def test_the_state_of_a_limit_tells_who_uses_it(self, storage: Storage) -> None:
        await at_most(storage, db=3, other=1)
        running = [
            await started(storage, limited("db:a")),
            await started(storage, limited("db:a")),
            await started(storage, limited("db:b")),
        ]
        await started(storage, limited("other"))
        assert {(state.key, state.running) for state in await storage.limits.states("db")} == {
            ("a", 2),
            ("b", 1),
        }
        await succeeded(storage, running[0])
        states: list[LimitState] = list(await storage.limits.states("db"))
        assert [(state.name, state.key, state.running) for state in states] == [
            ("db", "a", 1),
            ("db", "b", 1),
        ]

    async def test_a_budget_that_was_used_is_still_shown(self, storage: Storage) -> None:
        await at_most(storage, db=3)
        await succeeded(storage, await started(storage, limited("db:a")))
        states = await storage.limits.states("db")
        assert [(state.key, state.running) for state in states] == [("a", 0)]
        assert list(await storage.limits.states("other")) == []

    async def test_no_mix_of_operations_exceeds_a_limit_or_leaks_a_unit(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # guarantee 6
        chance = seeded(7)
        await at_most(storage, a=2, b=3)
        mixes = [("a",), ("b",), ("a", "b"), ()]
        wanted = await add(
            storage, *(limited(*chance.choice(mixes), max_attempts=2) for _ in range(40))
        )
        held = []
        for _ in range(30):
            clock.advance(HOUR)
            held += await claim(storage, chance.randrange(1, 5))
            running = [use.name for job in held for use in (await look(storage, job)).limits]
            assert running.count("a") <= 2
            assert running.count("b") <= 3
            chance.shuffle(held)
            for job in [held.pop() for _ in range(chance.randrange(len(held) + 1))]:
                if chance.random() < 0.1:
                    await storage.jobs.cancel([job.claim.job])
                await happened(storage, job, chance.choice(OUTCOMES), by="w1")
        clock.advance(DAY)
        while held := [*held, *await claim(storage, 10), *await claim(storage, solo=True)]:
            for job in held:
                await happened(storage, job, GaveUp(OOPS))
            held = []
        done = [(await look(storage, job)).state for job in wanted]
        assert State.WAITING not in done
        for state in [*await storage.limits.states("a"), *await storage.limits.states("b")]:
            assert state.running == 0
