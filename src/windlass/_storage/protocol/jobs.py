"""`JobStore`: where jobs wait, are claimed and are finished."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

import msgspec

from windlass._core.job.job import Claim, ClaimedJob, JobId, NewJob, Progress
from windlass._core.job.state import State, Verb
from windlass._core.job.transition import Transition

__all__ = [
    "Applied",
    "CancelAnswer",
    "ClaimReply",
    "Inserted",
    "JobStore",
    "Outlook",
    "Settled",
    "TransitionAnswer",
    "Verdict",
    "Want",
]


class Inserted(msgspec.Struct, frozen=True):
    """The answer for one new job."""

    id: JobId
    """The new job's id, or that of the job that holds its unique key."""
    created: bool
    """False: an active job with the same key was found and is the answer."""
    replaced: bool = False
    """That job took over what was asked for: see `OnConflict`."""
    expired: JobId | None = None
    """The job that held its key before: it waited past its expiry and was discarded here."""
    repeated: bool = False
    """The id was stored before: this call has stored nothing for it. Not said where an earlier try
    of the call may have stored it, because the answer to that try was lost.
    """


class Want(msgspec.Struct, frozen=True):
    """Room for up to ``limit`` jobs of one queue."""

    queue: str
    limit: int


class ClaimReply(msgspec.Struct, frozen=True):
    """What a claim brought."""

    jobs: Sequence[ClaimedJob]
    """In claim order: the order of the wants, then priority, due time, insertion."""
    at: datetime
    """The store's now."""
    live: bool = True
    """False: the worker's row is not live. Nothing was claimed; it must take a new identity."""
    next_at: datetime | None = None
    """When something of the wanted queues becomes claimable without anybody writing: a due time,
    a refilled token, ``at`` if this claim stopped at a bound. None: nothing is known to come."""
    solo_due: bool = False
    """A job of these queues is due and admitted, but may only run alone. An otherwise empty
    worker should ask with ``solo=True``; a busy one should drain first."""
    expired: Sequence[JobId] = ()
    """Jobs this claim discarded because their time had passed."""


class Outlook(msgspec.Struct, frozen=True):
    """Whether a claim is worth its write lock now and, if not, when it may be. A hint."""

    at: datetime
    """The store's now."""
    claimable: bool = False
    """May err on the side of yes, never of no: nothing but a change, which wakes, or time makes
    another claim worth it."""
    next_at: datetime | None = None
    """When time alone does, if a claim is not worth it at ``at``, which is always before: a job
    falls due, a queue has cooled down, a rate's tokens are there, a breaker lets one through. A
    paused queue has no such instant, one that cools down no other. May err on the side of too
    early, and need not know what a job to run alone waits for: the claim that refused it told."""


class Verdict(StrEnum):
    """What became of one transition."""

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
    """Applied and repeated: what happened, which is the alternative if a cancel request won."""
    cool_until: datetime | None = None
    """Applied, with ``cools``: until when the job's queue rests."""
    cooled: bool = False
    """This very transition has sent it to rest; False: it already did."""


class Applied(msgspec.Struct, frozen=True):
    """The answers to one `JobStore.apply`, in the order of the transitions."""

    at: datetime
    answers: Sequence[TransitionAnswer]


class Settled(msgspec.Struct, frozen=True):
    """A terminal job as a waiting caller needs it, or word that there is no such job."""

    id: JobId
    state: State | None
    """None: no job with this id is stored."""
    result: bytes | None = None
    error_kind: str = ""
    error_message: str = ""
    reason: str | None = None


class CancelAnswer(StrEnum):
    """What a cancel request achieved."""

    CANCELLED = "cancelled"
    """It was waiting and will not run."""
    REQUESTED = "requested"
    """It is running; its worker is told."""
    TOO_LATE = "too_late"
    """It had already ended."""
    UNKNOWN = "unknown"


