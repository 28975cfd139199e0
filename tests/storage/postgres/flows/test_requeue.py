"""Members of parts that wait for others are blocked again when they are requeued."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from windlass._core.flows.flow import FlowState
from windlass._core.job.state import State
from windlass._storage.postgres import PostgresStorage, open_postgres
from windlass._storage.protocol.actions import ActionResult, Cancel, Requeue
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.flows.steps import (
    Plan,
    a_chain,
    agree,
    finish,
    members,
    part,
    run,
    run_all,
    settle,
    start,
    state,
    tasks,
)
from windlass.testing.conformance.steps import HOUR, a_note, claim, obeyed


@pytest.fixture
async def storage(
    clean_schema: tuple[str, str], clock: VirtualClock
) -> AsyncIterator[PostgresStorage]:
    url, schema = clean_schema
    opened = await open_postgres(url, schema=schema, clock=clock)
    yield opened
    await opened.close()


async def retry(storage: PostgresStorage, plan: Plan) -> None:
    """Retry a flow, without settling afterwards."""
    (answer,) = await storage.flows.act([plan.id], "retry", a_note())
    assert answer is ActionResult.DONE


async def test_a_requeued_member_waits_for_the_part_before_it(storage: PostgresStorage) -> None:
    plan = a_chain()
    await start(storage, plan)
    (running,) = await claim(storage)
    job = plan.jobs["b"][0].id
    await obeyed(storage, Cancel(), job)
    await obeyed(storage, Requeue(), job)
    (member,) = await members(storage, plan, "b")
    assert (member.state, member.blocked) == (State.WAITING, True)
    counts = await part(storage, plan, "b")
    assert (counts.open, counts.blocked, counts.cancelled) == (1, 1, 0)
    assert await claim(storage) == []
    assert await agree(storage)
    await finish(storage, running)
    assert await run_all(storage) == ["b", "c", "good"]
    assert (await state(storage, plan)).state is FlowState.SUCCEEDED
    assert await agree(storage)


async def test_a_retry_starts_the_first_of_two_failed_parts_alone(
    storage: PostgresStorage,
) -> None:
    plan = Plan()
    plan.part("a")
    plan.part("b", ended=["a"])
    await start(storage, plan)
    assert await run_all(storage, "a", "b") == ["a", "b"]
    await retry(storage, plan)
    assert await agree(storage)
    first = await claim(storage, 10)
    assert tasks(first) == ["a"]
    await finish(storage, *first)
    assert await run(storage) == ["b"]
    assert (await state(storage, plan)).state is FlowState.SUCCEEDED
    assert await agree(storage)


async def test_the_next_claim_after_a_retry_places_what_may_start(storage: PostgresStorage) -> None:
    plan = Plan()
    plan.part("a")
    plan.part("b", after=["a"])
    await start(storage, plan)
    assert await run_all(storage, "b") == ["a", "b"]
    await retry(storage, plan)
    assert (await storage.jobs.outlook(["default"])).claimable
    assert await run(storage) == ["b"]
    assert await agree(storage)


async def test_a_requeued_member_is_stopped_if_the_part_before_it_has_failed(
    storage: PostgresStorage,
) -> None:
    plan = Plan()
    plan.part("a")
    plan.part("b", after=["a"])
    await start(storage, plan)
    job = plan.jobs["b"][0].id
    await obeyed(storage, Cancel(), job)
    assert await run_all(storage, "a") == ["a"]
    assert await obeyed(storage, Requeue(), job) == [ActionResult.DONE]
    await settle(storage)
    assert await claim(storage) == []
    (member,) = await members(storage, plan, "b")
    assert (member.state, member.reason) == (State.CANCELLED, "after a, which failed")
    assert (await state(storage, plan)).state is FlowState.FAILED
    assert await agree(storage)


async def test_a_requeued_member_that_has_run_is_not_delayed_again(
    storage: PostgresStorage, clock: VirtualClock
) -> None:
    plan = Plan()
    plan.part("a")
    plan.part("b", after=["a"], delay=HOUR)
    await start(storage, plan)
    assert await run_all(storage) == ["a"]
    clock.advance(HOUR)
    assert await run(storage, "b") == ["b"]
    await obeyed(storage, Requeue(), plan.jobs["b"][0].id)
    assert (await storage.jobs.outlook(["default"])).claimable
    assert await run(storage) == ["b"]
    assert await agree(storage)


async def test_a_requeued_member_that_never_ran_is_delayed_from_its_turn(
    storage: PostgresStorage, clock: VirtualClock
) -> None:
    plan = Plan()
    plan.part("a")
    plan.part("b", after=["a"], delay=HOUR)
    await start(storage, plan)
    job = plan.jobs["b"][0].id
    await obeyed(storage, Cancel(), job)
    await obeyed(storage, Requeue(), job)
    clock.advance(2 * HOUR)
    assert await run_all(storage) == ["a"]
    clock.advance(HOUR)
    assert await run_all(storage) == ["b"]
    assert await agree(storage)
