"""The records: requests, stored jobs, claims. Frozen values that do no I/O."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal, NewType

import msgspec

from windlass._core.job.state import State, Verb
from windlass._core.job.unique import UniqueKey, Window
from windlass._core.limits.backoff import Backoff
from windlass._core.values.instants import to_us
from windlass._core.values.metadata import Metadata
from windlass.errors import InvalidArgument

__all__ = [
    "DEFAULT_MAX_ATTEMPTS",
    "NO_TIMEOUT",
    "Attempt",
    "AttemptError",
    "Claim",
    "ClaimedJob",
    "FlowId",
    "FlowPlace",
    "FollowUp",
    "JobId",
    "JobRecord",
    "LimitUse",
    "NewJob",
    "OnLost",
    "Progress",
]

if TYPE_CHECKING:
    EndedBy = Verb | str
else:
    EndedBy = str  # JSON has one kind of text for both

JobId = NewType("JobId", str)
"""A UUIDv7 as 32 hex digits, made by the client."""

FlowId = NewType("FlowId", str)
"""The same for a flow."""

DEFAULT_MAX_ATTEMPTS = 5

OnLost = Literal["retry", "fail"]
"""The action after a lost run: run again, or end. Stored, because the worker that ends the claim
may not know the task.
"""

NO_TIMEOUT = timedelta(0)
"""The ``timeout`` of a job whose task says that it has none. A job without one (None) follows its
worker: the task there, then the app's setting."""


class LimitUse(msgspec.Struct, frozen=True):
    """One limit a job counts against, fixed when it is enqueued."""

    name: str
    key: str = ""
    """The part taken from the arguments; one budget per key."""
    cost: float = 1.0
    """Rate tokens spent at the claim. Concurrency always counts one."""

    def __post_init__(self) -> None:
        if not 0 <= self.cost < math.inf:
            message = f"the cost of limit {self.name!r} must be 0 or more, got {self.cost!r}"
            raise InvalidArgument(message)

    @property
    def gate(self) -> str:
        """Return the name of the budget this use draws on."""
        return f"{self.name}:{self.key}" if self.key else self.name