class JobStore(Protocol):
    """Where jobs wait, are claimed and are finished."""

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        """Store jobs, all or none, and answer in order; then wake those who wait for work of the
        queues where something was stored or replaced, and nobody if nothing was.

        - State waiting, attempt 0, claim number 0, order of insertion = order of the batch.
        - Due at ``at``, or ``delay`` after now, or now. A job whose due time is at or before now
          is ready. An instant in the past is kept: it orders the job. One beyond the year 9000
          becomes that year, here and wherever else an instant is stored: an instant that nobody
          can read would stop the whole queue.
        - A job whose id is already stored is not stored again; the answer is the first one's
          (``created=True``), and ``repeated``: the client makes the ids, so this is a repeated
          call. Of callers who say one id at the same instant all but one are told so. Another
          task or payload (unless one under the same unique key, where it may have been replaced
          since) raises IdConflict; nothing of the batch is stored. Also between jobs of one batch.
        - A job whose unique key is held (see `Unique`) is not stored; the answer names the holder
          with ``created=False``. This also holds between jobs of one batch, and under any
          concurrency. A key held FOR_A_TIME is free when its time is up, or its row is deleted;
          any other also when its holder waits past its expiry and is not to be replaced: that one
          is discarded here, for who reuses a job that will not run has lost what was asked for; the
          answer names it.
          With RAISE: KeyConflict, nothing of the batch is stored. With REPLACE…: a holder that is
          waiting takes over, in its place, the payload, limits (and so the lane), principal,
          correlation id, trace (…ARGUMENTS) and the due time, as of a new job (…DUE), or all of
          them; in any case the expiry, as of a new job, so one that is past its own and has not
          been met yet is wanted again; the answer says ``replaced``. One that is not waiting stays
          as it is; one of another task raises KeyConflict.
        - A job with limits goes into the lane of their combination; a limit that was never
          defined raises LimitUnknown and stores nothing of the batch.
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
          `SchemaTooNew`; ending claims is still possible), the worker's row is live (`live`).
        - Wants are served in order; within a queue: priority (lower first), due time, insertion.
        - Due jobs count from the instant they are due (inclusive), promoted here if need be. Those
          with ``missed_at`` count only ``head_start`` later, and so in `ClaimReply.next_at`: a
          worker that could not run them leaves them to the others for that long.
        - Each claimed job: running, attempt + 1, claim number + 1, started now, worker stored,
          cancel request cleared, progress cleared, a key held UNTIL_STARTED released.
        - No two claims return the same job while the first one holds, whatever runs concurrently.
        - A waiting job at or past its expiry is discarded (reason ``expired``) when met, never
          claimed; a bounded number per call, so a claim may come back with less than there is.
          They are named in `ClaimReply.expired`, and whoever waits for their end is woken.
        - A paused queue gives nothing, nor does one that cools down, up to ``cool_until`` (then
          `ClaimReply.next_at`); one with ``max_running`` gives no more than brings its running
          jobs, in the whole cluster, to that number.
        - Limits: a job is claimed only when every limit of its lane admits it, and then takes
          from all of them: a rate token per cost, a concurrency unit that lasts as long as the
          claim. The head of a closed lane closes its whole lane and nothing else: jobs of other
          lanes and jobs without limits pass it. Usage is what the running rows say.
        - A breaker admits everything below its number of failures in a row; from there on nothing
          before ``open_until``, and then one job while none that counts against it runs.
        - A job marked solo is claimed only with ``solo=True``, which callers say when they run
          nothing else; such a claim returns one such job, due and admitted, or nothing at all.
          ``solo_due`` tells callers without ``solo=True`` that one is waiting.
        """
        ...

    async def apply(self, transitions: Sequence[Transition]) -> Applied:
        """End claims: fenced by job and claim number, each transition decided on its own.

        - Applied only if the job is running under exactly this claim number. The row then stores
          the number of this claim, the verb and ``by``, so that a repeat is recognised.
        - A row with a cancel request takes ``if_cancelled`` instead, where there is one.
        - waiting verbs: due ``delay`` after now (ready at once when 0), attempt given back if
          ``refund`` (never below 0), lost and solo as the transition says, ``missed_at`` stamped
          once if ``missed``, ``missed_why`` replaced by its error's message, both cleared by every
          other verb but release. Limited jobs return to their lane, suspects to the solo lane.
          Where the handler was entered (``started``) the job has no expiry any more: it was started
          in time. Where it was not, the job is as it was before the claim: it keeps its expiry, and
          takes a key held UNTIL_STARTED again if no other job holds it, unless it was started or
          requeued before. It does so after all of the call and before ``then``; of several that
          want one key, the first by insertion gets it.
        - terminal verbs: finished now, result or error stored, a key held UNTIL_FINISHED
          released; success clears the last error; ``keep=False`` deletes the row. Concurrency
          units come back, and lanes parked for them return.
        - Every ended claim except success adds an `Attempt` to the history, the newest 32 with
          an error and the newest 8 without one kept;
          ``error`` becomes the job's last error. A release with ``missed`` does neither: nothing
          ran.
        - THROTTLE adds one to ``throttled``. With ``cools`` the queue cools down from now for
          ``cools[n]`` (the last one beyond) or ``delay``, whichever is longer, n being its number
          of cool-downs so far, which rises by one up to 30; unless it cools down already, which
          changes nothing: many who hit one limiter are one hit. Either way the job is due no
          sooner than ``cool_until``. With ``drains`` every rate it draws on has an empty bucket.
        - SUCCEED sets a queue's number of cool-downs to 0, and forgets ``cool_until``, if that
          lies 120 s or more in the past (`windlass._core.limits.cooldown.RESET_AFTER`).
        - Breakers it draws on: RETRY and FAIL are a failure, SUCCEED closes, the rest is nothing
          (`windlass._core.limits.breaker`).
        - ``then`` is inserted, as `insert` does, if the transition's own verb took effect. It comes
          after all of the call, so it may hold a key that one of them gave up; while its key is
          held it is left out, whatever it says about conflicts. If it names a limit that was never
          defined: LimitUnknown, and nothing of the call happens; also where it would not have been
          inserted, for this is looked at before any claim is.
        - Rollups count the accepted ones, in the same transaction, under the verb that took
          effect. Repeated, refused and unknown ones change nothing at all.
        - Those who wait for results, for freed limits and for ready jobs are woken.
        """
        ...

    async def outlook(self, queues: Sequence[str]) -> Outlook:
        """Look whether a claim on these queues is worth its write lock. Read-only, and cheap.

        Yes where the stored version is too new. Not for a queue that is paused, cools down or runs
        as many as it may, or where all that waits is a job to run alone that its limits refuse.
        """
        ...

    async def active(self, queues: Sequence[str]) -> bool:
        """Whether anything of these queues is running, or is due while its queue is not paused.

        Read-only and cheap: for whoever works until there is nothing left.
        """
        ...

    async def report(self, progress: Sequence[tuple[Claim, Progress]]) -> None:
        """Store how far running jobs are. Fenced: a claim that is not held changes nothing."""
        ...

    async def settled(self, ids: Sequence[JobId]) -> Sequence[Settled]:
        """Those of ``ids`` that are terminal, and those that are not stored. Read-only."""
        ...

    async def cancel(self, ids: Sequence[JobId]) -> Sequence[CancelAnswer]:
        """Cancel waiting jobs at once; ask the workers of running ones. Answers in order."""
        ...
