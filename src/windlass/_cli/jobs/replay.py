"""``windlass jobs replay``: run the handler of a stored job here, without changing the job."""

from __future__ import annotations

import asyncio
import re
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

import click

from windlass._app.parts import parts_of
from windlass._cli.exit_codes import HANDLER_FAILED, IN_ORDER
from windlass._cli.options.groups import examples
from windlass._cli.options.target import (
    Target,
    json_option,
    run_on_target,
    target_and_name,
    url_option,
)

if TYPE_CHECKING:
    from windlass._app.app import Windlass
    from windlass._cli.jobs.dry_run import DryRunResult
    from windlass._core.job.job import JobRecord
    from windlass._core.job.outcome import Outcome

__all__ = ["replay"]

_PACKAGE = str(Path(__file__).parents[2])


@click.command(
    epilog=examples(
        "windlass jobs replay shop:app 0198c3a7…9c4e07",
        "windlass jobs replay shop:app 0198c3a7…9c4e07 --pdb",
    )
)
@click.argument("words", metavar="MODULE:APP ID", nargs=-1)
@click.option("--pdb", "debug", is_flag=True, help="Open the debugger where the handler raises.")
@url_option
@json_option
def replay(words: tuple[str, ...], url: str | None, *, debug: bool, as_json: bool) -> int:
    """Run the handler of a stored job in this terminal. The job is not changed.

    The handler runs as in a worker, with the job's arguments, inside the app's lifespans and
    middleware. A handler with run_in="process" runs in this process. Log lines, progress and
    enqueued jobs are printed, and enqueued jobs are not stored. ctx.finish raises, so that your
    transaction is rolled back.

    Other side effects are real: mails are sent, rows are written.

    \b
    Exit code  0  the handler returned, or called ctx.finish
               3  the handler did not return
               1  the handler could not be run
    """  # noqa: D301 -- click's mark for lines that stay as they are
    from windlass._cli.app_loader import load_app

    where, name = target_and_name(words, url, "id")
    if where.target is None:
        raise click.UsageError(
            "replay needs the code of the job: name the app that has its task, "
            f"windlass jobs replay MODULE:APP {name}"
        )
    app = load_app(where.target)
    job, now = _read(where, name)
    _check(app, job)
    click.echo(_heading(job), err=True)
    went = asyncio.run(_rehearsed(app, job, now, debug=debug))
    last = job.attempt + (job.state.value == "waiting") >= job.max_attempts
    return _told(job, went, last=last, as_json=as_json)


def _read(where: Target, name: str) -> tuple[JobRecord, datetime]:
    """Read the job with its secrets. The handler needs them; they are not printed."""
    from windlass.errors import JobNotFound

    async def question(app: Windlass) -> tuple[JobRecord, datetime]:
        storage = await parts_of(app).storage()
        (job,) = await storage.admin.get([await app.admin.jobs.resolve(name)])
        if job is None:
            raise JobNotFound(name)
        return job, await storage.now()

    return run_on_target(where, question)


def _check(app: Windlass, job: JobRecord) -> None:
    from windlass._core.flows.pending import has_pending
    from windlass.errors import InvalidArgument, UnknownTask

    if app.tasks.find(job.task) is None:
        raise UnknownTask(job.task, app.tasks.names)
    if has_pending(job.payload):
        message = (
            f"job {job.id} takes results of its flow, which replay does not read: requeue the job, "
            f"or call its function with values of your own"
        )
        raise InvalidArgument(message)


def _heading(job: JobRecord) -> str:
    from windlass._observe.log import printable

    at_work = f" on worker {job.worker}" if job.state.value == "running" else ""
    return printable(
        f"Replaying job {job.id}, task {job.task}. The stored job ({job.state.value}{at_work}) "
        f"is not changed."
    )


async def _rehearsed(app: Windlass, job: JobRecord, now: datetime, *, debug: bool) -> DryRunResult:
    from windlass._cli.jobs.dry_run import as_claimed, run_dry

    # A debugger takes its time.
    claimed = as_claimed(job, now, timed=not debug)
    async with run_dry(app, claimed) as went:
        if debug and went.error is not None:
            # Here, not later: what the app has opened for its handlers is still open.
            _debug(went.error)
        return went


def _debug(error: BaseException) -> None:
    import pdb  # noqa: T100 -- asked for
    import traceback

    traceback.print_exception(error)
    pdb.post_mortem(error.__traceback__)


def _told(job: JobRecord, went: DryRunResult, *, last: bool, as_json: bool) -> int:
    from windlass._cli.jobs.tables import json_of
    from windlass._cli.output.tables import print_json, print_line

    kind, text, trace, result = _in_words(went.outcome, last=last)
    if went.finished:
        text = (
            f"It called ctx.finish with {_returned(result)}. A worker would have stored that with "
            f"your transaction. Here ctx.finish raised, to roll the transaction back."
        )
    if as_json:
        error = {"text": text, "traceback": trace}
        value = None if result is None else json_of(result)
        told = {"id": job.id, "task": job.task, "outcome": kind, "result": value}
        print_json({**told, "error": None if kind == "succeeded" else error})
    else:
        for line in trace.splitlines():
            print_line(_printable(line))
        print_line(_printable(text))
    return IN_ORDER if kind == "succeeded" else HANDLER_FAILED


def _returned(result: bytes | None) -> str:
    return "nothing" if result is None else result.decode(errors="replace")


def _theirs(trace: str) -> str:
    """Return a traceback without the frames of this package, except the one that raised."""
    head, *frames = re.split(r'(?m)^(?=  File ")', trace)
    way = [frame for frame in frames[:-1] if not frame.startswith(f'  File "{_PACKAGE}')]
    return head + "".join([*way, *frames[-1:]])


def _printable(text: str) -> str:
    from windlass._observe.log import printable

    return printable(text)


def _in_words(outcome: Outcome, *, last: bool) -> tuple[str, str, str, bytes | None]:
    """Return the outcome's name, a sentence about it, the traceback and the result."""
    from windlass._core.job import outcome as core
    from windlass._observe.log import brief, error_in_one_line

    error: Any = getattr(outcome, "error", None)
    trace = "" if error is None else _theirs(error.traceback)
    said = "" if error is None else error_in_one_line(error)
    match outcome:
        case core.Succeeded(result):
            return "succeeded", f"It returned {_returned(result)}.", "", result
        case core.Misfit():
            return "misfit", f"The arguments do not fit the function: {said}", trace, None
        case core.Raised(barred=True) | core.GaveUp():
            return "failed", f"A worker would fail the job for good: {said}", trace, None
        case core.Raised(after=after):
            when = "" if after is None else f" after {brief(after)}"
            left = "fail the job, this was its last attempt" if last else f"retry it{when}"
            return "raised", f"A worker would {left}: {said}", trace, None
        case core.Snoozed(after):
            return "snoozed", f"It asked to run again after {brief(after)}.", "", None
        case core.Throttled(after):
            return "throttled", f"It was throttled for {brief(after)} or more.", "", None
        case core.Crashed():
            return "crashed", f"It raised an error that is no Exception: {said}", trace, None
        case core.Missing() | core.Lost() | core.Cancelled() | core.Interrupted() | core.CutOff():
            return "interrupted", f"It did not finish. {said}".rstrip(), trace, None
        case _:
            assert_never(outcome)
