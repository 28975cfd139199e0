"""`JobStore`: where jobs wait, are claimed and are finished."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol, TypeGuard, runtime_checkable

import msgspec

from windlass._core.job.job import Claim, ClaimedJob, JobId, NewJob, Progress
from windlass._core.job.state import State, Verb
from windlass._core.job.transition import Transition

__all__ = [
    "Applied",
    "CancelAnswer",
    "ClaimReply",
    "DirectInserts",
    "Inserted",
    "JobStore",
    "Outlook",
    "Settled",
    "StartedInserts",
    "TransitionAnswer",
    "Verdict",
    "Want",
    "starts_inserts",
]


class Inserted(msgspec.Struct, frozen=True):
    """The answer for one new job."""

    id: JobId
    """The new job's id, or that of the job that holds its unique key."""
    created: bool
    """False: an active job with the same key was found and is the answer."""
    replaced: bool = False
    """The holder took over the values of the new job: see `OnConflict`."""
    expired: JobId | None = None
    """The job that held the key before. It waited past its expiry and was discarded here."""
    repeated: bool = False
    """The id was stored before: this call has stored nothing for it. Not set where an earlier try
    of the call may have stored it and its answer was lost.
    """


class Want(msgspec.Struct, frozen=True):
    """Room for up to ``limit`` jobs of one queue."""

    queue: str
    limit: int


class ClaimReply(msgspec.Struct, frozen=True):
    """The result of a claim."""

    jobs: Sequence[ClaimedJob]
    """In claim order: the order of the wants, then priority, due time, insertion."""
    at: datetime
    """The store's clock at this call."""
    live: bool = True
    """False: the worker's row is not live. Nothing was claimed; it must take a new identity."""
    next_at: datetime | None = None
    """The next instant at which time alone makes a job of the wanted queues claimable: a due time,
    a refilled token, ``at`` if this claim stopped at a bound. None: no such instant is known.
    """
    solo_due: bool = False
    """A job of these queues is due and admitted, but may only run alone. An otherwise empty
    worker should ask with ``solo=True``; a busy one should drain first."""
    expired: Sequence[JobId] = ()
    """Jobs this claim discarded because their time had passed."""


class Outlook(msgspec.Struct, frozen=True):
    """A hint whether a claim is worth its write lock now, and if not, when it may be."""

    at: datetime
    """The store's clock at this call."""
    claimable: bool = False
    """May be True without need, never False without need. Only a change, which wakes, or the
    passing of time can turn False into True.
    """
    next_at: datetime | None = None
    """The next instant at which time alone may make a claim worth it, always after ``at``.
    Examples: a job falls due, a cool-down ends, a rate has tokens again, a breaker admits one job.

    A paused queue has no such instant. A queue that cools down has only the end of the cool-down.
    The instant may be too early. It may ignore a job that must run alone: the claim that refused
    the job said when to ask again.
    """


class Verdict(StrEnum):
    """The result of one transition."""

    APPLIED = "applied"
    REPEATED = "repeated"
    """This very claim was already ended by the same caller. Nothing changed now."""
    REFUSED = "refused"
    """The claim is not held any more. Nothing changed; the caller drops the outcome."""
    UNKNOWN = "unknown"
    """No such row (any more)."""


class TransitionAnswer(msgspec.Struct, frozen=True):
    """The verdict on one transition, and the verb that took effect."""

    verdict: Verdict
    verb: Verb | None = None
    """Applied and repeated: the verb that took effect. It is the alternative if a cancel request
    won.
    """
    cool_until: datetime | None = None
    """Applied, with ``cools``: the end of the queue's cool-down."""
    cooled: bool = False
    """True if this transition started the cool-down; False if the queue was cooling down already.
    """


class Applied(msgspec.Struct, frozen=True):
    """The answers to one `JobStore.apply`, in the order of the transitions."""

    at: datetime
    answers: Sequence[TransitionAnswer]
    left_out: Collection[JobId] = ()
    """The jobs of ``then`` and ``flows`` that this call did not store, though their transitions
    were applied: a key is held, an id was stored before, or their flow was cancelled.
    """


class Settled(msgspec.Struct, frozen=True):
    """A terminal job as a waiting caller needs it, or the answer that no such job is stored."""

    id: JobId
    state: State | None
    """None: no job with this id is stored."""
    result: bytes | None = None
    error_kind: str = ""
    error_message: str = ""
    reason: str | None = None


class CancelAnswer(StrEnum):
    """The result of a cancel request."""

    CANCELLED = "cancelled"
    """It was waiting and will not run."""
    REQUESTED = "requested"
    """It is running; its worker is asked to cancel it."""
    TOO_LATE = "too_late"
    """It had already ended."""
    UNKNOWN = "unknown"


