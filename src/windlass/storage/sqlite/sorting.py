"""Jobs in the order of a time: which are next, by the indexes that have it.

Ended jobs stand in the index by state, queue and time. Where a list is about all queues, the first
of each queue is looked up, and only queues whose first one belongs to the page are read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import apsw

from windlass.core.instant import to_us
from windlass.core.state import TERMINAL, Shown, State
from windlass.storage.calendar import LAST_US
from windlass.storage.looks import JobFilter, ListOrder
from windlass.storage.queries import load
from windlass.storage.sorting import is_backwards, place_of, seen_of, seq_of, time_of
from windlass.storage.sqlite.rows import CODES, fetch

__all__ = ["Next", "Spot", "lined_up"]

_SQL = load("windlass.storage.sqlite.sql", "sort.sql")
_BEYOND = 2**63 - 1
_BEHIND_ALL_TEXT = b""

Spot = tuple[int, int]
"""An instant and the number of a job: its place in the list."""
Next = Callable[[Spot | None, int], Sequence[Spot]]
"""The spots behind one (None: behind the cursor), at most so many."""


def lined_up(connection: apsw.Connection, wanted: JobFilter, order: ListOrder, now: int) -> Next:
    """What gives the wanted jobs in order, and others among them."""
    match time_of(order):
        case "due":
            return partial(_due, connection, (wanted, order, now))
        case "started":
            return partial(_started, connection, wanted, order)
        case "finished":
            return partial(_ended, connection, wanted, order)
        case _:
            return partial(_numbered, connection, wanted)


def _numbered(
    connection: apsw.Connection, wanted: JobFilter, after: Spot | None, most: int
) -> Sequence[Spot]:
    seq = seq_of(wanted) if after is None else after[1]
    return fetch(connection, _SQL["numbers"], (0 if seq is None else seq, most))


def _due(
    connection: apsw.Connection,
    asked: tuple[JobFilter, ListOrder, int],
    after: Spot | None,
    most: int,
) -> Sequence[Spot]:
    wanted, order, now = asked
    back = is_backwards(order)
    place = after or _cursor(wanted) or ((_BEYOND, _BEYOND) if back else (now, _BEYOND))
    name = ("due" if wanted.queue is None else "due_of") + ("_last" if back else "")
    bound = now + 1 if back else _BEYOND
    queue = () if wanted.queue is None else (wanted.queue,)
    return fetch(connection, _SQL[name], (*place, bound, most, *queue))


def _started(
    connection: apsw.Connection,
    wanted: JobFilter,
    order: ListOrder,
    after: Spot | None,
    most: int,
) -> Sequence[Spot]:
    worker = wanted.worker
    ends = ("", _BEHIND_ALL_TEXT) if worker is None else (worker, worker)
    place, back = after or _cursor(wanted), is_backwards(order)
    spots = [(started or 0, seq) for started, seq in fetch(connection, _SQL["starts"], ends)]
    spots.sort(reverse=back)
    if place is not None:
        spots = [spot for spot in spots if (spot < place if back else spot > place)]
    return spots[:most]


def _cursor(wanted: JobFilter) -> Spot | None:
    place = place_of(wanted)
    return None if place is None else (place.at, place.seq)


# --- ended ------------------------------------------------------------------------------------


def _ended(
    connection: apsw.Connection,
    wanted: JobFilter,
    order: ListOrder,
    after: Spot | None,
    most: int,
) -> Sequence[Spot]:
    """The best of all lines. A line whose head is behind enough others has nothing to add."""
    back = is_backwards(order)
    since = -LAST_US if wanted.finished_from is None else to_us(wanted.finished_from)
    until = _BEYOND if wanted.finished_until is None else to_us(wanted.finished_until)
    place = after or _cursor(wanted) or ((until, 0) if back else (since, 0))
    read = (*place, since if back else until, most)
    spots: list[Spot] = []
    for head, name, line in _lines(connection, wanted, place, back=back):
        edge = spots[most - 1][0] if len(spots) >= most else None
        if head is not None and edge is not None and (head < edge if back else head > edge):
            break
        spots += fetch(connection, _SQL[name], (*read, *line))
        spots.sort(reverse=back)
        del spots[most:]
    return spots


_Line = tuple[int | None, str, tuple[int | str, ...]]
"""When its first one ended (None: not known), the statement that reads it, and its values."""


def _lines(
    connection: apsw.Connection, wanted: JobFilter, place: Spot, *, back: bool
) -> Sequence[_Line]:
    """The line with the best head first."""
    tail = "_last" if back else ""
    unknown: list[_Line] = []
    known: list[tuple[int, str, tuple[int | str, ...]]] = []
    for state in sorted(_states(wanted)):
        if wanted.queue is not None:
            unknown.append((None, f"ended{tail}", (CODES[state], wanted.queue)))
        elif state is State.FAILED:
            unknown.append((None, f"failed{tail}", ()))
        else:
            heads = fetch(connection, _SQL[f"heads{tail}"], (CODES[state], place[0]))
            known += [
                (head, f"ended{tail}", (CODES[state], queue))
                for queue, head in heads
                if head is not None
            ]
    known.sort(reverse=back)
    return [*unknown, *known]


def _states(wanted: JobFilter) -> set[State]:
    return {state for state in TERMINAL if Shown(state.value) in seen_of(wanted)}
