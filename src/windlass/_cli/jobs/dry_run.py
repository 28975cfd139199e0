"""Run the handler of a stored job once, on an empty storage in memory."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from typing import Any

import click
import msgspec

from windlass._app.app import Windlass
from windlass._app.parts import AppParts, parts_of
from windlass._core.flows.flow import Addition, NewFlow
from windlass._core.job.event import Event, JobEnqueued
from windlass._core.job.job import (
    NO_TIMEOUT,
    AttemptError,
    Claim,
    ClaimedJob,
    JobRecord,
    Progress,
)
from windlass._core.job.outcome import Outcome, Succeeded
from windlass._core.job.state import State
from windlass._core.schedule.previous_run import PreviousRun
from windlass._core.values.metadata import Metadata
from windlass._observe.log import HumanFormatter, printable
from windlass._storage.open import StorageOpener
from windlass._storage.protocol.transactions import UserConnection
from windlass._system.seams import Seams
from windlass._tasks.call import OptionInheritance
from windlass._tasks.context import CallNext, Context, ContextHost
from windlass._tasks.flows.flow import Flow
from windlass._tasks.services import Services
from windlass._tasks.task import Call
from windlass._worker.run.execution import RunEnded, RunLimits
from windlass._worker.run.runner import Runner
from windlass.errors import WindlassError

__all__ = ["DryRunResult", "as_claimed", "run_dry"]

_WORKER = "replay"
_REFUSED = (
    "a replay ends at ctx.finish: only a worker finishes the job. Roll the transaction back, "
    "or let this error pass"
)


class _FinishCalled(WindlassError):
    """Raised by ctx.finish, so that the handler's transaction is rolled back."""


class DryRunResult(msgspec.Struct, frozen=True):
    """How it went."""

    outcome: Outcome
    error: BaseException | None
    """The handler's exception, with its frames, if the handler was entered."""
    finished: bool = False
    """It called ctx.finish, with the result of the outcome."""


def as_claimed(job: JobRecord, now: datetime, *, timed: bool) -> ClaimedJob:
    """Return the job as a worker would claim it: with its current attempt, or the next one."""
    error = job.error
    return ClaimedJob(
        claim=Claim(job.id, job.claim_number, job.seq),
        task=job.task,
        queue=job.queue,
        payload=job.payload,
        attempt=max(job.attempt + (job.state is State.WAITING), 1),
        max_attempts=job.max_attempts,
        budget=job.budget,
        due=job.due,
        started_at=now,
        worker=_WORKER,
        timeout=job.timeout if timed else NO_TIMEOUT,
        lost=job.lost,
        error=None if error is None else AttemptError(error.kind, error.message),
        tenant=job.tenant,
        principal=job.principal,
        correlation_id=job.correlation_id,
        trace=job.trace,
        tags=job.tags,
        on_failure=job.on_failure,
        on_lost=job.on_lost,
    )


@asynccontextmanager
async def run_dry(app: Windlass, claimed: ClaimedJob) -> AsyncIterator[DryRunResult]:
    """Run it inside the app's lifespans and middleware, and yield before they end.

    Meanwhile the app has an empty storage in memory: the handler cannot change stored jobs.
    """
    with _told(app):
        async with _arranged(app), parts_of(app).hooks.living():
            yield await _run(app, claimed)


async def _run(app: Windlass, claimed: ClaimedJob) -> DryRunResult:
    ended: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    raised: list[BaseException] = []

    async def keep(_context: Context, call_next: CallNext) -> Any:
        try:
            return await call_next()
        except BaseException as error:
            raised.append(error)
            raise

    parts, limits = parts_of(app), app.settings
    stage = _DryRunHost(parts)
    runner = Runner(
        app.tasks,
        stage,
        _Ended(ended),
        RunLimits(result_limit=limits.result_limit, error_limit=limits.error_limit),
        layers=[*parts.hooks.layers, keep],
    )
    try:
        runner.start([claimed])
        outcome, error = await ended, raised[0] if raised else None
        if stage.finished is not None and (error is None or _holds_finished(error)):
            return DryRunResult(stage.finished, None, finished=True)
        return DryRunResult(outcome, error)
    finally:
        runner.close()


