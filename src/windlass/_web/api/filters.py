"""Which jobs are meant: the filters of the admin, in a query or in a body."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from windlass._core.job.job import FlowId, JobId
from windlass._core.job.state import Shown
from windlass._storage.protocol.lists.job_list import JobFilter, ListOrder
from windlass._web.security.cost_limits import ROWS
from windlass.errors import InvalidArgument

__all__ = ["Cursor", "Instant", "JobQuery", "Matching", "Size", "filter_of"]

Instant = Annotated[datetime, Meta(tz=True, description="RFC 3339, with an offset.")]
_DEEPEST = 2**53
Cursor = Annotated[int, Meta(ge=0, le=_DEEPEST, description="`next` of the page before.")]
JobCursor = Annotated[
    str,
    Meta(
        pattern=r"^([0-9]{1,16}|-?[0-9]{1,18}\.[0-9a-f]{1,100})$",
        description="`next` of the page before, in the same order.",
    ),
]
Order = Annotated[
    ListOrder,
    Meta(
        description="Sort order. A minus sign puts the latest first. `enqueued` works with any "
        "state, `due` with `scheduled`, `started` with `running`, `finished` with `succeeded`, "
        "`failed`, `cancelled` and `discarded`. Default: ended jobs by `-finished`, running jobs "
        "by `-started`, scheduled jobs by `due`, others by `-enqueued`."
    ),
]
Size = Annotated[int, Meta(ge=1, le=ROWS, description=f"Rows of the page, at most {ROWS}.")]
Word = Literal[
    "waiting",
    "scheduled",
    "ready",
    "retrying",
    "running",
    "succeeded",
    "failed",
    "cancelled",
    "discarded",
]
_WAITING = (Shown.SCHEDULED, Shown.READY, Shown.RETRYING)


class Matching(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A filter for jobs. Fields combine. Ranges include `from` and exclude `until`."""

    state: Annotated[
        tuple[Word, ...],
        Meta(description="Any of these. `waiting` means scheduled, ready or retrying."),
    ] = ()
    queue: str | None = None
    task: str | None = None
    tag: Annotated[str | None, Meta(description="One of its tags.")] = None
    tenant: str | None = None
    principal: str | None = None
    key: Annotated[
        str | None,
        Meta(description="Unique key with its task: `TASK/KEY`, or `/KEY` for a global key."),
    ] = None
    correlation_id: str | None = None
    parent: Annotated[str | None, Meta(description="The job that enqueued it.")] = None
    flow: Annotated[str | None, Meta(description="The flow that it is a member of.")] = None
    worker: Annotated[str | None, Meta(description="The worker of its last run.")] = None
    error: Annotated[str | None, Meta(description="The class of its last error.")] = None
    frame: Annotated[str | None, Meta(description="The place where that was raised.")] = None
    created_from: Instant | None = None
    created_until: Instant | None = None
    finished_from: Instant | None = None
    finished_until: Instant | None = None
    text: (
        Annotated[str, Meta(description="Text in its arguments or last error.", min_length=1)]
        | None
    ) = None


class JobQuery(Matching, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One page of them, in an order."""

    order: Order | None = None
    before: JobCursor | None = None
    size: Size = 50


def filter_of(asked: Matching) -> JobFilter:
    """Return the filter as the admin takes it."""
    shown: list[Shown] = []
    for word in asked.state:
        shown += _WAITING if word == "waiting" else (Shown(word),)
    return JobFilter(
        shown=list(dict.fromkeys(shown)) or None,
        queue=asked.queue,
        task=asked.task,
        tag=asked.tag,
        tenant=asked.tenant,
        principal=asked.principal,
        key=asked.key,
        correlation_id=asked.correlation_id,
        parent=None if asked.parent is None else JobId(asked.parent),
        flow=None if asked.flow is None else FlowId(asked.flow),
        worker=asked.worker,
        error=asked.error,
        frame=asked.frame,
        created_from=asked.created_from,
        created_until=asked.created_until,
        finished_from=asked.finished_from,
        finished_until=asked.finished_until,
        text=asked.text,
        before=_cursor(asked.before) if isinstance(asked, JobQuery) else None,
        order=asked.order if isinstance(asked, JobQuery) else None,
    )


def _cursor(before: str | None) -> int | str | None:
    if before is None or not before.isdigit():
        return before
    if (number := int(before)) > _DEEPEST:
        message = (
            f"before must be the next of a page of this list, got {before}, which is no job's seq"
        )
        raise InvalidArgument(message)
    return number
