"""Which jobs a `JobFilter` means."""

from __future__ import annotations

from datetime import datetime

from windlass.core.sought import Texts
from windlass.core.state import shown_state
from windlass.storage.looks import sought_of
from windlass.storage.memory.row import Row
from windlass.storage.protocol import JobFilter

__all__ = ["is_candidate", "is_wanted"]


def is_candidate(row: Row, wanted: JobFilter, now: datetime) -> bool:
    """What other backends have an index for: those who fail here cost a look nothing."""
    return (
        (wanted.states is None or row.state in wanted.states)
        and (wanted.shown is None or shown(row, now) in wanted.shown)
        and (wanted.worker is None or row.worker == wanted.worker)
        and (wanted.key is None or _key(row) == wanted.key)
    )


def is_wanted(row: Row, wanted: JobFilter) -> bool:
    """Whether a candidate is all that is asked for."""
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
        and (sought is None or sought.shown_in(Texts(asked.payload, asked.tags, row.error)))
    )


def shown(row: Row, now: datetime) -> str:
    """The state as people see it."""
    return shown_state(row.state, due=row.due, now=now, failed_before=row.is_retrying())


def _key(row: Row) -> str | None:
    return None if row.asked.unique is None else row.asked.unique.key


def _lies_within(instant: datetime | None, since: datetime | None, until: datetime | None) -> bool:
    if instant is None:
        return since is None and until is None
    return (since is None or since <= instant) and (until is None or instant < until)


def _erred_so(row: Row, wanted: JobFilter) -> bool:
    if row.error is None:
        return wanted.error is None and wanted.frame is None
    return (wanted.error is None or row.error.kind == wanted.error) and (
        wanted.frame is None or row.frame == wanted.frame
    )