class _Ended:
    """Takes the end of the one run."""

    def __init__(self, outcome: asyncio.Future[Outcome]) -> None:
        self._outcome = outcome

    def add(self, ended: RunEnded) -> None:
        self._outcome.set_result(ended.outcome)


class _DryRunHost(ContextHost):
    """Serves the handler's context: prints everything and stores nothing."""

    def __init__(self, parts: AppParts) -> None:
        self._parts = parts
        self.finished: Succeeded | None = None
        """The values that the handler passed to ctx.finish."""

    @property
    def state(self) -> Any:
        return self._parts.hooks.state

    @property
    def services(self) -> Services:
        return self._parts.hooks.services

    def note(self, job: ClaimedJob, progress: Progress) -> None:  # noqa: ARG002 -- there is one job
        data = "" if progress.data is None else msgspec.json.encode(progress.data).decode()
        _tell(" ".join(filter(None, ["progress", f"{progress.fraction:.0%}", progress.note, data])))

    def noted(self, job: ClaimedJob, metadata: Metadata) -> None:  # noqa: ARG002
        _tell(f"metadata {msgspec.json.encode(metadata).decode()}")

    async def enqueue_from(self, job: ClaimedJob, call: Call[Any]) -> Any:
        inherited = OptionInheritance().inherit(call, job)
        return await self._parts.producer.enqueue_call(inherited)

    def make_jobs(self, job: ClaimedJob, calls: Sequence[Call[Any] | Flow]) -> list[Addition]:
        jobs = self._parts.producer.make_jobs(job, calls)
        for new in jobs:
            if isinstance(new, NewFlow):
                _tell(f"would add flow {new.name!r} of {len(new.jobs)} jobs with the success")
            else:
                _tell(f"would enqueue {new.task} on queue {new.queue} with the success")
        return jobs

    async def previous_run(self, job: ClaimedJob) -> PreviousRun | None:
        return self.previous_run_sync(job)

    def previous_run_sync(self, job: ClaimedJob) -> PreviousRun | None:  # noqa: ARG002
        _tell("ctx.previous_run() is None here: the storage of this run is empty")
        return None

    async def finish(self, job: ClaimedJob, result: object, connection: UserConnection) -> None:
        self.finish_sync(job, result, connection)

    def finish_sync(self, job: ClaimedJob, result: object, connection: UserConnection) -> None:  # noqa: ARG002
        limit = self._parts.settings.result_limit
        self.finished = Succeeded(self._parts.tasks[job.task].encode_result(result, limit=limit))
        raise _FinishCalled(_REFUSED)


def _holds_finished(error: BaseException) -> bool:
    """Tell whether ctx.finish raised it or caused it."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, _FinishCalled):
            return True
        if isinstance(seen, BaseExceptionGroup):
            return all(_holds_finished(each) for each in seen.exceptions)
        seen = seen.__cause__
    return False


@asynccontextmanager
async def _arranged(app: Windlass) -> AsyncIterator[None]:
    alone = msgspec.structs.replace(app.settings, url="memory://", durability=None)
    with parts_of(app).on_storage(StorageOpener(alone), Seams()):
        try:
            yield
        finally:
            await app.close()


@contextmanager
def _told(app: Windlass) -> Iterator[None]:
    """Print what the handler logs and enqueues, on standard error."""
    lines = logging.StreamHandler(sys.stderr)
    lines.setFormatter(HumanFormatter(colour=sys.stderr.isatty()))
    root = logging.getLogger()
    level = root.level
    root.addHandler(lines)
    root.setLevel(min(level or logging.INFO, logging.INFO))
    undo = parts_of(app).hooks.bus.subscribe(_enqueued)
    try:
        yield
    finally:
        undo()
        root.removeHandler(lines)
        root.setLevel(level)


def _enqueued(event: Event) -> None:
    if isinstance(event, JobEnqueued):
        _tell(f"would enqueue {event.task} on queue {event.queue}; nothing was stored")


def _tell(text: str) -> None:
    click.echo(f"  {printable(text)}", err=True)
