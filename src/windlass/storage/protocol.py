"""The seam between Windlass and where jobs live. The docstrings are the contract.

A backend is a `Storage` made of narrow stores. Everything takes and returns batches; every
operation is atomic, and every operation may be repeated safely after a lost answer. The storage
owns the clock: one instant is read inside each operation, delays come in as durations.
``windlass.testing.conformance`` holds every backend to these words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from windlass.core.job import Claim, ClaimedJob, JobId, NewJob, Progress
from windlass.core.queue import QueueSettings
from windlass.core.state import State
from windlass.core.transition import Transition
from windlass.storage.answers import (
    Answer,
    Applied,
    Beat,
    CancelAnswer,
    ClaimReply,
    Duty,
    Ended,
    Ending,
    Inserted,
    Outlook,
    Settled,
    Verdict,
    Want,
    WorkerRecord,
    WorkerStart,
    WorkerState,
)
from windlass.storage.asking import AdminStore
from windlass.storage.cluster import LeaderStore, Pulse, Wakeups
from windlass.storage.journal import JournalStore
from windlass.storage.limiting import LimitStore
from windlass.storage.looks import (
    ErrorLook,
    JobFilter,
    LimitState,
    Named,
    Page,
    QueueCounts,
    QueueRecord,
)
from windlass.storage.moving import MovingStore
from windlass.storage.ordering import AuditNote, OrderStore
from windlass.storage.scheduling import (
    DueSchedules,
    ScheduleAnswer,
    ScheduleRow,
    ScheduleStore,
    ScheduleWrite,
    Written,
)
from windlass.storage.transacting import (
    TransactionStore,
    UserConnection,
    UserInsertStore,
    UserTransactionStore,
)

__all__ = [
    "AdminStore",
    "Answer",
    "Applied",
    "AuditNote",
    "Beat",
    "CancelAnswer",
    "ClaimReply",
    "DueSchedules",
    "Duty",
    "Ended",
    "Ending",
    "ErrorLook",
    "Inserted",
    "JobFilter",
    "JobStore",
    "JournalStore",
    "LeaderStore",
    "LimitState",
    "LimitStore",
    "MaintenanceStore",
    "MovingStore",
    "Named",
    "OrderStore",
    "Outlook",
    "Page",
    "Pulse",
    "QueueCounts",
    "QueueRecord",
    "QueueStore",
    "ScheduleAnswer",
    "ScheduleRow",
    "ScheduleStore",
    "ScheduleWrite",
    "Settled",
    "Storage",
    "Stores",
    "TransactionStore",
    "UserConnection",
    "UserInsertStore",
    "UserTransactionStore",
    "Verdict",
    "Wakeups",
    "Want",
    "WorkerRecord",
    "WorkerStart",
    "WorkerState",
    "WorkerStore",
    "Written",
]


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
          lies 120 s or more in the past (`core.cooling.GRACE`).
        - Breakers it draws on: RETRY and FAIL are a failure, SUCCEED closes, the rest is nothing
          (`core.breaker`).
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


class WorkerStore(Protocol):
    """Who works here, and who is believed dead."""

    def pulse(self) -> Pulse:
        """A way to beat on another event loop: heartbeats live on a thread of their own, so that
        a handler that blocks the worker's loop does not get the worker buried.
        """
        ...

    async def register(self, start: WorkerStart) -> datetime:
        """Make the worker's row, live, unless there is one. The answer is the store's now."""
        ...

    async def beat(self, worker: str, *, memory: int | None = None) -> Beat:
        """Renew the worker's lease if its row is live, and say what it holds.

        A late beat that finds its row live renews it, however late. ``memory``: what the process
        uses, in bytes; None: it does not say, and what it said before stays.
        """
        ...

    async def bury(self, workers: Sequence[str]) -> Sequence[str]:
        """Turn live rows dead, by compare-and-set; the answer names those this call turned.

        Ends no claim: it refuses new ones (`JobStore.claim`), and the reaper ends old ones by
        fenced writes. Until such a write a finish by the buried worker is accepted.
        """
        ...

    async def bury_overdue(self, workers: Sequence[str]) -> Sequence[str]:
        """Like `bury`, but only those `overdue` right now: a beat that came since saves them."""
        ...

    async def overdue(self) -> Sequence[str]:
        """Live workers whose last beat is longer ago than their own lease. Changes nothing."""
        ...

    async def orphans(self, limit: int) -> Sequence[ClaimedJob]:
        """Running jobs whose worker's row is missing or not live, at most ``limit``: worker by
        worker, of each the oldest claim first. Without their payload, which is left empty: nobody
        who ends a claim needs it, and it may be large.
        """
        ...

    async def assign(
        self, workers: Sequence[str], duty: Duty, *, audit: AuditNote | None = None
    ) -> Sequence[str]:
        """Ask live workers for something else than before; those whose duty it is now, in order.

        A worker that was told to stop stays so: it may have heard of it.
        """
        ...

    async def cancel_requests(self, worker: str) -> Sequence[Claim]:
        """Claims of this worker to be cancelled, between beats. Read-only, cheap: for hints."""
        ...

    async def leave(self, worker: str, releases: Sequence[Transition]) -> Applied:
        """Say goodbye: apply ``releases`` and end the worker's row, in one transaction.

        Claims the row still holds that are not among the releases are released too, with their
        attempt given back, as claims that were never started (`JobStore.apply`). A row that has
        ended before stays as it ended.
        """
        ...

    async def live(self) -> Sequence[WorkerStart]:
        """What the live rows said about themselves, newest first. Read-only and cheap."""
        ...

    async def workers(self) -> Sequence[WorkerRecord]:
        """Every stored row, newest first."""
        ...


class MaintenanceStore(Protocol):
    """Chores in bounded bites; each returns how much it did, so callers can go on until less."""

    async def promote(self, limit: int) -> int:
        """Mark up to ``limit`` due jobs ready, so that claims need not; wake the workers. Those
        with ``missed_at`` are left to claims, which know who could not run them.
        """
        ...

    async def next_due(self, queues: Sequence[str] | None = None) -> datetime | None:
        """When the next waiting job of these queues that is not ready falls due; None: of all.

        Read-only, and cheap however many jobs and queues there are.
        """
        ...

    async def expire(self, limit: int) -> Sequence[JobId]:
        """Discard up to ``limit`` waiting jobs past their expiry; which."""
        ...

    async def prune(
        self,
        *,
        state: State,
        older_than: timedelta,
        limit: int,
        apart: Mapping[str, timedelta] | None = None,
    ) -> int:
        """Delete up to ``limit`` jobs, with history, that reached this state longer ago; those of
        the queues in ``apart`` longer ago than it says there. Flat, whoever keeps how much.
        """
        ...

    async def prune_rollups(self, *, older_than: timedelta, limit: int) -> int:
        """Delete old rollups."""
        ...

    async def compact_rollups(self, *, older_than: timedelta, limit: int) -> int:
        """Merge the minutes of each whole hour that ended longer ago into its first minute, for
        all workers together; at most about ``limit`` rows in one call. How many rows that saved.
        What `AdminStore.rollups` says of whole hours stays the same but for the minute.
        """
        ...

    async def prune_audits(self, *, older_than: timedelta, limit: int) -> int:
        """Delete old audit records."""
        ...

    async def prune_events(self, *, older_than: timedelta, limit: int) -> int:
        """Delete old events."""
        ...

    async def prune_workers(self, *, older_than: timedelta, limit: int) -> int:
        """Delete rows of workers that ended longer ago than that and hold no claim."""
        ...

    async def tidy(self) -> None:
        """Whatever the backend needs now and then: checkpoints, vacuum, statistics."""
        ...


class QueueStore(Protocol):
    """What holds for whole queues."""

    async def queues(self) -> Sequence[QueueRecord]:
        """Queues with settings, paused or cooled down, by name. Read-only, cheap: every worker
        asks every second.
        """
        ...

    async def change(
        self,
        queue: str,
        new: QueueSettings,
        *,
        old: QueueSettings,
        audit: AuditNote | None = None,
    ) -> bool:
        """Store settings if those stored are still ``old`` (none are those of a plain
        `QueueSettings`); False: they are not. Takes effect at the next claim. Wakes workers.
        """
        ...

    async def warm(self, queue: str, *, audit: AuditNote | None = None) -> None:
        """End a cool-down and forget those before it. Wakes workers."""
        ...


class Stores(Protocol):
    """What a backend is made of."""

    @property
    def jobs(self) -> JobStore: ...
    @property
    def workers(self) -> WorkerStore: ...
    @property
    def leader(self) -> LeaderStore: ...
    @property
    def limits(self) -> LimitStore: ...
    @property
    def maintenance(self) -> MaintenanceStore: ...
    @property
    def queues(self) -> QueueStore: ...
    @property
    def schedules(self) -> ScheduleStore: ...
    @property
    def admin(self) -> AdminStore: ...
    @property
    def orders(self) -> OrderStore: ...
    @property
    def journal(self) -> JournalStore: ...
    @property
    def moving(self) -> MovingStore: ...
    @property
    def wakeups(self) -> Wakeups: ...

    @property
    def transactions(self) -> TransactionStore | None:
        """None: this backend cannot take part in the user's transactions."""
        ...


