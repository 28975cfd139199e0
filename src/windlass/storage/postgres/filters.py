"""Which jobs people ask for, as arguments of a statement."""

from __future__ import annotations

from typing import Any

import msgspec

from windlass.storage.looks import JobFilter
from windlass.storage.postgres.records import CODES
from windlass.storage.postgres.rows import stored_text

__all__ = ["filter_args"]


def filter_args(wanted: JobFilter) -> tuple[Any, ...]:
    """The fields of ``job_filter``, in their order; None does not narrow."""
    states, shown = wanted.states, wanted.shown
    return (
        None if states is None else [CODES[state] for state in states],
        None if shown is None else [str(one) for one in shown],
        wanted.queue,
        wanted.task,
        wanted.tenant,
        wanted.principal,
        None if wanted.tag is None else msgspec.json.encode(wanted.tag).decode(),
        wanted.key,
        wanted.correlation_id,
        wanted.parent,
        wanted.worker,
        None if wanted.error is None else stored_text(wanted.error),
        wanted.frame,
        wanted.created_from,
        wanted.created_until,
        wanted.finished_from,
        wanted.finished_until,
        None,  # words: compared with what a job shows of itself, in Python
    )
