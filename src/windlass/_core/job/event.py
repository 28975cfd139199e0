"""The facts that are recorded: one event per stored transition, and what else happens.

An event is published after its transition was stored, by the process that stored it: never for
one that was not stored, and never twice. A process that dies in between, or loses the store's
answer for good, publishes none: at most once.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from windlass._core.job.job import AttemptError, ClaimedJob, JobId, JobRecord, NewJob
from windlass._core.job.state import TRANSITIONS, State, Verb

__all__ = [
    "Event",
    "JobCoalesced",
    "JobEnqueued",
    "JobMoved",
    "QueueCooled",
    "WorkerChanged",
    "action_event",
    "claimed_event",
    "enqueued_event",
]

if TYPE_CHECKING:
    Record = ClaimedJob | JobRecord
else:
    Record = Any  # an event can be read back from JSON, and this part then is what JSON has


class JobEnqueued(msgspec.Struct, frozen=True, kw_only=True):
    """A job was stored. A reused one makes a `JobCoalesced`, a call that repeats a stored id makes
    no event.

    Nor does one in the user's own transaction: the client does not learn whether it is committed.
    """

    job: JobId
    task: str
    queue: str
    record: NewJob | None = None
    """The job as it was asked for, with its arguments: secrets are not masked."""


class JobCoalesced(msgspec.Struct, frozen=True, kw_only=True):
    """An enqueue was answered with a stored job, because that holds its unique key."""

    job: JobId
    """The stored job."""
    task: str
    """The task that was enqueued; so is the queue."""
    queue: str
    replaced: bool = False
    """The stored job took over the arguments or the due time of this enqueue."""


class JobMoved(msgspec.Struct, frozen=True, kw_only=True):
    """A job took an edge of the state machine, and the store accepted it."""

    verb: Verb
    job: JobId
    task: str
    queue: str
    claim_number: int
    attempt: int
    max_attempts: int
    worker: str
    at: datetime
    waited: timedelta | None = None
    """Due to start."""
    ran: timedelta | None = None
    """Start to end; None for the claim itself."""
    delay: timedelta | None = None
    """For verbs that lead back to waiting: due this long after ``at``."""
    error: AttemptError | None = None
    missed: bool = False
    """RELEASE: its worker could not run it; ``error`` says why and is no error of the job's."""
    correlation_id: str | None = None
    tenant: str | None = None
    origin: State | None = None
    """For a requeue: the state it leads out of, as it was last seen."""
    record: Record | None = None
    """The record that the process had in memory, so it costs nothing. For a run it is the
    `ClaimedJob`, for an action the `JobRecord` after it. Secrets are not masked. The run of a dead
    worker has no payload here.
    """

    @property
    def state(self) -> State:
        """The job's state from here on."""
        return next(edges[self.verb] for edges in TRANSITIONS.values() if self.verb in edges)

    @property
    def previous(self) -> State | None:
        """The state it was in; None for a requeue of a job that moved while it was looked at."""
        sources = [state for state, edges in TRANSITIONS.items() if self.verb in edges]
        if self.verb is Verb.CANCEL:  # a worker's settles a run, anybody else's a waiting job
            return State.RUNNING if self.worker else State.WAITING
        return sources[0] if len(sources) == 1 else self.origin


def enqueued_event(job: NewJob) -> JobEnqueued:
    """Return the event of a job that was stored."""
    return JobEnqueued(job=job.id, task=job.task, queue=job.queue, record=job)


def claimed_event(job: ClaimedJob) -> JobMoved:
    """Return the event of a claim."""
    return JobMoved(
        verb=Verb.CLAIM,
        job=job.claim.job,
        task=job.task,
        queue=job.queue,
        claim_number=job.claim.number,
        attempt=job.attempt,
        max_attempts=job.max_attempts,
        worker=job.worker,
        at=job.started_at,
        waited=job.started_at - job.due,
        correlation_id=job.correlation_id,
        tenant=job.tenant,
        record=job,
    )


def action_event(
    verb: Verb, job: JobRecord, at: datetime, *, origin: State | None = None
) -> JobMoved:
    """Return the event of an edge that a person or a client ordered, not a worker.

    ``job``: as it is afterwards. ``origin``: for a requeue, the state it was in.
    """
    return JobMoved(
        verb=verb,
        job=job.id,
        task=job.task,
        queue=job.queue,
        claim_number=job.claim_number,
        attempt=job.attempt,
        max_attempts=job.max_attempts,
        worker="",
        at=at,
        correlation_id=job.correlation_id,
        tenant=job.tenant,
        origin=origin,
        record=job,
    )


class QueueCooled(msgspec.Struct, frozen=True, kw_only=True):
    """A handler raised `Throttled`, and its whole queue cools down. One event per cool-down, for
    any number of workers.
    """

    queue: str
    until: datetime
    """Nothing of it starts before, in the whole cluster."""
    at: datetime
    job: JobId
    """The job whose handler raised it."""
    task: str
    worker: str


class WorkerChanged(msgspec.Struct, frozen=True, kw_only=True):
    """A worker was declared dead, or took a new identity."""

    worker: str
    what: str
    detail: str = ""


Event = JobEnqueued | JobCoalesced | JobMoved | QueueCooled | WorkerChanged
"""The events that ``app.on_transition`` tells its listeners."""