class Storage(Stores, Protocol):
    """A backend, opened for one event loop."""

    @property
    def shared(self) -> bool:
        """Whether other processes see the same jobs."""
        ...

    def describe(self) -> str:
        """Backend, version and place in one line, without secrets."""
        ...

    async def health(self) -> Mapping[str, float | str]:
        """What the backend can say of itself now, by name.

        ``size`` (bytes of all it keeps) and more of its own; what cannot be answered is left out.
        Bytes, seconds and counts are numbers, settings the words of the server. Names that
        `windlass doctor` judges:

        - everywhere ``version``, ``durability`` (the one asked for)
        - SQLite: ``filesystem``, ``network_filesystem`` (yes, no), ``wal``, ``free_disk``
        - PostgreSQL: ``synchronous_commit``, ``fsync``, ``full_page_writes``, ``autovacuum``,
          ``dead_rows``, ``live_rows``, ``oldest_snapshot`` (seconds), ``oldest_snapshot_of`` (who),
          ``connections``, ``max_connections``, ``pooled`` (yes: by PgBouncer or its like)
        - Redis: ``appendonly``, ``appendfsync``, ``last_write`` (to that file: ok, err),
          ``eviction`` (its policy), ``maxmemory``, ``replicas``; ``size`` is the memory it uses
        """
        ...

    def prove_dead(self, worker: WorkerStart) -> bool:
        """Whether this worker's death can be proven at once, on this machine. A proof needs no
        lease to run out; no proof means nothing.
        """
        ...

    def hold_worker_lock(self, worker: str) -> tuple[str, int, int]:
        """Take the lock that dies with this process; the answer is boot id, device and inode for
        the worker's row, or ("", 0, 0) where the backend has no such proof.
        """
        ...

    def release_worker_lock(self, worker: str) -> None:
        """Let go of it, after the row has ended."""
        ...

    async def now(self) -> datetime:
        """The store's clock."""
        ...

    async def close(self) -> None:
        """Finish what is under way and let go of every resource. Safe to repeat."""
        ...
