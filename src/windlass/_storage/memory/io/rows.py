"""The stored rows, which change, and the frozen records that readers get."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec

from windlass._core.job.error_origin import frame_of
from windlass._core.job.job import (
    Attempt,
    AttemptError,
    Claim,
    ClaimedJob,
    FlowPlace,
    JobRecord,
    NewJob,
    Progress,
)
from windlass._core.job.state import TERMINAL, State, Verb
from windlass._core.limits.limit import lane_key
from windlass._core.limits.queue_settings import QueueSettings
from windlass._core.values.instants import add_clamped, clamp_instant
from windlass._core.values.metadata import Metadata
from windlass._storage.protocol.jobs import Settled
from windlass._storage.protocol.workers import Duty, WorkerStart, WorkerState

__all__ = [
    "ClaimSortKey",
    "JobRow",
    "Lane",
    "LastClaim",
    "Lease",
    "QueueRow",
    "WorkerRow",
    "due_of",
    "expiry_of",
]

ClaimSortKey = tuple[int, datetime, int] | tuple[datetime, int]
"""The position of a waiting job: priority, due, seq when it is ready; due, seq before."""


class Lane(NamedTuple):
    """A line of ready jobs that open and close together."""

    solo: bool
    limits: str
    """`lane_key` of the limits; empty for jobs without any."""


class LastClaim(NamedTuple):
    """The end of a job's last claim, which tells a repeat from a refusal."""

    number: int
    verb: Verb
    by: str


class JobRow(msgspec.Struct, eq=False, kw_only=True):
    """A job as it is stored: the request, and everything that changes.

    Never leaves the database: readers get frozen records, so no reader holds a value that changes.
    """

    asked: NewJob
    seq: int = 0
    """Given when it is stored."""
    created_at: datetime
    due: datetime
    max_attempts: int
    lane_limits: str
    expires_at: datetime | None = None
    key_until: datetime | None = None
    """For a key held FOR_A_TIME: until when."""
    key_spent: bool = False
    """A key held UNTIL_STARTED was given up for good."""
    state: State = State.WAITING
    attempt: int = 0
    claim_number: int = 0
    place: ClaimSortKey | None = None
    """Its own entry in a heap. Entries of an earlier position are ignored."""
    ended: LastClaim | None = None
    worker: str = ""
    started_at: datetime
    """Of its last claim; before any, when it was made."""
    finished_at: datetime | None = None
    result: bytes | None = None
    error: AttemptError | None = None
    frame: str = ""
    """Where the error was raised."""
    reason: str | None = None
    cancel_requested: bool = False
    lost: int = 0
    solo: bool = False
    missed_at: datetime | None = None
    missed_why: str | None = None
    throttled: int = 0
    progress: Progress | None = None
    metadata: Metadata | None = None
    history: list[Attempt] = []
    flow: FlowPlace | None = None
    """Its place in a flow."""
    blocked: bool = False
    """It waits for other parts of its flow."""

    @classmethod
    def of(cls, asked: NewJob, *, now: datetime, seq: int = 0) -> JobRow:
        """Return a new job, waiting."""
        return cls(
            asked=asked,
            seq=seq,
            created_at=now,
            started_at=now,
            due=due_of(asked, now),
            max_attempts=asked.max_attempts,
            lane_limits=lane_key(asked.limits),
            expires_at=expiry_of(asked, now),
        )

    @property
    def lane(self) -> Lane:
        return Lane(self.solo, self.lane_limits)

    @property
    def claim(self) -> Claim:
        return Claim(self.asked.id, self.claim_number, self.seq)

    def is_expired(self, now: datetime) -> bool:
        return self.expires_at is not None and self.expires_at <= now

    def is_terminal(self) -> bool:
        return self.state in TERMINAL

    def is_retrying(self) -> bool:
        """Return whether it waits after an attempt that was spent since it was enqueued or
        requeued.
        """
        spent = self.attempt > self.max_attempts - self.asked.max_attempts
        return self.state is State.WAITING and spent

    # --- what changes it: the stores say when, and in which order ---

    def number(self, seq: int) -> None:
        self.seq = seq

    def wait(self, due: datetime) -> None:
        self.state, self.due = State.WAITING, due

    def stand(self, place: ClaimSortKey) -> None:
        self.place, self.blocked = place, False

    def block(self) -> None:
        self.state, self.place, self.blocked = State.WAITING, None, True

    def join(self, place: FlowPlace) -> None:
        self.flow = place

    def start(self, worker: str, now: datetime) -> None:
        self.state, self.place = State.RUNNING, None
        self.attempt += 1
        self.claim_number += 1
        self.started_at, self.worker = now, worker
        self.cancel_requested, self.progress = False, None

    def request_cancel(self) -> None:
        self.cancel_requested = True

    def report(self, progress: Progress) -> None:
        self.progress = progress

    def end_claim(
        self, ended: LastClaim, missed: tuple[datetime | None, str | None], *, lost: int, solo: bool
    ) -> None:
        """``missed``: since when a worker could not run it, and why."""
        self.ended, self.lost, self.solo = ended, lost, solo
        self.missed_at, self.missed_why = missed

    def refund(self) -> None:
        self.attempt = max(0, self.attempt - 1)

    def note_started(self) -> None:
        """Mark the job as started: it does not expire any more, and gave its key up for good."""
        self.expires_at, self.key_spent = None, True

    def count_throttle(self) -> None:
        self.throttled += 1

    def forget(self, past: Attempt) -> None:
        self.history = [one for one in self.history if one is not past]

    def finish(self, state: State, now: datetime) -> None:
        self.state, self.finished_at, self.place = state, now, None
        self.blocked = False

    def keep(self, *, result: bytes | None) -> None:
        self.result = result

    def note(self, metadata: Metadata | None) -> None:
        self.metadata = metadata

    def explain(self, reason: str) -> None:
        self.reason = reason

    def requeue(self) -> None:
        """Give it a fresh budget, as if it had just been enqueued."""
        self.max_attempts = self.attempt + self.asked.max_attempts
        self.expires_at = self.finished_at = self.missed_at = self.missed_why = self.reason = None
        self.cancel_requested = self.solo = False
        self.key_spent, self.lost = True, 0

    def ask(self, asked: NewJob) -> None:
        self.asked, self.lane_limits = asked, lane_key(asked.limits)

    def expire(self, at: datetime | None) -> None:
        self.expires_at = at

    def hold_key(self, until: datetime | None) -> None:
        self.key_until = until

    def blame(self, error: AttemptError | None) -> None:
        """Keep the last error, and where it was raised."""
        self.error = error
        self.frame = "" if error is None else frame_of(error.traceback)

    def to_claimed(self) -> ClaimedJob:
        """Return the record that the worker of a running job gets."""
        asked, error = self.asked, self.error
        return ClaimedJob(
            claim=self.claim,
            task=asked.task,
            queue=asked.queue,
            payload=asked.payload,
            attempt=self.attempt,
            max_attempts=self.max_attempts,
            budget=asked.max_attempts,
            due=self.due,
            started_at=self.started_at,
            worker=self.worker,
            timeout=asked.timeout,
            lost=self.lost,
            solo=self.solo,
            backoff=asked.backoff,
            missed_at=self.missed_at,
            error=None if error is None else AttemptError(error.kind, error.message),
            tenant=asked.tenant,
            principal=asked.principal,
            correlation_id=asked.correlation_id,
            trace=asked.trace,
            tags=asked.tags,
            on_failure=asked.on_failure,
            on_lost=asked.on_lost,
            flow=self.flow,
        )

    def to_job(self, *, key_held: bool) -> JobRecord:
        """Return the whole job, for people."""
        asked = self.asked
        return JobRecord(
            id=asked.id,
            seq=self.seq,
            task=asked.task,
            queue=asked.queue,
            payload=asked.payload,
            state=self.state,
            priority=asked.priority,
            created_at=self.created_at,
            due=self.due,
            attempt=self.attempt,
            max_attempts=self.max_attempts,
            budget=asked.max_attempts,
            claim_number=self.claim_number,
            timeout=asked.timeout,
            expires_at=self.expires_at,
            backoff=asked.backoff,
            key=None if asked.unique is None else asked.unique.key,
            key_held=key_held,
            key_window=None if asked.unique is None else asked.unique.window,
            key_period=None if asked.unique is None else asked.unique.period,
            limits=asked.limits,
            worker=self.worker or None,
            started_at=self.started_at if self.claim_number else None,
            finished_at=self.finished_at,
            result=self.result,
            error=self.error,
            reason=self.reason,
            cancel_requested=self.cancel_requested,
            lost=self.lost,
            solo=self.solo,
            missed_at=self.missed_at,
            missed_why=self.missed_why,
            throttled=self.throttled,
            progress=self.progress,
            metadata=self.metadata,
            tags=asked.tags,
            tenant=asked.tenant,
            principal=asked.principal,
            correlation_id=asked.correlation_id,
            trace=asked.trace,
            parent=asked.parent,
            on_failure=asked.on_failure,
            on_lost=asked.on_lost,
            flow=self.flow,
            blocked=self.blocked,
        )

    def to_settled(self) -> Settled:
        """Return a terminal job as a waiting caller needs it."""
        error = self.error or AttemptError("", "")
        return Settled(
            self.asked.id, self.state, self.result, error.kind, error.message, self.reason
        )


