from __future__ import annotations

from datetime import timedelta
from typing import get_args

import msgspec
import pytest

from tests.core.fixtures import ERROR, NOW, WORKER, claimed
from windlass._core.job.event import (
    Event,
    JobCoalesced,
    JobEnqueued,
    JobMoved,
    QueueCooled,
    WorkerChanged,
)
from windlass._core.job.state import Verb

JOB = claimed().claim.job
MOVED = JobMoved(
    verb=Verb.RETRY,
    job=JOB,
    task="shop.send_email",
    queue="mail",
    claim_number=7,
    attempt=1,
    max_attempts=5,
    worker=WORKER,
    at=NOW,
    waited=timedelta(seconds=1),
    ran=timedelta(seconds=2),
    delay=timedelta(seconds=5),
    error=ERROR,
)
EVERY = [
    JobEnqueued(job=JOB, task="shop.send_email", queue="mail"),
    JobCoalesced(job=JOB, task="shop.send_email", queue="mail", replaced=True),
    MOVED,
    WorkerChanged(worker=WORKER, what="buried"),
    QueueCooled(queue="mail", until=NOW, at=NOW, job=JOB, task="shop.send_email", worker=WORKER),
]


def test_there_are_five_kinds_of_event() -> None:
    assert {type(event) for event in EVERY} == set(get_args(Event))


@pytest.mark.parametrize("event", EVERY, ids=lambda event: type(event).__name__)
def test_an_event_is_a_frozen_value_that_can_be_written_down(event: Event) -> None:
    assert msgspec.json.decode(msgspec.json.encode(event), type=type(event)) == event
    with pytest.raises(AttributeError):
        setattr(event, event.__struct_fields__[0], "changed")


def test_a_claim_has_no_run_yet_and_a_finish_without_a_return_no_delay() -> None:
    claim = msgspec.structs.replace(MOVED, verb=Verb.CLAIM, ran=None, delay=None, error=None)
    assert (claim.ran, claim.delay, claim.error) == (None, None, None)
