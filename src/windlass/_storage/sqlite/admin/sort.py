"""Jobs in the order of a time: which are next, by the indexes that have it.

Ended jobs stand in the index by state, queue and time. Where a list is about all queues, the first
of each queue is looked up, and only queues whose first one belongs to the page are read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import apsw

from windlass._core.job.state import TERMINAL, Shown, State
from windlass._core.values.instants import LAST_US, to_us
from windlass._storage.protocol.lists.job_list import JobFilter, ListOrder
from windlass._storage.protocol.lists.list_order import (
    is_descending,
    position_of,
    seq_of,
    sort_field_of,
    visible_states_of,
)
from windlass._storage.shared.sql_files import load_sql
from windlass._storage.sqlite.io.rows import CODES, fetch

__all__ = ["FetchRowsAfter", "RowPosition", "sorted_rows_source"]

_SQL = load_sql("windlass._storage.sqlite.sql", "sort.sql")
_BEYOND = 2**63 - 1
_BEHIND_ALL_TEXT = b""

RowPosition = tuple[int, int]
"""An instant and the number of a job: its place in the list."""
FetchRowsAfter = Callable[[RowPosition | None, int], Sequence[RowPosition]]
"""The spots after one (None: after the cursor), at most this number."""


def sorted_rows_source(
    connection: apsw.Connection, wanted: JobFilter, order: ListOrder, now: int
) -> FetchRowsAfter:
    """Return a source of the wanted jobs in order, and others among them."""
    match sort_field_of(order):
        case "due":
            return partial(_due, connection, (wanted, order, now))
        case "started":
            return partial(_started, connection, wanted, order)
        case "finished":
            return partial(_ended, connection, wanted, order)
        case _:
            return partial(_numbered, connection, wanted)


def _numbered(
    connection: apsw.Connection, wanted: JobFilter, after: RowPosition | None, most: int
) -> Sequence[RowPosition]:
    seq = seq_of(wanted) if after is None else after[1]
    return fetch(connection, _SQL["numbers"], (0 if seq is None else seq, most))


def _due(
    connection: apsw.Connection,
    asked: tuple[JobFilter, ListOrder, int],
    after: RowPosition | None,
    most: int,
) -> Sequence[RowPosition]:
    wanted, order, now = asked
    back = is_descending(order)
    place = after or _cursor(wanted) or ((_BEYOND, _BEYOND) if back else (now, _BEYOND))
    name = ("due" if wanted.queue is None else "due_of") + ("_last" if back else "")
    bound = now + 1 if back else _BEYOND
    queue = () if wanted.queue is None else (wanted.queue,)
    return fetch(connection, _SQL[name], (*place, bound, most, *queue))


def _started(
    connection: apsw.Connection,
    wanted: JobFilter,
    order: ListOrder,
    after: RowPosition | None,
    most: int,
) -> Sequence[RowPosition]:
    worker = wanted.worker
    ends = ("", _BEHIND_ALL_TEXT) if worker is None else (worker, worker)
    place, back = after or _cursor(wanted), is_descending(order)
    spots = [(started or 0, seq) for started, seq in fetch(connection, _SQL["starts"], ends)]
    spots.sort(reverse=back)
    if place is not None:
        spots = [spot for spot in spots if (spot < place if back else spot > place)]
    return spots[:most]


def _cursor(wanted: JobFilter) -> RowPosition | None:
    place = position_of(wanted)
    return None if place is None else (place.at, place.seq)


# --- ended ------------------------------------------------------------------------------------


def _ended(
    connection: apsw.Connection,
    wanted: JobFilter,
    order: ListOrder,
    after: RowPosition | None,
    most: int,
) -> Sequence[RowPosition]:
    """Return the best of all lines. A line whose head is behind enough others has
    nothing to add.
    """
    back = is_descending(order)
    since = -LAST_US if wanted.finished_from is None else to_us(wanted.finished_from)
    until = _BEYOND if wanted.finished_until is None else to_us(wanted.finished_until)
    place = after or _cursor(wanted) or ((until, 0) if back else (since, 0))
    read = (*place, since if back else until, most)
    spots: list[RowPosition] = []
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
    connection: apsw.Connection, wanted: JobFilter, place: RowPosition, *, back: bool
) -> Sequence[_Line]:
    """Return the line with the best head first."""
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
    return {state for state in TERMINAL if Shown(state.value) in visible_states_of(wanted)}
