from __future__ import annotations

import math
from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.fixtures import ERROR, NOW, claimed, few
from windlass._core.job.job import (
    DEFAULT_MAX_ATTEMPTS,
    Attempt,
    Claim,
    JobId,
    JobRecord,
    LimitUse,
    NewJob,
    Progress,
)
from windlass._core.job.state import State, Verb
from windlass._core.job.unique import UniqueKey
from windlass._core.limits.backoff import Backoff
from windlass.errors import InvalidArgument

ID = JobId("0195511c7a0070008000000000000001")
JOB = JobRecord(
    id=ID,
    seq=41,
    task="shop.send_email",
    queue="mail",
    payload=b'{"to":"a@b.c"}',
    state=State.WAITING,
    priority=0,
    created_at=NOW,
    due=NOW,
    attempt=0,
    max_attempts=5,
    budget=5,
    claim_number=0,
)


def test_a_new_job_needs_an_id_and_a_task_and_nothing_else() -> None:
    job = NewJob(id=ID, task="shop.send_email")
    assert (job.queue, job.priority, job.payload) == ("default", 0, b"{}")
    assert job.max_attempts == DEFAULT_MAX_ATTEMPTS == 5
    assert (job.delay, job.at, job.timeout, job.expires) == (None, None, None, None)
    assert (job.unique, job.limits, job.backoff) == (None, (), None)


@pytest.mark.parametrize(
    "record",
    [
        NewJob(id=ID, task="t", unique=UniqueKey("t/k"), limits=(LimitUse("api", "eu", 2.0),)),
        claimed(backoff=Backoff.fixed(3), error=ERROR, tags=("a", "b")),
        JOB,
        Attempt(
            claim_number=1,
            attempt=1,
            verb=Verb.RETRY,
            worker="w1",
            started_at=NOW,
            ended_at=NOW + timedelta(seconds=1),
            error=ERROR,
        ),
        Claim(ID, 1, 41),
        Progress(0.5, "half"),
    ],
    ids=lambda record: type(record).__name__,
)
def test_a_record_is_a_frozen_value_that_survives_being_written_down(
    record: msgspec.Struct,
) -> None:
    again = msgspec.json.decode(msgspec.json.encode(record), type=type(record))
    assert again == record
    assert hash(again) == hash(record)
    with pytest.raises(AttributeError):
        setattr(record, record.__struct_fields__[0], None)


def test_a_limit_without_a_key_is_one_budget_and_with_keys_one_for_each() -> None:
    assert LimitUse("api").gate == "api"
    assert LimitUse("api", "eu").gate == "api:eu"
    assert LimitUse("api", "eu", cost=9).gate == LimitUse("api", "eu").gate


@pytest.mark.parametrize("cost", [-1, -0.001, math.nan, math.inf, -math.inf])
def test_a_cost_that_would_give_tokens_away_is_refused(cost: float) -> None:
    with pytest.raises(InvalidArgument, match="cost of limit 'api'"):
        LimitUse("api", cost=cost)


@few
@given(attempt=st.integers(0, 1000), budget=st.integers(1, 100))
def test_tries_begin_again_after_a_requeue(attempt: int, budget: int) -> None:
    requeued = claimed(attempt=attempt + 1, max_attempts=attempt + budget, budget=budget)
    assert requeued.tries == 1


@few
@given(attempt=st.integers(1, 100), max_attempts=st.integers(1, 100))
def test_before_any_requeue_tries_are_attempts(attempt: int, max_attempts: int) -> None:
    job = claimed(attempt=attempt, max_attempts=max_attempts, budget=max_attempts)
    assert job.tries == attempt