class FollowUp(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The job to insert when this one has failed for good, except for its id and arguments.

    Stored with the job: the worker that ends the claim may not know its task.
    """

    task: str
    queue: str = "default"
    priority: int = 0
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    timeout: timedelta | None = None
    expires: timedelta | None = None
    """Counted from the failure."""
    limits: tuple[LimitUse, ...] = ()
    tags: tuple[str, ...] = ()
    on_lost: OnLost = "retry"


class NewJob(msgspec.Struct, frozen=True, kw_only=True):
    """The request of a producer. The store adds time and order."""

    id: JobId
    task: str
    queue: str = "default"
    payload: bytes = b"{}"
    priority: int = 0
    delay: timedelta | None = None
    """Due this long after the store's now. At most one of ``delay`` and ``at`` is set."""
    at: datetime | None = None
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    timeout: timedelta | None = None
    """None: its worker decides; `NO_TIMEOUT`: none at all."""
    expires: timedelta | None = None
    """Discarded instead of claimed once this long after the store's now."""
    backoff: Backoff | None = None
    """Overrides the task's own; most jobs carry none."""
    unique: UniqueKey | None = None
    limits: tuple[LimitUse, ...] = ()
    tags: tuple[str, ...] = ()
    tenant: str | None = None
    principal: str | None = None
    correlation_id: str | None = None
    trace: str | None = None
    parent: JobId | None = None
    on_failure: FollowUp | None = None
    on_lost: OnLost = "retry"


class FlowPlace(msgspec.Struct, frozen=True):
    """The flow of a job, and its part there."""

    flow: FlowId
    part: int
    """The number of its part."""
    added: bool = False
    """Another member of the part added it by its success."""


class Claim(msgspec.Struct, frozen=True):
    """The right to finish one run: the job and the number of this claim.

    The number rises by one with every claim and never falls, so it is the fence. ``attempt`` is a
    budget: it can be given back and therefore repeats.
    """

    job: JobId
    number: int
    seq: int
    """The store's working key for the job: its place in insertion order."""


class AttemptError(msgspec.Struct, frozen=True):
    """The reason why an attempt did not succeed, as text. Never rebuilt into an exception."""

    kind: str
    message: str
    traceback: str = ""


class ClaimedJob(msgspec.Struct, frozen=True):
    """A running job as its worker needs it. Small: one is built per job on the hot path."""

    claim: Claim
    task: str
    queue: str
    payload: bytes
    attempt: int
    max_attempts: int
    budget: int
    """``max_attempts`` of the request; a requeue adds one budget."""
    due: datetime
    started_at: datetime
    worker: str
    timeout: timedelta | None = None
    lost: int = 0
    solo: bool = False
    backoff: Backoff | None = None
    missed_at: datetime | None = None
    """The first time that a worker could not run this job: unknown task, or other arguments."""
    error: AttemptError | None = None
    """The last error, without its traceback."""
    tenant: str | None = None
    principal: str | None = None
    correlation_id: str | None = None
    trace: str | None = None
    tags: tuple[str, ...] = ()
    on_failure: FollowUp | None = None
    on_lost: OnLost = "retry"
    flow: FlowPlace | None = None
    """Its place in a flow."""

    @property
    def tries(self) -> int:
        """Attempts since the last requeue, this one included: the number that backoff counts."""
        return self.attempt - (self.max_attempts - self.budget)


class Progress(msgspec.Struct, frozen=True):
    """The progress that a running handler reported."""

    fraction: float
    note: str = ""
    data: dict[str, Any] | None = None
    """JSON, up to 4 KiB."""


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A stored job, whole."""

    id: JobId
    seq: int
    task: str
    queue: str
    payload: bytes
    state: State
    priority: int
    created_at: datetime
    due: datetime
    attempt: int
    max_attempts: int
    budget: int
    claim_number: int
    timeout: timedelta | None = None
    expires_at: datetime | None = None
    backoff: Backoff | None = None
    key: str | None = None
    """The unique key as asked for; kept for people after it is released."""
    key_held: bool = False
    key_window: Window | None = None
    """The time that it holds its key."""
    key_period: timedelta | None = None
    """The length of that time, if the window is FOR_A_TIME."""
    limits: tuple[LimitUse, ...] = ()
    worker: str | None = None
    """The worker that runs it, or ran it last."""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    result: bytes | None = None
    error: AttemptError | None = None
    reason: str | None = None
    """The reason why it was discarded."""
    cancel_requested: bool = False
    lost: int = 0
    solo: bool = False
    missed_at: datetime | None = None
    missed_why: str | None = None
    """The reason why the last worker that claimed it could not run it; None if ``missed_at`` is
    None.
    """
    throttled: int = 0
    """Number of times that its handler raised `Throttled`."""
    progress: Progress | None = None
    metadata: Metadata | None = None
    """The facts that its handler noted in the run that ended last; None: none."""
    tags: tuple[str, ...] = ()
    tenant: str | None = None
    principal: str | None = None
    correlation_id: str | None = None
    trace: str | None = None
    parent: JobId | None = None
    on_failure: FollowUp | None = None
    on_lost: OnLost = "retry"
    flow: FlowPlace | None = None
    """Its place in a flow."""
    blocked: bool = False
    """It waits for other parts of its flow."""

    @property
    def unique(self) -> UniqueKey | None:
        """Return the requested key and its window. The behaviour on conflicts is not stored."""
        if self.key is None:
            return None
        window, period = self.key_window, self.key_period
        if window is None or (window is Window.FOR_A_TIME) is (period is None):
            return UniqueKey(self.key)  # how long cannot be read
        return UniqueKey(self.key, window, period)

    def copy_id(self, word: str) -> JobId:
        """Return the id of a copy. The same word gives the same id, so storing the copy twice
        stores it once.
        """
        digest = blake2b(f"{self.id}\x1f{word}".encode(), digest_size=16).hexdigest()
        # As ids are made, with the time of this job: it sorts among its neighbours.
        made = max(to_us(self.created_at) // 1000, 0)
        return JobId(f"{made:012x}7{digest[:3]}8{digest[4:19]}")

    def again(self, job_id: JobId) -> NewJob:
        """Return the same request as a new job, due now. Another holder of its key prevents it."""
        return NewJob(
            id=job_id,
            task=self.task,
            queue=self.queue,
            payload=self.payload,
            priority=self.priority,
            max_attempts=self.budget,
            timeout=self.timeout,
            backoff=self.backoff,
            unique=self.unique,
            limits=self.limits,
            tags=self.tags,
            tenant=self.tenant,
            principal=self.principal,
            correlation_id=self.correlation_id,
            trace=self.trace,
            parent=self.parent,
            on_failure=self.on_failure,
            on_lost=self.on_lost,
        )


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One ended claim in a job's history, keyed by claim number."""

    claim_number: int
    attempt: int
    verb: EndedBy
    """The verb that ended the claim; a text if this version does not know it."""
    worker: str
    started_at: datetime
    ended_at: datetime
    error: AttemptError | None = None
    metadata: Metadata | None = None
    """The facts that the handler noted in this run; None: none."""
