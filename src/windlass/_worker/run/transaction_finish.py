"""Runs that end in a transaction of the handler's own, and what became of that transaction."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from datetime import datetime

import msgspec

from windlass._core.job.job import AttemptError, Claim, ClaimedJob, JobId
from windlass._core.job.outcome import Interrupted, Outcome, Raised, Succeeded
from windlass._core.job.transition import Transition
from windlass._storage.protocol.storage import Storage
from windlass._storage.protocol.transactions import ClaimEnd, ClaimEndAnswer, UserConnection
from windlass._tasks.task import TaskRegistry
from windlass._worker.finish.decisions import Decisions
from windlass._worker.run.execution import Execution, StopCause
from windlass._worker.run.progress import ProgressReporter
from windlass.errors import ClaimLost, ConfigError, StorageError, StorageReplaced

__all__ = ["CommittedFinish", "FinishInTransaction", "UndecidedFinish"]

log = logging.getLogger("windlass")

_FIRST_WAIT, _LONGEST_WAIT = 0.005, 1.0
_PATIENCE = 5.0
"""Seconds after which a transaction that outlives its handler is spoken of."""


class CommittedFinish(Succeeded, frozen=True, kw_only=True):
    """The success was committed with the handler's own writes: there is nothing left to store."""

    at: datetime
    left_out: Collection[JobId] = ()
    """The jobs among those it added that were not stored."""


class UndecidedFinish(Interrupted, frozen=True):
    """The handler's transaction may still be open, and this run must end: nothing is stored.

    A success would be stored although the writes are rolled back. Any other outcome would wait for
    the transaction and delay all others. The reaper finds this claim when the transaction is over.
    """


class FinishInTransaction:
    """``ctx.finish``: writes a success into the user's transaction, and reads it back at the end.

    A commit whose answer was lost, a rollback, a forgotten transaction: the stored claim says what
    happened, not the handler.
    """

    def __init__(
        self,
        storage: Storage,
        active: Mapping[Claim, Execution],
        decisions: Decisions,
        progress: ProgressReporter,
        tasks: TaskRegistry,
        *,
        result_limit: int,
        isolated: bool,
    ) -> None:
        """``progress`` is stored before the success.

        ``isolated``: a test has put the app's jobs into memory; the success is stored at the end.
        """
        self._storage = storage
        self._active = active
        self._decisions = decisions
        self._progress = progress
        self._tasks = tasks
        self._result_limit = result_limit
        self._isolated = isolated
        self.asked: dict[Claim, Transition] = {}
        """Runs that have called finish, and what they asked to be written."""
        self._left_out: dict[Claim, Collection[JobId]] = {}
        """The jobs of these that the storage has left out."""

    async def finish(self, job: ClaimedJob, result: object, connection: UserConnection) -> None:
        """Write the success on a connection that is awaited."""
        await self._progress.flush(job.claim)
        success = self._begin(job, result)
        if self._storage.transactions is not None:
            left_out = await self._storage.transactions.finish(connection, success)
            self._left_out[job.claim] = left_out

    def finish_sync(self, job: ClaimedJob, result: object, connection: UserConnection) -> None:
        """Write the success on a connection that blocks: from any thread."""
        self._progress.flush_from_thread(job.claim)
        success = self._begin(job, result)
        if self._storage.transactions is not None:
            left_out = self._storage.transactions.finish_sync(connection, success)
            self._left_out[job.claim] = left_out

    def _begin(self, job: ClaimedJob, result: object) -> Transition:
        if self._storage.transactions is None and not self._isolated:
            message = (
                f"ctx.finish(connection=...) writes the job's success into your PostgreSQL "
                f"transaction, and this job is in {self._storage.describe()}. Use postgresql:// "
                f"for jobs, in the same database; or return the result and make the handler safe "
                f"to repeat."
            )
            raise ConfigError(message)
        run = self._active.get(job.claim)
        if run is None:
            raise ClaimLost(job.claim.job, "the run is over: it timed out or was asked to stop")
        encoded = self._tasks[job.task].encode_result(result, limit=self._result_limit)
        outcome = Succeeded(encoded).adding(run.added or ())
        success = self._decisions.decide(job, outcome, by=job.worker)
        success = self._decisions.follow(job, success)
        if run.metadata is not None:
            success = msgspec.structs.replace(success, metadata=run.metadata)
        # From now on the row may be locked by the user's transaction: a note about progress would
        # have to wait for its end, and the notes of every other job with it.
        self._progress.mute(job.claim)
        self.asked[job.claim] = success
        return success

    async def resolve(self, run: Execution, outcome: Outcome) -> Outcome:
        """Return the outcome of a run that has called finish, for any end of its handler."""
        success = self.asked.pop(run.job.claim)
        left_out = self._left_out.pop(run.job.claim, ())
        if self._storage.transactions is None:
            return Succeeded(success.result) if isinstance(outcome, Succeeded) else outcome
        ended = await self._look(run, success)
        if ended is None:
            return UndecidedFinish()
        if ended.what is ClaimEnd.LOST:
            return outcome  # the store will not take it
        if ended.what is ClaimEnd.STORED:
            if not isinstance(outcome, Succeeded):
                log.warning(
                    "job %s was finished and committed by its handler, which then ended "
                    "differently (%s): the job has succeeded",
                    run.job.claim.job,
                    getattr(getattr(outcome, "error", None), "kind", type(outcome).__name__),
                )
            return CommittedFinish(
                success.result,
                success.then,
                success.flows,
                at=ended.at,
                left_out=left_out,
            )
        if not isinstance(outcome, Succeeded):
            return outcome
        message = (
            "the handler called ctx.finish() and returned, but the transaction was not committed: "
            "its writes and the success are undone. Let its errors pass, and commit before "
            "returning."
        )
        return Raised(AttemptError("NotCommitted", message))

    async def _look(self, run: Execution, success: Transition) -> ClaimEndAnswer | None:
        """Ask until it is decided; None when this run may not wait for that."""
        store, pause, waited = self._storage.transactions, _FIRST_WAIT, 0.0
        while store is not None:
            try:
                ended = await store.ended(success)
                if ended.what is not ClaimEnd.OPEN:
                    return ended
                await asyncio.sleep(pause)
            except asyncio.CancelledError:
                if run.why is not StopCause.CANCEL:
                    return None  # the worker stops, or was declared dead
            except StorageReplaced:
                return None
            except StorageError as error:
                log.debug("cannot read yet how job %s ended: %s", run.job.claim.job, error)
                if not await _rest(pause, run):
                    return None
            except Exception:
                log.exception("cannot read how job %s ended", run.job.claim.job)
                return None
            if waited < _PATIENCE <= waited + pause:
                log.warning(
                    "the handler of job %s has ended, and a transaction in which it called "
                    "ctx.finish() is still open; commit it or roll it back",
                    run.job.claim.job,
                )
            waited, pause = waited + pause, min(pause * 2, _LONGEST_WAIT)
        return None


async def _rest(seconds: float, run: Execution) -> bool:
    """Sleep; False when the run has to end now."""
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        return run.why is StopCause.CANCEL
    return True
