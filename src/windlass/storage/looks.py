"""What people ask the stores for, and how the answers look. Part of the contract: `protocol`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar, TypeVar, overload

import msgspec

from windlass.core.breaker import BreakerState
from windlass.core.job import Job, JobId
from windlass.core.queue import QueueSettings
from windlass.core.sought import Sought
from windlass.core.state import Shown, State
from windlass.errors import InvalidArgument

__all__ = [
    "Cursor",
    "ErrorGroup",
    "ErrorLook",
    "JobFilter",
    "LimitState",
    "ListOrder",
    "Named",
    "Page",
    "QueueCounts",
    "QueueRecord",
    "sought_of",
]


Word = TypeVar("Word", bound=StrEnum)
Cursor = int | str
"""Where the next page begins: a job's ``seq`` in the order of enqueueing, else a text."""


class ListOrder(StrEnum):
    """What a list is ordered by; the minus sign puts the latest first.

    `storage.sorting` says which order is possible with which states.
    """

    NEWEST = "-enqueued"
    OLDEST = "enqueued"
    DUE = "due"
    DUE_LAST = "-due"
    STARTED = "started"
    STARTED_LAST = "-started"
    FINISHED = "finished"
    FINISHED_LAST = "-finished"


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs to list; what is left out does not narrow. Ranges are half open: [from, until).

    States may be given as words: ``states=("failed",)``.
    """

    states: Sequence[State] | None = None
    shown: Sequence[Shown] | None = None
    """As people see states: see `Shown`."""
    queue: str | None = None
    task: str | None = None
    tenant: str | None = None
    principal: str | None = None
    tag: str | None = None
    """One of its tags."""
    key: str | None = None
    """Its unique key, as asked for."""
    correlation_id: str | None = None
    parent: JobId | None = None
    """The job that enqueued it."""
    worker: str | None = None
    """Who runs it, or ran it last."""
    error: str | None = None
    """The kind of its last error: the exception's class."""
    frame: str | None = None
    """Where its last error was raised: `core.fault.frame_of`."""
    created_from: datetime | None = None
    created_until: datetime | None = None
    finished_from: datetime | None = None
    finished_until: datetime | None = None
    text: str | None = None
    """Stands in its payload, the kind or the text of its last error, as far as people may see
    them: `core.sought`. A and a are the same, as are the other 25, and no further letters. Neither
    what is found nor where a look ends depends on what is hidden."""
    as_shown: bool = False
    """Whether a key, tag, principal or correlation id finds only jobs that show it to people: one
    that is made of a secret argument is hidden, and must not be found by guessing."""
    before: Cursor | None = None
    """`Page.next` of the page before this one. A number is a job's ``seq``."""
    order: ListOrder | None = None
    """None: for a store the newest first, for ``app.admin`` what suits the states: see
    `storage.sorting.usual_order`."""

    def __post_init__(self) -> None:
        """Take words for states; InvalidArgument for one that is none."""
        for name, kind in (("states", State), ("shown", Shown)):
            given = getattr(self, name)
            if given is not None and (isinstance(given, str) or not _are(given, kind)):
                msgspec.structs.force_setattr(self, name, _words(given, kind, name))
        order: object = self.order
        if isinstance(order, str) and not isinstance(order, ListOrder):
            msgspec.structs.force_setattr(self, "order", _words(order, ListOrder, "order")[0])


def _are(given: Iterable[object], kind: type[StrEnum]) -> bool:
    return all(isinstance(one, kind) for one in given)


def _words(given: str | Iterable[str], kind: type[Word], field: str) -> list[Word]:
    words = [given] if isinstance(given, str) else list(given)
    try:
        return [kind(word) for word in words]
    except ValueError:
        known = ", ".join(kind)
        message = f"JobFilter({field}=…) takes one or more of {known}; got {words!r}."
        if field == "states" and set(words) <= {*Shown, *State}:
            message += " For what people see of waiting jobs use shown=… instead."
        raise InvalidArgument(message) from None


def sought_of(wanted: JobFilter) -> Sought | None:
    """What is to be compared with what a job shows; None: nothing that a job might hide."""
    exact = (wanted.key, wanted.tag, wanted.principal, wanted.correlation_id)
    words = [word for word in exact if word is not None] if wanted.as_shown else []
    return Sought(wanted.text, words) if words or wanted.text is not None else None


class Page(Sequence[Job]):
    """Some of the matching jobs, in their order, and where to go on."""

    __slots__ = ("_jobs", "next", "reached")

    def __init__(
        self, jobs: Iterable[Job], before: Cursor | None = None, reached: datetime | None = None
    ) -> None:
        self._jobs = tuple(jobs)
        self.next: Cursor | None = before
        """``before`` of the next page; None: nothing further matches."""
        self.reached: datetime | None = reached
        """How far this look went, if it gave up before it had found enough: an instant of what the
        list is ordered by."""

    @overload
    def __getitem__(self, index: int) -> Job: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Job]: ...
    def __getitem__(self, index: Any) -> Any:
        return self._jobs[index]

    def __len__(self) -> int:
        return len(self._jobs)

    def __eq__(self, other: object) -> bool:
        """As the sequence of its jobs."""
        return isinstance(other, Sequence) and self._jobs == tuple(other)

    # Not hashable, like a list: equal ones may differ in what comes next.
    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Page({list(self._jobs)!r}, next={self.next!r}, reached={self.reached!r})"


class ErrorGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Failed jobs that ended by the same exception at the same place."""

    kind: str
    frame: str
    """`core.fault.frame_of`; "" where the error has no traceback."""
    count: int
    first: datetime
    """When the first of them failed …"""
    last: datetime
    """… and the last."""
    job: JobId
    """The last one."""
    text: str
    """Its error's message, at most 500 characters."""
    tasks: Sequence[str]
    """By name."""
    queues: Sequence[str]


class ErrorLook(msgspec.Struct, frozen=True):
    """The groups among the failed jobs that were looked at."""

    groups: Sequence[ErrorGroup]
    """The most recent first."""
    complete: bool
    """False: there are more failed jobs than one look takes; the oldest are not counted."""


class Named(msgspec.Struct, frozen=True):
    """Ids that look like the one asked for, among those that one call has met."""

    ids: Sequence[JobId]
    looked: int
    """How many ids were met."""
    after: str | None
    """For the next call; None: there are no more."""


class QueueCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs of a queue are where. ``scheduled``: due strictly after now."""

    queue: str
    ready: int = 0
    scheduled: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    discarded: int = 0
    retrying: int = 0
    """Of the ready and scheduled ones, those that have spent an attempt since they were enqueued
    or requeued: ``attempt > max_attempts - budget``."""
    oldest_due: datetime | None = None
    """Since when the one that has been ready for longest waits; None: none is ready."""
    paused: bool = False
    cap: int | None = None
    """A number that equals it means: so many or more."""


class QueueRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a queue beyond its jobs."""

    queue: str
    settings: QueueSettings = QueueSettings()
    paused: bool = False
    cool_until: datetime | None = None
    """Nothing of it starts before."""
    cool_downs: int = 0
    """In a row: what the next one's length goes by."""


class LimitState(msgspec.Struct, frozen=True, kw_only=True):
    """One budget (limit and key) as it is now."""

    name: str
    key: str
    running: int
    """Claims that count against it."""
    spent_until: datetime | None = None
    """Rate: when the bucket is full again."""
    breaker: BreakerState | None = None
    """For the gate of a breaker."""
    parked: int = 0
    """Lanes that wait for it; 0 where the backend parks none."""