class JobStore(Protocol):
    """The store of jobs: insert, claim, finish, cancel."""

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        """Store jobs, all or none, and answer in order. Wake the workers of each queue where a job
        was stored or replaced.

        - New jobs: state waiting, attempt 0, claim number 0. The order of insertion is the order of
          the batch.
        - Due time: ``at``, or ``delay`` after now, or now. A job whose due time is at or before now
          is ready. A due time in the past is kept, because it orders the job.
        - Years above 9000 become 9000, here and wherever an instant is stored: an unreadable
          instant would stop the whole queue.
        - A stored id: the job is not stored again. The client makes the ids, so this is a repeated
          call. The answer is that of the first call (``created=True``) with ``repeated``. If
          several callers send one id at the same instant, all but one get ``repeated``.
        - A stored id with another task or payload raises IdConflict and stores nothing of the
          batch. This also holds between jobs of one batch. Another payload is accepted under the
          same unique key, where it may have been replaced since.
        - A held unique key (see `Unique`): the job is not stored. The answer names the holder with
          ``created=False``. This also holds between jobs of one batch, and under any concurrency.
        - A key held FOR_A_TIME is free when its time is up, or its row is deleted.
        - Any other key is also free when its holder waits past its expiry, unless the holder is to
          be replaced. That holder is discarded here, because it will not run. The answer names it
          as ``expired``.
        - With RAISE, a held key raises KeyConflict and stores nothing of the batch.
        - With REPLACE, a waiting holder takes over the values of the new job, in its place.
          REPLACE_ARGUMENTS replaces payload, limits (and so the lane), principal, correlation id
          and trace. REPLACE_DUE replaces the due time. Each replaces the expiry too, so an expired
          holder is wanted again. The answer says ``replaced``.
        - With REPLACE, a holder that is not waiting stays as it is. A holder of another task raises
          KeyConflict.
        - A job with limits goes into the lane of their combination. A limit that was never defined
          raises LimitUnknown and stores nothing of the batch.
        """
        ...

    async def claim(
        self,
        worker: str,
        wants: Sequence[Want],
        *,
        total: int,
        solo: bool = False,
        head_start: timedelta = timedelta(0),
    ) -> ClaimReply:
        """Give ready jobs to a worker, at most ``total``, at most each want's limit.

        - Checked in the same transaction: this code knows the stored major version (else
          `SchemaTooNew`; ending claims is still possible), and the worker's row is live (`live`).
        - Order: the order of the wants; within a queue priority (lower first), due time, insertion.
        - Due jobs count from the instant they are due (inclusive). The claim promotes them if
          needed.
        - Jobs with ``missed_at`` count only ``head_start`` later, also in `ClaimReply.next_at`. A
          worker that could not run them leaves them to other workers for that long.
        - Each claimed job: running, attempt + 1, claim number + 1, started now, worker stored. The
          cancel request and the progress are cleared, and a key held UNTIL_STARTED is released.
        - No two claims return the same job while the first one holds, under any concurrency.
        - A waiting job at or past its expiry is discarded (reason ``expired``), never claimed. One
          call discards a bounded number, so it may return fewer jobs than there are.
          `ClaimReply.expired` names them, and callers that wait for their end are woken.
        - A paused queue gives no jobs. A queue that cools down gives none before ``cool_until``
          (then `ClaimReply.next_at`).
        - A queue with ``max_running`` gives jobs until that number of its jobs runs in the cluster.
        - Limits: a job is claimed only when every limit of its lane admits it. It then takes a rate
          token per cost, and a concurrency unit for as long as the claim lasts.
        - If the first job of a lane is refused, the whole lane is closed, and no other: jobs of
          other lanes and jobs without limits pass it. The running rows are the usage.
        - A closed breaker admits all jobs. An open one admits none before ``open_until``, then one
          job at a time.
        - A job marked solo is claimed only with ``solo=True``. Callers pass that when they run
          nothing else. Such a claim returns one solo job, due and admitted, or none. ``solo_due``
          tells other callers that one is waiting.
        """
        ...

    async def apply(self, transitions: Sequence[Transition]) -> Applied:
        """End claims. Each transition is fenced by job and claim number, and decided separately.

        - Applied only if the job is running under exactly this claim number. The row then stores
          the number of this claim, the verb and ``by``, so that a repeat is recognised.
        - A row with a cancel request takes ``if_cancelled`` instead, where there is one.
        - Waiting verbs: the job is due ``delay`` after now (0: ready at once). ``refund`` gives the
          attempt back, never below 0. Lost and solo are stored as the transition says. Limited jobs
          return to their lane, suspects to the solo lane.
        - ``missed`` stamps ``missed_at`` once and stores the error's message as ``missed_why``.
          Every verb except release clears both.
        - ``started``: the handler was entered, so the job was started in time and has no expiry any
          more.
        - Without ``started``, the job is as it was before the claim and keeps its expiry. It takes
          a key held UNTIL_STARTED again if no other job holds it, unless it was started or requeued
          before. It does so after all of the call and before ``then``. If several want one key, the
          first by insertion gets it.
        - Terminal verbs: finished now, result or error stored, a key held UNTIL_FINISHED released.
          Success clears the last error; ``keep=False`` deletes the row. Concurrency units come
          back, and lanes parked for them return.
        - Every ended claim except success adds an `Attempt` to the history. The newest 32 with an
          error and the newest 8 without one are kept. ``error`` becomes the job's last error. A
          release with ``missed`` does neither, because no handler ran.
        - ``metadata`` replaces the job's, also by nothing, and is stored with that `Attempt`.
        - THROTTLE adds one to ``throttled``. With ``cools`` the queue cools down from now, for
          ``cools[n]`` or ``delay``, whichever is longer. ``n`` is the number of cool-downs so far,
          at most 30; beyond the list its last value counts. A queue that cools down already is left
          as it is: many calls that hit one limit count once. The job is due at ``cool_until`` at
          the earliest. With ``drains`` the buckets of its rates are emptied.
        - SUCCEED sets a queue's number of cool-downs to 0, and clears ``cool_until``, if that lies
          120 s or more in the past (`windlass._core.limits.cooldown.RESET_AFTER`).
        - Breakers of the job: RETRY and FAIL count as a failure, SUCCEED closes, other verbs change
          nothing (`windlass._core.limits.breaker`).
        - ``then`` is inserted, as `insert` does, if the transition's own verb took effect. It comes
          after all of the call, so it may hold a key that one of them released. While its key is
          held it is left out, with any ``on_conflict``.
        - A ``then`` with an undefined limit raises LimitUnknown, and the whole call changes
          nothing. This is checked before any claim, so also where ``then`` would not be inserted.
        - ``flows`` are added likewise, each whole or not at all: see `FlowStore`. What is said of
          undefined limits holds for their jobs, too.
        - Rollups count the accepted ones, in the same transaction, under the verb that took effect.
          Repeated, refused and unknown ones change nothing at all.
        - Callers that wait for results, for freed limits and for ready jobs are woken.
        """
        ...

    async def outlook(self, queues: Sequence[str]) -> Outlook:
        """Check whether a claim on these queues is worth its write lock. Read-only and cheap.

        Yes where the stored version is too new. No for a queue that is paused, cools down or runs
        ``max_running`` jobs. No where the only waiting job must run alone and its limits refuse it.
        """
        ...

    async def active(self, queues: Sequence[str]) -> bool:
        """Check whether any job of these queues is running, or due while its queue is not paused.

        Read-only and cheap: workers that run until their queues are empty call it often.
        """
        ...

    async def report(self, progress: Sequence[tuple[Claim, Progress]]) -> None:
        """Store the progress of running jobs. Fenced: a claim that is not held changes nothing."""
        ...

    async def settled(self, ids: Sequence[JobId]) -> Sequence[Settled]:
        """Return those of ``ids`` that are terminal, and those that are not stored. Read-only."""
        ...

    async def cancel(self, ids: Sequence[JobId]) -> Sequence[CancelAnswer]:
        """Cancel waiting jobs at once; ask the workers of running ones. Answers in order."""
        ...


