"""Two transactions that add a flow with the same id at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from windlass._core.flows.flow import FlowState
from windlass._core.job.job import FlowId
from windlass._core.job.transition import succeed
from windlass._storage.postgres import PostgresStorage, open_postgres
from windlass._storage.protocol.jobs import Verdict
from windlass.errors import IdConflict
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.flows.steps import Plan, agree, run_all, settle, start, state
from windlass.testing.conformance.steps import claim


@pytest.fixture
async def storage(
    clean_schema: tuple[str, str], clock: VirtualClock
) -> AsyncIterator[PostgresStorage]:
    url, schema = clean_schema
    opened = await open_postgres(url, schema=schema, clock=clock)
    yield opened
    await opened.close()


def a_part(name: str) -> Plan:
    plan = Plan()
    plan.part(name)
    return plan


@contextmanager
def another_adds(place: tuple[str, str], flow: FlowId) -> Iterator[psycopg.Connection]:
    """Let an open transaction have added a flow with this id."""
    url, schema = place
    with psycopg.connect(url, options=f"-c search_path={schema}") as other:
        other.execute(
            "UPDATE parts SET added_id = %s, added_first = 0, counts_for = 0"
            " WHERE id = (SELECT max(id) FROM parts)",
            (flow,),
        )
        yield other


async def until_blocked(by: psycopg.Connection, task: asyncio.Future[Any]) -> None:
    """Wait until a statement waits for this transaction."""
    while True:
        by.execute("SELECT pg_stat_clear_snapshot()")
        row = by.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid))"
        ).fetchone()
        if row is not None and row[0]:
            return
        assert not task.done()
        await asyncio.sleep(0)


async def test_one_that_another_transaction_adds_meanwhile_is_refused(
    storage: PostgresStorage, clean_schema: tuple[str, str]
) -> None:
    plan, other, added = a_part("mine"), a_part("theirs"), a_part("added")
    await start(storage, plan)
    await start(storage, other)
    with another_adds(clean_schema, added.id) as transaction:
        adding = asyncio.ensure_future(storage.flows.add(plan.id, added.flow))
        await until_blocked(transaction, adding)
        transaction.commit()
        with pytest.raises(IdConflict):
            await adding
    assert (await state(storage, plan)).total == 1


async def test_one_that_a_success_adds_meanwhile_is_left_out_and_the_others_are_not(
    storage: PostgresStorage, clean_schema: tuple[str, str]
) -> None:
    plan, other, added, fine = a_part("mine"), a_part("theirs"), a_part("added"), a_part("fine")
    await start(storage, plan)
    (job,) = await claim(storage)
    await start(storage, other)
    with another_adds(clean_schema, added.id) as transaction:
        flows = (added.flow, fine.flow)
        applying = asyncio.ensure_future(
            storage.jobs.apply([succeed(job, by="w1", result=None, flows=flows)])
        )
        await until_blocked(transaction, applying)
        transaction.commit()
        (answer,) = (await applying).answers
    assert answer.verdict is Verdict.APPLIED
    with psycopg.connect(clean_schema[0], options=f"-c search_path={clean_schema[1]}") as mending:
        mending.execute(
            "UPDATE parts SET added_id = NULL, added_first = NULL, counts_for = NULL"
            " WHERE added_id = %s",
            (added.id,),
        )
    await settle(storage)
    assert sorted(await run_all(storage)) == ["fine", "theirs"]
    assert (await state(storage, plan)).state is FlowState.SUCCEEDED
    assert await agree(storage)
