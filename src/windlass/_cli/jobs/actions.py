"""Orders for jobs: for those that are named, or for everything that matches a filter."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from windlass._cli.jobs.bulk import run_bulk_action
from windlass._cli.jobs.filters import filter_of, filter_options, has_filter, instant_of
from windlass._cli.jobs.tables import ShownActionResult, print_action_results
from windlass._cli.options.groups import with_options
from windlass._cli.options.target import (
    json_option,
    run_on_target,
    target_and_names,
    target_of,
    url_option,
)
from windlass._core.job.ids import id_patterns_of

if TYPE_CHECKING:
    from windlass._app.app import Windlass
    from windlass._storage.protocol.actions import JobAction

__all__ = ["cancel", "delete", "discard", "edit", "requeue", "run_now"]

_names = click.argument("words", metavar="[MODULE:APP] ID...", nargs=-1)
_yes = click.option("--yes", is_flag=True, help="Do not ask.")

RunSingleAction = Callable[["Windlass", str], Awaitable[str]]
"""Carries out one order; the answer is what became of the job, in words."""


class _JobActionCommand(NamedTuple):
    """One order, for one job and for many."""

    verb: str
    """As it is asked about: Cancel 3 jobs?"""
    single: RunSingleAction
    many: Callable[[datetime], JobAction]
    """Made when the store's now is known."""
    asks: bool
    """Whether even one job is asked about: it cannot be undone."""


def _many(command: Callable[..., int]) -> Callable[..., int]:
    """Options of every order: which jobs, how many, and how carefully."""
    return with_options(
        command,
        click.option("--all", "every", is_flag=True, help="Everything that matches the filter."),
        filter_options,
        click.option("--limit", type=click.IntRange(1), help="With --all: at most so many."),
        click.option("--dry-run", is_flag=True, help="With --all: count, and change nothing."),
        _yes,
        url_option,
        json_option,
    )


@click.command()
@_names
@click.option("--as-new", is_flag=True, help="As another job; the old one stays as it is.")
@_many
def requeue(words: tuple[str, ...], *, as_new: bool, **given: Any) -> int:
    """Run failed, cancelled or discarded jobs again, with a fresh budget of attempts."""
    from windlass._storage.protocol.actions import Requeue

    if as_new and given["every"]:
        raise click.UsageError("--as-new is for jobs that are named, not for --all")

    async def single(app: Windlass, name: str) -> str:
        job = await app.admin.jobs.requeue(name, as_new=as_new)
        return f"runs again as job {job.id}" if as_new else "is ready to run again"

    return _carry_out(
        words, given, _JobActionCommand("Requeue", single, lambda _: Requeue(), asks=False)
    )


@click.command()
@_names
@_many
def cancel(words: tuple[str, ...], **given: Any) -> int:
    """Stop jobs: what waits does not run, what runs is asked to give way."""
    from windlass._storage.protocol.actions import Cancel

    return _carry_out(
        words, given, _JobActionCommand("Cancel", _cancel, lambda _: Cancel(), asks=True)
    )


async def _cancel(app: Windlass, name: str) -> str:
    from windlass._storage.protocol.jobs import CancelAnswer
    from windlass.errors import JobNotFound, WrongState

    match await app.admin.jobs.cancel(name):
        case CancelAnswer.CANCELLED:
            return "is cancelled and will not run"
        case CancelAnswer.REQUESTED:
            return "is running; its worker is told to stop it"
        case CancelAnswer.UNKNOWN:
            raise JobNotFound(name)
        case _:
            job = await app.admin.jobs.get(name)
            raise WrongState(name, job.state.value, "cancel", "a job that has not ended")


@click.command()
@_names
@click.option("--reason", default="discarded by an operator", show_default=True)
@_many
def discard(words: tuple[str, ...], *, reason: str, **given: Any) -> int:
    """Give up on failed jobs for good. They are kept for a while, with the reason."""
    from windlass._storage.protocol.actions import Discard

    async def single(app: Windlass, name: str) -> str:
        await app.admin.jobs.discard(name, reason=reason)
        return "is discarded"

    return _carry_out(
        words, given, _JobActionCommand("Discard", single, lambda _: Discard(reason), asks=True)
    )


@click.command("run-now")
@_names
@_many
def run_now(words: tuple[str, ...], **given: Any) -> int:
    """Make waiting jobs due now, whenever they were due."""
    from windlass._storage.protocol.actions import RunNow

    return _carry_out(
        words, given, _JobActionCommand("Run now", _run_now, lambda _: RunNow(), asks=False)
    )