def due_of(asked: NewJob, now: datetime) -> datetime:
    """Return when a job that is asked for now is due."""
    if asked.delay is not None:
        return add_clamped(now, asked.delay)
    return now if asked.at is None else clamp_instant(asked.at)


def expiry_of(asked: NewJob, now: datetime) -> datetime | None:
    """Return when a job that is asked for now is not wanted any more."""
    return None if asked.expires is None else add_clamped(now, asked.expires)


class QueueRow(msgspec.Struct):
    """A queue as it is stored: its settings, and its cool-down."""

    settings: QueueSettings = QueueSettings()
    paused: bool = False
    cool_until: datetime | None = None
    cool_downs: int = 0

    def pause(self, *, paused: bool) -> None:
        self.paused = paused

    def change(self, settings: QueueSettings) -> None:
        self.settings = settings

    def cool(self, until: datetime | None, downs: int) -> None:
        self.cool_until, self.cool_downs = until, downs


class WorkerRow(msgspec.Struct, eq=False, kw_only=True):
    """A worker as it is stored."""

    start: WorkerStart
    started_at: datetime
    beat_at: datetime
    beat_boot: timedelta
    """The last beat on the clock that never steps: what its lease is judged by."""
    state: WorkerState = WorkerState.LIVE
    ended_at: datetime | None = None
    memory: int | None = None
    duty: Duty = Duty.WORK

    def beat(self, now: datetime, boot: timedelta, memory: int | None) -> None:
        self.beat_at, self.beat_boot = now, boot
        self.memory = self.memory if memory is None else memory

    def assign(self, duty: Duty) -> None:
        self.duty = duty

    def end(self, state: WorkerState, now: datetime) -> None:
        self.state, self.ended_at = state, now


class Lease(NamedTuple):
    """The worker that leads a role, and until when on the clock that never steps."""

    worker: str
    until: timedelta
