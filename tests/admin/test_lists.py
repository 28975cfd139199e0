"""Lists of jobs: their usual order, words for states, and what a page says of the rest."""

from __future__ import annotations

from typing import Any

import pytest

from tests.admin.desk import a_failed_job, admin_of
from windlass.core.state import Shown, State
from windlass.errors import InvalidArgument
from windlass.storage.looks import JobFilter, ListOrder
from windlass.storage.protocol import Storage
from windlass.storage.sorting import possible_orders, usual_order
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.steps import HOUR, MINUTE, a_job, add


def test_states_may_be_given_as_words() -> None:
    words: Any = ("waiting", "failed")
    assert JobFilter(states=words) == JobFilter(states=[State.WAITING, State.FAILED])
    one: Any = "scheduled"
    assert JobFilter(shown=one) == JobFilter(shown=[Shown.SCHEDULED])
    order: Any = "-finished"
    assert JobFilter(order=order).order is ListOrder.FINISHED_LAST


def test_a_word_that_is_no_state_is_refused_with_those_that_are() -> None:
    wrong: Any = ("waiting", "scheduled")
    with pytest.raises(InvalidArgument, match=r"waiting, running, .* use shown="):
        JobFilter(states=wrong)
    wrong = "sideways"
    with pytest.raises(InvalidArgument, match="enqueued, due"):
        JobFilter(order=wrong)


def test_every_usual_order_is_a_possible_one() -> None:
    for shown in [[one] for one in Shown] + [[Shown.FAILED, Shown.READY], list(Shown)]:
        wanted = JobFilter(shown=shown)
        assert usual_order(wanted) in possible_orders(wanted)
    assert usual_order(JobFilter(states=[State.FAILED])) is ListOrder.FINISHED_LAST
    assert usual_order(JobFilter(states=[State.FAILED], key="k")) is ListOrder.NEWEST


async def test_lists_come_in_the_order_that_suits_their_states(
    storage: Storage, clock: VirtualClock
) -> None:
    admin = admin_of(storage)
    soon, late = await add(storage, a_job(delay=HOUR), a_job(delay=2 * HOUR))
    (last,) = await add(storage, a_job(queue="b"))
    first = await a_failed_job(storage, queue="a")
    clock.advance(MINUTE)
    await a_failed_job(storage, queue="b")
    latest = [job.id for job in await admin.find(JobFilter(states=[State.FAILED]))]
    assert latest[-1] == first
    assert last in latest[:2]
    scheduled = await admin.find(JobFilter(shown=[Shown.SCHEDULED]))
    assert [job.id for job in scheduled] == [soon, late]
    assert (await admin.count(JobFilter(states=[State.FAILED], queue="b"))).number == 2
