"""What goes into the stores and what comes out of them. Part of the contract: `protocol`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from windlass.core.job import Claim, ClaimedJob, JobId
from windlass.core.state import State, Verb

__all__ = [
    "HEARD",
    "Answer",
    "Applied",
    "Beat",
    "CancelAnswer",
    "ClaimReply",
    "Duty",
    "Ended",
    "Ending",
    "Inserted",
    "Outlook",
    "Settled",
    "Standing",
    "Verdict",
    "Want",
    "WorkerRecord",
    "WorkerStart",
    "WorkerState",
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


class Answer(msgspec.Struct, frozen=True):
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
    answers: Sequence[Answer]


class Ending(StrEnum):
    """What has become of a claim that was finished in a transaction of the user's."""

    STORED = "stored"
    """It was committed: the job has succeeded under this claim."""
    OPEN = "open"
    """Not decided: the transaction, or somebody else's, holds the row."""
    HELD = "held"
    """It was rolled back: the job is still running under this claim."""
    LOST = "lost"
    """The claim was ended otherwise."""


class Ended(msgspec.Struct, frozen=True):
    """The answer to `TransactionStore.ended`."""

    what: Ending
    at: datetime
    """When the job succeeded, if it did; else the store's now."""


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


class WorkerState(StrEnum):
    """A worker's row is live until it says goodbye or is buried."""

    LIVE = "live"
    DEAD = "dead"
    GONE = "gone"


class Duty(StrEnum):
    """What a worker is asked to do; it hears of it with its next beat."""

    WORK = "work"
    QUIET = "quiet"
    """Take nothing new; what runs goes on."""
    STOP = "stop"
    """Leave in order, and take nothing new from now on. Never taken back."""


class Standing(StrEnum):
    """How a worker is, as people ask: its row, its last beat and its duty in one word."""

    LIVE = "live"
    QUIET = "quiet"
    STOPPING = "stopping"
    SILENT = "silent"
    """Not heard of within its lease: others are about to take it for dead."""
    DEAD = "dead"
    GONE = "gone"


HEARD = frozenset({Standing.LIVE, Standing.QUIET, Standing.STOPPING})
"""How those are that were heard of within their lease."""

_OF_DUTY = {
    Duty.WORK: Standing.LIVE,
    Duty.QUIET: Standing.QUIET,
    Duty.STOP: Standing.STOPPING,
}


class WorkerStart(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker says about itself when it registers."""

    id: str
    host: str
    pid: int
    version: str
    queues: Sequence[str]
    slots: int
    lease: timedelta
    boot_id: str = ""
    lock_device: int = 0
    lock_inode: int = 0
    tasks: Sequence[str] = ()
    """What it can run, by name."""
    clock: datetime | None = None
    """Its own clock when it registered: the store's tells how far it is off."""
    signatures: Mapping[str, str] = {}
    """Which arguments its tasks take, as a fingerprint by name (`Codec.fingerprint`). A worker of
    an older version says nothing."""
    pools: Mapping[str, int] = {}
    """Slots of each queue where every queue has its own; empty: all queues share ``slots``."""


class WorkerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's row."""

    start: WorkerStart
    state: WorkerState
    started_at: datetime
    beat_at: datetime
    ended_at: datetime | None = None
    running: int = 0
    """Claims it holds."""
    memory: int | None = None
    """Bytes in use at its last beat that said so."""
    duty: Duty = Duty.WORK
    """What it is asked to do."""

    def standing(self, now: datetime) -> Standing:
        """How it is at this instant of the store's clock."""
        if self.state is not WorkerState.LIVE:
            return Standing(self.state.value)
        silent = now - self.beat_at > self.start.lease
        return Standing.SILENT if silent else _OF_DUTY[self.duty]


class Beat(msgspec.Struct, frozen=True):
    """The answer to a heartbeat."""

    live: bool
    """False: buried, or no such row. The worker must take a new identity."""
    at: datetime
    cancelled: Sequence[Claim] = ()
    """Claims of this worker whose cancellation is requested."""
    holding: Sequence[Claim] = ()
    """Every claim the store says this worker holds."""
    duty: Duty = Duty.WORK