@runtime_checkable
class DirectInserts(Protocol):
    """A `JobStore` that can store jobs on the calling thread, without its event loop."""

    def insert_here(self, jobs: Sequence[NewJob]) -> Sequence[Inserted] | None:
        """Store plain jobs as `JobStore.insert` does, on this thread, which is none of an event
        loop. None: it could not be done at once, or its answer was lost. Then insert the same jobs
        by `JobStore.insert`, which finds out by their ids.
        """
        ...


class StartedInserts(Protocol):
    """A `JobStore` that begins to store jobs at the call, before anything is awaited."""

    def start_insert(
        self, jobs: Sequence[NewJob], told: Callable[[Sequence[Inserted]], None]
    ) -> asyncio.Future[Sequence[Inserted]]:
        """Store jobs as `JobStore.insert` does. ``told`` gets the answers of jobs that were stored,
        on this event loop, also if the future was cancelled meanwhile: its caller is gone, and
        others must hear of the jobs. Jobs whose storing had not begun may be dropped then.
        """
        ...


def starts_inserts(jobs: JobStore) -> TypeGuard[StartedInserts]:
    """Tell whether a store is one of `StartedInserts`. Its class is asked: an object around a store
    that passes unknown names on may change what `JobStore.insert` does.
    """
    return hasattr(type(jobs), "start_insert")
