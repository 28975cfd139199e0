"""Rows in the order of a list."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from windlass.core.instant import to_us
from windlass.storage.looks import Cursor, JobFilter, ListOrder
from windlass.storage.memory.row import Row
from windlass.storage.sorting import Place, is_backwards, place_of, seq_of, time_of

__all__ = ["behind", "cursor_at", "in_order", "time_in"]


def time_in(row: Row, order: ListOrder) -> datetime:
    """What the list is ordered by."""
    times: Mapping[str, datetime | None] = {
        "enqueued": row.created_at,
        "due": row.due,
        "started": row.started_at,
        "finished": row.finished_at,
    }
    return times[time_of(order)] or row.created_at


def in_order(rows: Iterable[Row], order: ListOrder) -> Iterable[Row]:
    """Rows that come by number, as the list has them."""
    if time_of(order) == "enqueued":
        return rows
    return sorted(rows, key=lambda row: (time_in(row, order), row.seq), reverse=is_backwards(order))


def cursor_at(row: Row, order: ListOrder) -> Cursor:
    """Where the page behind this row begins."""
    return row.seq if time_of(order) == "enqueued" else _place(row, order).cursor()


def behind(rows: Iterable[Row], wanted: JobFilter, order: ListOrder) -> Iterator[Row]:
    """Those behind the cursor."""
    if time_of(order) == "enqueued":
        seq = seq_of(wanted)
        return (row for row in rows if seq is None or _follows(row.seq, seq, order))
    place = place_of(wanted)
    edge = None if place is None else (place.at, place.seq)
    return (
        row
        for row in rows
        if edge is None or _follows((to_us(time_in(row, order)), row.seq), edge, order)
    )


def _follows(one: object, edge: object, order: ListOrder) -> bool:
    return one < edge if is_backwards(order) else one > edge  # type: ignore[operator,no-any-return]


def _place(row: Row, order: ListOrder) -> Place:
    return Place(to_us(time_in(row, order)), str(row.seq))
