"""Finding jobs: bounded reads, newest first or in the order of a time.

If an index narrows the search to few rows, they are gathered and sorted. Otherwise the table is
read backwards, a bounded number of rows in one read. Either way each row is checked against the
filter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import apsw
import msgspec

from windlass._core.job.job import JobId, JobRecord
from windlass._core.job.state import TERMINAL, Shown, State
from windlass._core.values.instants import LAST_US, instant_of, us_or_none
from windlass._core.values.text_search import SearchWords
from windlass._storage.protocol.lists.job_list import JobFilter, ListOrder, Page, sought_of
from windlass._storage.protocol.lists.list_order import ListPosition, order_of, seq_of
from windlass._storage.shared.filter_values import filter_values
from windlass._storage.shared.job_ids import known_id
from windlass._storage.shared.sql_files import load_sql
from windlass._storage.sqlite.admin.sort import FetchRowsAfter, RowPosition, sorted_rows_source
from windlass._storage.sqlite.io.rows import (
    CODES,
    Row,
    fetch,
    fetch_shown,
    job_of,
    seqs_text,
    texts_of,
    value_of,
)

__all__ = ["find"]

_SQL = load_sql("windlass._storage.sqlite.sql", "find.sql")
_WALK, _AMONG, _HOLDER = _SQL["walk"], _SQL["among"], _SQL["holder"]
_ROWS = load_sql("windlass._storage.sqlite.sql", "whole_jobs.sql")["rows"]
_READY, _SOLO, _IN_LANES = _SQL["ready"], _SQL["solo"], _SQL["in_lanes"]
_LATER, _OVERDUE, _RETRYING = _SQL["later"], _SQL["overdue"], _SQL["retrying"]
_RUNNING, _ENDED, _TEXTS = _SQL["running"], _SQL["ended"], _SQL["texts"]
_CREATED, _OF_FLOW, _OF_FLOW_OLDEST = _SQL["created"], _SQL["of_flow"], _SQL["of_flow_oldest"]

_FEW = 10_000
"""Up to this number of rows are gathered from the indexes; above it, the table is read."""
_LOOK = 20_000
"""Rows of one look."""
_LOOK_INSIDE, _READ_INSIDE = 2_000, 512 * 1024
"""Rows and bytes of one look that searches the payloads. Texts full of addresses and tokens take
half a second for each megabyte, and other readers wait for that long."""

_TOGETHER, _READ_TOGETHER = 200, 256 * 1024
"""Rows and bytes that are searched together."""

_NEWEST = 2**63 - 1
_BEHIND_ALL_TEXT = b""

_BITS: dict[Shown, int] = {
    Shown.SCHEDULED: 1 << 0,
    Shown.READY: 1 << 6,
    Shown.RETRYING: 1 << 7,
} | {Shown(state.value): 1 << code for state, code in CODES.items() if code}
"""As find.sql has them."""
_WAITING = _BITS[Shown.SCHEDULED] | _BITS[Shown.READY] | _BITS[Shown.RETRYING]
_ENDED_BITS = sum(_BITS[Shown(state.value)] for state in TERMINAL)
_ALL = sum(_BITS.values())

_Source = tuple[str, tuple[Any, ...]]
"""A statement that names rows, and its values but for the last: how many at most."""


class _FindStep(NamedTuple):
    """The result of one read."""

    found: list[int]
    before: int | None
    """The cursor of the next read; None: there is no more."""
    reached: int | None = None
    """How far back it went, if it gave up."""


def find(connection: apsw.Connection, wanted: JobFilter, limit: int, now: int) -> Page:
    """`AdminStore.find`. Several statements: on one snapshot."""
    mask = _mask(wanted)
    order = order_of(wanted)
    if not mask or limit < 1:
        return Page(())
    values = {**filter_values(wanted), "flow": _flow(wanted), "mask": mask, "now": now}
    if order is not ListOrder.NEWEST:
        return _in_order(connection, values, wanted, order, limit)
    few = None if wanted.flow is not None else _gather(connection, wanted, mask, now)
    if wanted.flow is not None:
        look = _walk_flow(connection, values, wanted, limit)
    elif few is not None:
        look = _look_among(connection, values, few, wanted, limit)
    elif wanted.key is None:
        look = _walk(connection, values, wanted, limit)
    else:
        look = _walk_for_key(connection, values, wanted, limit)
    jobs = _jobs(connection, look.found, now)
    return Page(jobs, look.before, None if look.reached is None else instant_of(look.reached))


def _jobs(connection: apsw.Connection, seqs: Sequence[int], now: int) -> list[JobRecord]:
    rows = fetch_shown(connection, _ROWS, (seqs_text(seqs), now))
    return sorted(map(job_of, rows), key=lambda job: job.seq, reverse=True)


def _in_order(
    connection: apsw.Connection,
    values: dict[str, Any],
    wanted: JobFilter,
    order: ListOrder,
    limit: int,
) -> Page:
    """Read along an index, chunk by chunk, until enough jobs are found or read."""
    numbered, now = order is ListOrder.OLDEST, values["now"]
    following = _following(connection, wanted, order, values)
    left = _LOOK if wanted.text is None else _LOOK_INSIDE
    size, found = limit + 1, list[int]()
    spot: RowPosition | None = None
    reached: int | None = None
    while True:
        spots = following(spot, size)
        seqs = [seq for _, seq in spots]
        look = _look_among(connection, values, seqs, wanted, limit - len(found))
        found += look.found
        if look.before is not None:
            spot = spots[seqs.index(look.before)]
            reached = None if look.reached is None else spot[0]
            break
        if len(spots) < size:
            spot = None
            break
        spot, left = spots[-1], left - len(spots)
        if left <= 0 or len(found) >= limit:
            reached = spot[0] if len(found) < limit else None
            break
        size = min(4 * max(size, 125), left)
    place = {seq: n for n, seq in enumerate(found)}
    jobs = sorted(_jobs(connection, found, now), key=lambda job: place[job.seq])
    if spot is None:
        return Page(jobs)
    further = spot[1] if numbered else ListPosition(spot[0], str(spot[1])).cursor()
    return Page(jobs, further, None if reached is None else instant_of(reached))


def _following(
    connection: apsw.Connection, wanted: JobFilter, order: ListOrder, values: dict[str, Any]
) -> FetchRowsAfter:
    """Return a source of the jobs in order; a few of them, counted by number, all at once."""
    if order is ListOrder.OLDEST and wanted.flow is not None:
        return partial(_oldest_of_flow, connection, wanted)
    if order is ListOrder.OLDEST:
        whole = msgspec.structs.replace(wanted, before=None)
        few = _gather(connection, whole, values["mask"], values["now"])
        if few is not None:
            after = seq_of(wanted) or 0
            rest = sorted(seq for seq in few if seq > after)
            created = fetch(connection, _CREATED, (seqs_text(rest),))
            return lambda spot, most: [one for one in created if spot is None or one[1] > spot[1]][
                :most
            ]
    return sorted_rows_source(connection, wanted, order, values["now"])


def _mask(wanted: JobFilter) -> int:
    """Return the wanted states as bits."""
    mask = _ALL
    if wanted.states is not None:
        mask &= _sum(
            _WAITING if state is State.WAITING else _BITS[Shown(state.value)]
            for state in wanted.states
        )
    if wanted.shown is not None:
        mask &= _sum(_BITS[shown] for shown in wanted.shown)
    if wanted.finished_from is not None or wanted.finished_until is not None:
        mask &= _ENDED_BITS
    return mask


def _sum(bits: Iterable[int]) -> int:
    total = 0
    for bit in bits:
        total |= bit
    return total


# --- what the indexes narrow down -------------------------------------------------------------


def _gather(
    connection: apsw.Connection, wanted: JobFilter, mask: int, now: int
) -> list[int] | None:
    """Return the rows that may match, newest first, if an index knows that they are few."""
    if mask == _ALL:
        return None
    found: set[int] = set()
    for sql, values in _sources(wanted, mask, now):
        room = _FEW - len(found)
        rows = fetch(connection, sql, (*values, room + 1))
        if len(rows) > room:
            return None
        found.update(seq for (seq,) in rows)
    seq = seq_of(wanted)
    before = _NEWEST if seq is None else seq
    return sorted((seq for seq in found if seq < before), reverse=True)


def _sources(wanted: JobFilter, mask: int, now: int) -> Iterator[_Source]:
    """Statements that together name every row with one of these bits."""
    queue = _range(wanted.queue)
    scheduled, ready = mask & _BITS[Shown.SCHEDULED], mask & _BITS[Shown.READY]
    if ready:
        yield from ((_READY, queue), (_SOLO, queue), (_IN_LANES, queue))
    if scheduled:
        yield _LATER, queue
    elif ready:
        yield _OVERDUE, (now,)
    if mask & _BITS[Shown.RETRYING] and not (scheduled and ready):
        yield _RETRYING, queue
    if mask & _BITS[Shown.RUNNING]:
        yield _RUNNING, _range(wanted.worker)
    since, until = us_or_none(wanted.finished_from), us_or_none(wanted.finished_until)
    for state in sorted(TERMINAL):
        if mask & _BITS[Shown(state.value)]:
            start = -LAST_US if since is None else since
            end = _NEWEST if until is None else until
            yield _ENDED, (CODES[state], wanted.queue, start, end)


def _range(text: str | None) -> tuple[str, str | bytes]:
    return ("", _BEHIND_ALL_TEXT) if text is None else (text, text)


# --- looking ----------------------------------------------------------------------------------


def _look_among(
    connection: apsw.Connection,
    values: dict[str, Any],
    seqs: Sequence[int],
    wanted: JobFilter,
    limit: int,
) -> _FindStep:
    rows = connection.execute(_AMONG, {**values, "seqs": seqs_text(seqs)})
    return _look(connection, rows, limit, wanted)


def _walk(
    connection: apsw.Connection,
    values: dict[str, Any],
    wanted: JobFilter,
    limit: int,
    leave_out: int | None = None,
) -> _FindStep:
    seq = seq_of(wanted)
    before = _NEWEST if seq is None else seq
    # One more than is looked at: whether there is one tells that the look has given up.
    most = (_LOOK if wanted.text is None else _LOOK_INSIDE) + 1
    rows = connection.execute(_WALK, {**values, "before": before, "look": most})
    return _look(connection, rows, limit, wanted, leave_out)


def _flow(wanted: JobFilter) -> bytes | None:
    return None if wanted.flow is None else known_id(JobId(wanted.flow))


def _walk_flow(
    connection: apsw.Connection, values: dict[str, Any], wanted: JobFilter, limit: int
) -> _FindStep:
    """Look at the jobs of a flow, which an index knows."""
    seq = seq_of(wanted)
    most = _LOOK if wanted.text is None else _LOOK_INSIDE
    before = _NEWEST if seq is None else seq
    rows = fetch(connection, _OF_FLOW, (values["flow"], before, most + 1))
    return _look_among(connection, values, [seq for (seq,) in rows], wanted, limit)


def _oldest_of_flow(
    connection: apsw.Connection, wanted: JobFilter, after: RowPosition | None, most: int
) -> Sequence[RowPosition]:
    seq = (seq_of(wanted) or 0) if after is None else after[1]
    rows = fetch(connection, _OF_FLOW_OLDEST, (_flow(wanted), seq, most))
    return fetch(connection, _CREATED, (seqs_text([seq for (seq,) in rows]),))


def _walk_for_key(
    connection: apsw.Connection, values: dict[str, Any], wanted: JobFilter, limit: int
) -> _FindStep:
    """Find the holder of a key, which is on the first page at any age, and on no other."""
    holder = value_of(connection, _HOLDER, (wanted.key, values["now"]))
    if holder is None:
        return _walk(connection, values, wanted, limit)
    if wanted.before is not None:
        return _walk(connection, values, wanted, limit, holder)
    found = _look_among(connection, values, [holder], wanted, 1).found
    room = limit - len(found)
    look = _walk(connection, values, wanted, max(room, 1), holder)
    if not room and look.found:  # there is no room for it: the next page begins with it
        return _FindStep(found, look.found[0] + 1)
    return look._replace(found=found + look.found)


def _look(
    connection: apsw.Connection,
    rows: apsw.Cursor,
    limit: int,
    wanted: JobFilter,
    leave_out: int | None = None,
) -> _FindStep:
    """Go through rows of ``walk`` or ``among`` until enough are found or looked at."""
    found: list[int] = []
    most, room = (_LOOK, None) if wanted.text is None else (_LOOK_INSIDE, _READ_INSIDE)
    seen = read = last = reached = 0
    try:
        for seq, created_at, size, matches in _judged(connection, rows, sought_of(wanted)):
            if seen == most or (room is not None and read > room):
                return _FindStep(found, last, reached if len(found) < limit else None)
            if matches and seq != leave_out:
                if len(found) == limit:
                    return _FindStep(found, found[-1])
                found.append(seq)
            seen, read = seen + 1, read + size
            last, reached = seq, created_at
    finally:
        rows.close()  # what is left unfinished keeps the write-ahead file growing
    return _FindStep(found, None)


def _judged(
    connection: apsw.Connection, rows: Iterable[Row], sought: SearchWords | None
) -> Iterable[Row]:
    """Return the same rows, of which those match that also show what is sought."""
    return rows if sought is None else _judged_together(connection, iter(rows), sought)


def _judged_together(
    connection: apsw.Connection, rows: Iterator[Row], sought: SearchWords
) -> Iterator[Row]:
    while some := _taken(rows):
        seqs = [seq for seq, _, _, matches in some if matches]
        texts = [texts_of(row) for row in fetch_shown(connection, _TEXTS, (seqs_text(seqs),))]
        shown = dict(zip(seqs, sought.shown_among(texts), strict=True))
        yield from ((*row[:3], shown.get(row[0], False)) for row in some)


def _taken(rows: Iterator[Row]) -> list[Row]:
    """Return as many rows as are judged together."""
    some: list[Row] = []
    size = 0
    for row in islice(rows, _TOGETHER):
        some.append(row)
        size += row[2]
        if size > _READ_TOGETHER:
            break
    return some
