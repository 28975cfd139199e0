"""The records of flows: what is asked for, and what is stored."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal

import msgspec

from windlass._core.job.job import FlowId, NewJob

__all__ = [
    "RETRIED_AT_ONCE",
    "SEALED_FOR",
    "SEALED_KEEPS_KEY",
    "AddedFlow",
    "Addition",
    "Edge",
    "FlowRecord",
    "FlowState",
    "NewFlow",
    "NewPart",
    "PartKind",
    "PartRecord",
    "When",
]

When = Literal["succeeded", "failed"]
"""On which end of what it waits for a part runs. To run on either, all its edges are lenient."""


SEALED_FOR = timedelta(hours=1)
"""A flow that is stored in several writes is cancelled if the next one does not come in time."""


SEALED_KEEPS_KEY = timedelta(minutes=1)
"""After this time without the next write, another flow may take the key of such a flow."""


RETRIED_AT_ONCE = 500
"""Members of a flow that the write of a retry looks at. `FlowStore.settle` does the rest."""


class FlowState(StrEnum):
    """The state of a flow."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class PartKind(StrEnum):
    """The purpose of a part."""

    JOBS = "jobs"
    """Its jobs are members of the flow: the flow ends after them."""
    JOIN = "join"
    """It has no jobs. What waits for a group of parts waits for its join."""
    END = "end"
    """The join that every member part leads to. Each flow has one; its end is the flow's end."""
    CALLBACK = "callback"
    """Its jobs wait for the end. They do not count for the flow."""
    ADDED = "added"
    """The join of a flow that was added to this one. Its end counts for another part."""


class Edge(msgspec.Struct, frozen=True):
    """One part waits for another."""

    part: int
    """The number of the other part."""
    strict: bool = True
    """A failure there counts here. False: only its end does."""


class AddedFlow(msgspec.Struct, frozen=True):
    """A flow that was added to a running one, as its join keeps it."""

    id: FlowId
    """The id that it was drawn with. Its jobs name its parts by this id and their first numbers."""
    first: int
    """The number of its first part in the running flow. The others follow in order."""
    counts_for: int
    """The part that is not over before the added flow is: that of the job that added it, or the
    end of the running flow."""


class NewPart(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that stand at the same place of the graph: a single one, or all of a map."""

    name: str
    kind: PartKind = PartKind.JOBS
    task: str = ""
    when: When = "succeeded"
    after: tuple[Edge, ...] = ()
    """The parts that it waits for, each once."""
    added: AddedFlow | None = None
    """Of the join of an added flow."""


class NewFlow(msgspec.Struct, frozen=True, kw_only=True):
    """A flow as it is asked for. A part's number is its place in ``parts``."""

    id: FlowId
    name: str
    parts: tuple[NewPart, ...]
    jobs: Sequence[tuple[int, NewJob]]
    """Each with the number of its part."""
    key: str | None = None
    """One running flow per key."""
    expires: timedelta | None = None
    """Members that have not started this long after the flow's start are cancelled. A flow that
    runs again after its end has this time again."""
    tenant: str | None = None
    after: tuple[Edge, ...] = ()
    """Of a flow that is added from outside: the parts of the running flow that its first parts wait
    for. These are all that wait for nothing of their own flow."""
    sealed: bool = False
    """More jobs follow (`FlowStore.extend`). Until the last of them is stored, or the flow is
    cancelled, no part is settled, or tells anything to others.
    """

    @property
    def new_jobs(self) -> list[NewJob]:
        """Return its jobs."""
        return [job for _, job in self.jobs]


Addition = NewJob | NewFlow
"""A job or a flow that a run adds to its success."""


class PartRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A part as it is stored, with the counts of its jobs."""

    number: int
    name: str
    kind: PartKind
    task: str
    when: When
    after: tuple[Edge, ...]
    total: int
    blocked: int
    """They wait for other parts."""
    open: int
    """Not ended, the blocked ones included."""
    succeeded: int
    failed: int
    cancelled: int
    """By people, or past their expiry."""
    stopped: int
    """Cancelled, because something that they waited for failed."""
    skipped: int
    """Not needed."""
    added: AddedFlow | None = None
    """Of the join of an added flow."""


class FlowRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A flow as it is stored, without its parts."""

    id: FlowId
    number: int
    """Rises with every flow: the cursor of the next page."""
    name: str
    state: FlowState
    created_at: datetime
    ended_at: datetime | None = None
    key: str | None = None
    cancel_requested: bool = False
    sealed: bool = False
    """Not all of its jobs are stored: nothing has started."""
    expires_at: datetime | None = None
    expires: timedelta | None = None
    """The time that it has from its start, or from when it runs again."""
    tenant: str | None = None
    total: int = 0
    open: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    stopped: int = 0
    skipped: int = 0
