"""Gauges: stored with a heartbeat, read, and merged by the hour."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import apsw

from windlass._core.stats.gauges import Gauge, GaugeRow, Readings, add_gauges, first_gauges
from windlass._core.values.instants import instant_of
from windlass._storage.shared.sql_files import load_sql
from windlass._storage.shared.stored_text import gauges_of, gauges_text
from windlass._storage.sqlite.io.rows import fetch, value_of

__all__ = ["keep_readings", "merge_gauge_hours", "read_gauges"]

_SQL = load_sql("windlass._storage.sqlite.sql", "gauges.sql")
_PUT, _OF_SOURCE, _OF_ALL, _ONE = _SQL["put"], _SQL["of_source"], _SQL["of_all"], _SQL["one"]
_UNMERGED, _REMOVE = _SQL["unmerged"], _SQL["remove"]

_MINUTE = 60_000_000
_HOUR = 60 * _MINUTE


def read_gauges(
    connection: apsw.Connection, since: int, until: int, source: str | None
) -> list[GaugeRow]:
    """Return rows of some minutes, of one source or of all."""
    if source is None:
        rows = fetch(connection, _OF_ALL, (since, until))
    else:
        rows = fetch(connection, _OF_SOURCE, (since, until, source))
    return [GaugeRow(instant_of(minute), name, gauges_of(text)) for minute, name, text in rows]


def keep_readings(connection: apsw.Connection, readings: Readings, now: int) -> None:
    """Store what a worker has measured, in place of earlier values of this minute."""
    minute = now - now % _MINUTE
    for source, values in readings.items():
        connection.execute(_PUT, (minute, source, gauges_text(first_gauges(values))))


def merge_gauge_hours(connection: apsw.Connection, before: int, limit: int) -> int:
    """Add minutes of whole hours that ended before then to the first minute of their hour. Return
    the number of rows saved.
    """
    rows = fetch(connection, _UNMERGED, (before - before % _HOUR, limit))
    hours: defaultdict[tuple[int, str], list[Mapping[str, Gauge]]] = defaultdict(list)
    for minute, source, text in rows:
        hours[minute - minute % _HOUR, source].append(gauges_of(text))
    connection.executemany(_REMOVE, [row[:2] for row in rows])
    saved = len(rows)
    for hour, parts in hours.items():
        merged = value_of(connection, _ONE, hour)
        if merged is None:
            saved -= 1
        else:
            parts.append(gauges_of(merged))
        connection.execute(_PUT, (*hour, gauges_text(add_gauges(parts))))
    return saved
