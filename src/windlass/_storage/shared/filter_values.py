"""A `JobFilter` as plain values, for statements and scripts that compare them with a job's."""

from __future__ import annotations

from typing import Any

from windlass._core.values.instants import us_or_none
from windlass._storage.protocol.lists.job_list import JobFilter

__all__ = ["filter_values"]


def filter_values(wanted: JobFilter) -> dict[str, Any]:
    """Name what every wanted job has; None: anything. States, order and text are not among it."""
    return {
        "queue": wanted.queue,
        "task": wanted.task,
        "tenant": wanted.tenant,
        "principal": wanted.principal,
        "tag": wanted.tag,
        "key": wanted.key,
        "correlation_id": wanted.correlation_id,
        "parent": wanted.parent,
        "worker": wanted.worker,
        "error": wanted.error,
        "frame": wanted.frame,
        "created_from": us_or_none(wanted.created_from),
        "created_until": us_or_none(wanted.created_until),
        "finished_from": us_or_none(wanted.finished_from),
        "finished_until": us_or_none(wanted.finished_until),
    }
