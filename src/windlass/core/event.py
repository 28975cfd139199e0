"""The facts that are recorded: one event per accepted transition, and what befalls the others."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from windlass.core.job import AttemptError, Job, JobId
from windlass.core.state import TRANSITIONS, State, Verb

__all__ = ["Event", "JobEnqueued", "JobMoved", "QueueCooled", "WorkerChanged", "ordered"]


class JobEnqueued(msgspec.Struct, frozen=True, kw_only=True):
    """A job was stored. A reused one makes no event."""

    job: JobId
    task: str
    queue: str


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
    correlation_id: str | None = None
    tenant: str | None = None

    @property
    def state(self) -> State:
        """The job's state from here on."""
        return next(edges[self.verb] for edges in TRANSITIONS.values() if self.verb in edges)

    @property
    def previous(self) -> State | None:
        """The state it was in; None for a requeue, which leads out of several."""
        sources = [state for state, edges in TRANSITIONS.items() if self.verb in edges]
        if self.verb is Verb.CANCEL:  # a worker's settles a run, anybody else's a waiting job
            return State.RUNNING if self.worker else State.WAITING
        return sources[0] if len(sources) == 1 else None


def ordered(verb: Verb, job: Job, at: datetime) -> JobMoved:
    """The event of an edge that a person or a client ordered, not a worker."""
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
    )


class QueueCooled(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody upstream said "not now", and a whole queue rests. One event per hit, however many
    workers were turned away by it.
    """

    queue: str
    until: datetime
    """Nothing of it starts before, in the whole cluster."""
    at: datetime
    job: JobId
    """Whose handler said so."""
    task: str
    worker: str


class WorkerChanged(msgspec.Struct, frozen=True, kw_only=True):
    """Something befell a worker, such as being buried or taking a new identity."""

    worker: str
    what: str
    detail: str = ""


Event = JobEnqueued | JobMoved | QueueCooled | WorkerChanged