async def _run_now(app: Windlass, name: str) -> str:
    from windlass.errors import WrongState

    if not await app.admin.jobs.run_now(name):
        job = await app.admin.jobs.get(name)
        raise WrongState(name, job.state.value, "run-now", "a waiting job")
    return "is due now"


@click.command()
@_names
@_many
def delete(words: tuple[str, ...], **given: Any) -> int:
    """Remove jobs with all that is stored of them; running ones are asked to end instead."""
    from windlass._storage.protocol.actions import Delete

    async def single(app: Windlass, name: str) -> str:
        gone = await app.admin.jobs.delete(name)
        return "is deleted" if gone else "is running; its worker is told, delete it when it ended"

    return _carry_out(
        words, given, _JobActionCommand("Delete", single, lambda _: Delete(), asks=True)
    )


@click.command()
@_names
@click.option("--due", metavar="INSTANT|IN", help="When to run, 2030-12-24T08:00+01:00 or 15m.")
@click.option("--priority", type=int, help="Lower runs first.")
@click.option("--to-queue", metavar="QUEUE", help="Wait there instead.")
@_many
def edit(
    words: tuple[str, ...],
    *,
    due: str | None,
    priority: int | None,
    to_queue: str | None,
    **given: Any,
) -> int:
    """Give waiting jobs another due time, priority or queue."""
    from windlass._admin.jobs.actions import edit_of

    if due is None and priority is None and to_queue is None:
        raise click.UsageError("say what to change: --due, --priority or --to-queue")

    def instant(now: datetime) -> datetime | None:
        return None if due is None else instant_of(due, now, "--due", ago=False)

    def many(now: datetime) -> JobAction:
        return edit_of(due=instant(now), priority=priority, queue=to_queue)

    async def single(app: Windlass, name: str) -> str:
        at = instant(await app.admin.storage.now())
        job = await app.admin.jobs.edit(name, due=at, priority=priority, queue=to_queue)
        return f"is due at {job.due:%Y-%m-%d %H:%M:%S} UTC on {job.queue}, priority {job.priority}"

    return _carry_out(words, given, _JobActionCommand("Edit", single, many, asks=False))


# --- carrying out ---------------------------------------------------------------------------------


def _carry_out(words: tuple[str, ...], given: Mapping[str, Any], wish: _JobActionCommand) -> int:
    if given["every"]:
        return _for_all(words, given, wish)
    if has_filter(given) or given["limit"] or given["dry_run"]:
        raise click.UsageError("filters, --limit and --dry-run go with --all")
    where, names = target_and_names(words, given["url"], "id")
    if len(names) > 1 and any(map(id_patterns_of, names)):
        raise click.UsageError("several jobs at once take whole ids, or --all with a filter")
    if wish.asks and not given["yes"]:
        what = f"job {names[0]}" if len(names) == 1 else f"{len(names):,} jobs"
        click.confirm(f"{wish.verb} {what}?", abort=True, err=True)

    async def each(app: Windlass) -> list[ShownActionResult]:
        return [await _one(app, name, wish.single) for name in names]

    return print_action_results(run_on_target(where, each), as_json=given["as_json"])


def _for_all(words: tuple[str, ...], given: Mapping[str, Any], wish: _JobActionCommand) -> int:
    if len(words) > 1 or (words and ":" not in words[0]):
        raise click.UsageError("name jobs, or say --all with a filter, not both")
    if not has_filter(given):
        raise click.UsageError(
            f"{wish.verb.lower()} which of all jobs? Say --state, --queue, --task or another filter"
        )
    return run_bulk_action(
        target_of(words[0] if words else None, given["url"]),
        lambda now: (wish.many(now), filter_of(given, now)),
        verb=wish.verb,
        most=given["limit"],
        dry_run=given["dry_run"],
        yes=given["yes"],
        as_json=given["as_json"],
    )


async def _one(app: Windlass, name: str, single: RunSingleAction) -> ShownActionResult:
    """Each on its own: one that cannot be carried out does not stop the others."""
    from windlass.errors import AmbiguousId, JobNotFound, KeyConflict, WrongState

    try:
        name = await app.admin.jobs.resolve(name)
        said = await single(app, name)
    except (AmbiguousId, JobNotFound, KeyConflict, WrongState) as error:
        return ShownActionResult(name, done=False, said=str(error))
    return ShownActionResult(name, done=True, said=f"Job {name} {said}.")
