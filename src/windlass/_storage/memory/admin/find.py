"""Which jobs a `JobFilter` means."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from windlass._core.job.state import Shown, shown_state
from windlass._core.values.instants import to_us
from windlass._core.values.text_search import SearchTexts
from windlass._storage.memory.io.rows import JobRow
from windlass._storage.protocol.lists.job_list import Cursor, JobFilter, ListOrder, sought_of
from windlass._storage.protocol.lists.list_order import (
    ListPosition,
    is_descending,
    position_of,
    seq_of,
    sort_field_of,
)

__all__ = [
    "cursor_after",
    "is_candidate",
    "is_wanted",
    "rows_after",
    "sort_rows",
    "sort_time_of_row",
]


def sort_time_of_row(row: JobRow, order: ListOrder) -> datetime:
    """Return the value that the list is ordered by."""
    times: Mapping[str, datetime | None] = {
        "enqueued": row.created_at,
        "due": row.due,
        "started": row.started_at,
        "finished": row.finished_at,
    }
    return times[sort_field_of(order)] or row.created_at


def sort_rows(rows: Iterable[JobRow], order: ListOrder) -> Iterable[JobRow]:
    """Return rows that come by number in the order of the list."""
    if sort_field_of(order) == "enqueued":
        return rows
    return sorted(
        rows, key=lambda row: (sort_time_of_row(row, order), row.seq), reverse=is_descending(order)
    )


def cursor_after(row: JobRow, order: ListOrder) -> Cursor:
    """Return where the page behind this row begins."""
    return row.seq if sort_field_of(order) == "enqueued" else _place(row, order).cursor()


def rows_after(rows: Iterable[JobRow], wanted: JobFilter, order: ListOrder) -> Iterator[JobRow]:
    """Return those behind the cursor."""
    if sort_field_of(order) == "enqueued":
        seq = seq_of(wanted)
        return (row for row in rows if seq is None or _follows(row.seq, seq, order))
    place = position_of(wanted)
    edge = None if place is None else (place.at, place.seq)
    return (
        row
        for row in rows
        if edge is None or _follows((to_us(sort_time_of_row(row, order)), row.seq), edge, order)
    )


def _follows(one: object, edge: object, order: ListOrder) -> bool:
    return one < edge if is_descending(order) else one > edge  # type: ignore[operator,no-any-return]


def _place(row: JobRow, order: ListOrder) -> ListPosition:
    return ListPosition(to_us(sort_time_of_row(row, order)), str(row.seq))


def is_candidate(row: JobRow, wanted: JobFilter, now: datetime) -> bool:
    """Check the conditions for which other backends have an index: rows that fail here cost no
    read.
    """
    return (
        (wanted.states is None or row.state in wanted.states)
        and (wanted.shown is None or row_display_state(row, now) in wanted.shown)
        and (wanted.worker is None or row.worker == wanted.worker)
        and (wanted.key is None or _key(row) == wanted.key)
        and (wanted.flow is None or (row.flow is not None and row.flow.flow == wanted.flow))
    )


def is_wanted(row: JobRow, wanted: JobFilter) -> bool:
    """Return whether a candidate is all that is asked for."""
    asked, sought = row.asked, sought_of(wanted)
    return (
        (wanted.queue is None or asked.queue == wanted.queue)
        and (wanted.task is None or asked.task == wanted.task)
        and (wanted.tenant is None or asked.tenant == wanted.tenant)
        and (wanted.principal is None or asked.principal == wanted.principal)
        and (wanted.tag is None or wanted.tag in asked.tags)
        and (wanted.correlation_id is None or asked.correlation_id == wanted.correlation_id)
        and (wanted.parent is None or asked.parent == wanted.parent)
        and _lies_within(row.created_at, wanted.created_from, wanted.created_until)
        and _lies_within(row.finished_at, wanted.finished_from, wanted.finished_until)
        and _erred_so(row, wanted)
        and (sought is None or sought.shown_in(SearchTexts(asked.payload, asked.tags, row.error)))
    )


def row_display_state(row: JobRow, now: datetime) -> str:
    """Return the state as lists name it: a blocked job is a scheduled one."""
    if row.blocked:
        return Shown.SCHEDULED
    return shown_state(row.state, due=row.due, now=now, failed_before=row.is_retrying())


def _key(row: JobRow) -> str | None:
    return None if row.asked.unique is None else row.asked.unique.key


def _lies_within(instant: datetime | None, since: datetime | None, until: datetime | None) -> bool:
    if instant is None:
        return since is None and until is None
    return (since is None or since <= instant) and (until is None or instant < until)


def _erred_so(row: JobRow, wanted: JobFilter) -> bool:
    if row.error is None:
        return wanted.error is None and wanted.frame is None
    return (wanted.error is None or row.error.kind == wanted.error) and (
        wanted.frame is None or row.frame == wanted.frame
    )
