"""Lists of jobs: the filter, the order and the page. `AdminStore.find` answers them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, ClassVar, TypeVar, overload

import msgspec

from windlass._core.job.job import FlowId, JobId, JobRecord
from windlass._core.job.state import Shown, State
from windlass._core.values.text_search import SearchWords
from windlass.errors import InvalidArgument

__all__ = ["Cursor", "JobFilter", "ListOrder", "Page", "sought_of"]

Word = TypeVar("Word", bound=StrEnum)


Cursor = int | str
"""The start of the next page: a job's ``seq`` in the order of enqueueing, else a text."""


class ListOrder(StrEnum):
    """The order of a list; the minus sign puts the latest first.

    `windlass._storage.protocol.lists.list_order` says which order is possible with which states.
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
    """Its unique key as it is stored: ``task/key``, or ``/key`` if its scope is global."""
    correlation_id: str | None = None
    parent: JobId | None = None
    """The job that enqueued it."""
    flow: FlowId | None = None
    """The flow that it is a member of."""
    worker: str | None = None
    """The worker that runs it, or ran it last."""
    error: str | None = None
    """The kind of its last error: the exception's class."""
    frame: str | None = None
    """The place where its last error was raised: `windlass._core.job.error_origin.frame_of`."""
    created_from: datetime | None = None
    created_until: datetime | None = None
    finished_from: datetime | None = None
    finished_until: datetime | None = None
    text: str | None = None
    """Text in its payload, or in the kind or message of its last error, as far as people may see
    them: `windlass._core.values.text_search`. Case is ignored for the letters A to Z only. Hidden
    values change neither the matches nor the end of a page.
    """
    as_shown: bool = False
    """Whether a key, tag, principal or correlation id finds only jobs that show it to people. A
    value made of a secret argument is hidden, and must not be found by guessing.
    """
    before: Cursor | None = None
    """`Page.next` of the page before this one. A number is a job's ``seq``."""
    order: ListOrder | None = None
    """None: for a store the newest first, for ``app.admin`` what suits the states: see
    `windlass._storage.protocol.lists.list_order.default_order`."""

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


def sought_of(wanted: JobFilter) -> SearchWords | None:
    """Return the words to compare with the visible parts of a job; None: no word that a job might
    hide.
    """
    exact = (wanted.key, wanted.tag, wanted.principal, wanted.correlation_id)
    words = [word for word in exact if word is not None] if wanted.as_shown else []
    return SearchWords(wanted.text, words) if words or wanted.text is not None else None


class Page(Sequence[JobRecord]):
    """Some of the matching jobs, in their order, and the cursor of the next page."""

    __slots__ = ("_jobs", "next", "reached")

    def __init__(
        self,
        jobs: Iterable[JobRecord],
        before: Cursor | None = None,
        reached: datetime | None = None,
    ) -> None:
        self._jobs = tuple(jobs)
        self.next: Cursor | None = before
        """``before`` of the next page; None: nothing further matches."""
        self.reached: datetime | None = reached
        """The instant that this call reached, if it stopped before it found enough jobs. Measured
        by the list's order.
        """

    @overload
    def __getitem__(self, index: int) -> JobRecord: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[JobRecord]: ...
    def __getitem__(self, index: Any) -> Any:
        return self._jobs[index]

    def __len__(self) -> int:
        return len(self._jobs)

    def __eq__(self, other: object) -> bool:
        """Compare as the sequence of its jobs."""
        return isinstance(other, Sequence) and self._jobs == tuple(other)

    # Not hashable, like a list: equal ones may differ in what comes next.
    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Page({list(self._jobs)!r}, next={self.next!r}, reached={self.reached!r})"
