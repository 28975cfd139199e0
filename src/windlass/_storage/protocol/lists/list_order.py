"""Lists of jobs in an order: which is possible for what, and where the next page begins.

An order needs an index, and the way of a job that succeeds pays for none that only people use. So
every job can be listed by when it was enqueued (its number), those that wait for their time by that
time, and ended ones by when they ended, because workers need these two orders anyway. Running jobs
are few: they are sorted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

from windlass._core.job.job import JobRecord
from windlass._core.job.state import TERMINAL, Shown, State
from windlass._core.values.instants import instant_of
from windlass._storage.protocol.lists.job_list import JobFilter, ListOrder
from windlass.errors import InvalidArgument

__all__ = [
    "ListPosition",
    "default_order",
    "is_descending",
    "order_of",
    "position_of",
    "possible_orders",
    "seq_of",
    "sort_field_of",
    "sort_jobs",
    "sort_time_of",
    "visible_states_of",
]

_WAITING = frozenset({Shown.SCHEDULED, Shown.READY, Shown.RETRYING})
_ENDED = frozenset(Shown(state.value) for state in TERMINAL)
_POSSIBLE: Mapping[str, frozenset[Shown]] = {
    "enqueued": frozenset(Shown),
    "due": frozenset({Shown.SCHEDULED}),
    "started": frozenset({Shown.RUNNING}),
    "finished": _ENDED,
}
_LONGEST = 18
_SENTENCE = (
    "Possible are: enqueued and -enqueued with any state; due and -due with the state scheduled; "
    "started and -started with the state running; finished and -finished with the states "
    "succeeded, failed, cancelled and discarded."
)


class ListPosition(NamedTuple):
    """A job's place in a list by time: microseconds, then what tells jobs of one instant apart."""

    at: int
    tail: str

    def cursor(self) -> str:
        """Write it as the cursor of the page that begins behind it."""
        return f"{self.at}.{self.tail}"

    @property
    def instant(self) -> datetime:
        return instant_of(self.at)

    @property
    def seq(self) -> int:
        """The number of the job, for backends that tell jobs apart by it."""
        if not self.tail.isdigit() or len(self.tail) > _LONGEST:
            raise _not_a_cursor(self.cursor())
        return int(self.tail)

    @property
    def id(self) -> bytes:
        """Its id, likewise."""
        try:
            return bytes.fromhex(self.tail)
        except ValueError:
            raise _not_a_cursor(self.cursor()) from None


def sort_field_of(order: ListOrder) -> str:
    """Name the time: enqueued, due, started or finished."""
    return order.value.removeprefix("-")


def is_descending(order: ListOrder) -> bool:
    """Tell whether the latest comes first."""
    return order.value.startswith("-")


def visible_states_of(wanted: JobFilter) -> frozenset[Shown]:
    """Name what people may see of the wanted jobs."""
    seen = frozenset(Shown)
    if wanted.states is not None:
        seen &= {one for state in wanted.states for one in _seen_of_state(state)}
    if wanted.shown is not None:
        seen &= frozenset(wanted.shown)
    if wanted.finished_from is not None or wanted.finished_until is not None:
        seen &= _ENDED
    return seen


def _seen_of_state(state: State) -> frozenset[Shown]:
    return _WAITING if state is State.WAITING else frozenset({Shown(state.value)})


def possible_orders(wanted: JobFilter) -> tuple[ListOrder, ...]:
    """Name the orders in which these jobs can be listed."""
    seen = visible_states_of(wanted)
    return tuple(order for order in ListOrder if seen <= _POSSIBLE[sort_field_of(order)])


def default_order(wanted: JobFilter) -> ListOrder:
    """Pick the order that people expect: the latest end first, the next due first, else the newest.

    The holder of a key is found by the key, and the jobs of a flow by their flow, which only the
    order of enqueueing does.
    """
    seen = visible_states_of(wanted)
    if wanted.key is not None or wanted.flow is not None or not seen:
        return ListOrder.NEWEST
    if seen <= _ENDED:
        return ListOrder.FINISHED_LAST
    if seen <= _POSSIBLE["started"]:
        return ListOrder.STARTED_LAST
    return ListOrder.DUE if seen <= _POSSIBLE["due"] else ListOrder.NEWEST


def sort_jobs(jobs: Iterable[JobRecord], order: ListOrder) -> list[JobRecord]:
    """Put the jobs of a page into the order of their list."""
    back, name = is_descending(order), sort_field_of(order)
    if name == "enqueued":
        return sorted(jobs, key=lambda job: job.seq, reverse=back)
    return sorted(jobs, key=lambda job: (sort_time_of(job, order), job.seq), reverse=back)


def sort_time_of(job: JobRecord, order: ListOrder) -> datetime:
    """Read what the list is ordered by."""
    times = {"due": job.due, "started": job.started_at, "finished": job.finished_at}
    return times.get(sort_field_of(order)) or job.created_at


def order_of(wanted: JobFilter) -> ListOrder:
    """Read the order; InvalidArgument if no index has it for these states."""
    order = wanted.order or ListOrder.NEWEST
    if not visible_states_of(wanted) <= _POSSIBLE[sort_field_of(order)]:
        message = f"these jobs cannot be listed by {order.value!r}: no index has that order. "
        raise InvalidArgument(message + _SENTENCE)
    return order


def seq_of(wanted: JobFilter) -> int | None:
    """Read the cursor of a list by number."""
    if isinstance(wanted.before, str):
        raise _not_a_cursor(wanted.before)
    return wanted.before


def position_of(wanted: JobFilter) -> ListPosition | None:
    """Read the cursor of a list by time."""
    text = wanted.before
    if text is None:
        return None
    at, dot, tail = str(text).partition(".")
    digits = at.removeprefix("-")
    plain = digits.isascii() and digits.isdigit() and len(digits) <= _LONGEST
    if not (dot and plain and tail.isascii() and tail.isalnum()):
        raise _not_a_cursor(text)
    return ListPosition(int(at), tail)


def _not_a_cursor(cursor: object) -> InvalidArgument:
    return InvalidArgument(
        f"before={cursor!r} is no cursor of a list in this order: take the next of its last page, "
        f"or leave it out to begin with the first page"
    )
