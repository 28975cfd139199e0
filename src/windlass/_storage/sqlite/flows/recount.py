"""Counting the members of flows again."""

from __future__ import annotations

import apsw

from windlass._storage.protocol.flows import Recounted
from windlass._storage.shared.sql_files import load_sql
from windlass._storage.sqlite.flows.parts import PartChanges
from windlass._storage.sqlite.io.rows import fetch

__all__ = ["recount"]

_SQL = load_sql("windlass._storage.sqlite.sql", "flows.sql")
_RECOUNTED, _COUNTED = _SQL["recounted"], _SQL["counted"]

_NAMES = (
    "succeeded", "failed", "cancelled", "stopped", "skipped", "open", "blocked", "total",
)  # fmt: skip
"""The counts, in the order of ``counted`` in flows.sql."""


def recount(
    connection: apsw.Connection, now: int, *, after: int, limit: int, repair: bool
) -> Recounted:
    """`FlowStore.recount` at the instant ``now``."""
    flows = fetch(connection, _RECOUNTED, (after, limit))
    wrong: list[str] = []
    for flow, uid in flows:
        wrong += _recount(connection, now, flow, uid, repair=repair)
    return Recounted(wrong, flows[-1][0] if len(flows) == limit else None)


def _recount(
    connection: apsw.Connection, now: int, flow: int, uid: str, *, repair: bool
) -> list[str]:
    wrong: list[str] = []
    changes = PartChanges(connection, now)
    parts = fetch(connection, _COUNTED, (flow,))
    for part, name, *counts in parts:
        stored, counted = counts[: len(_NAMES)], map(int, counts[len(_NAMES) :])
        for which, is_, are in zip(_NAMES, stored, counted, strict=True):
            if is_ != are:
                wrong.append(f"flow {uid}, {name}: {which} is {is_}, and {are} jobs are")
                changes.add(part, **{which: are - is_})
    if repair:
        changes.touch(row[0] for row in parts)
        changes.store()
    return wrong
