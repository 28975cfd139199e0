"""Actions on jobs: on those that are named, or on every job that matches a filter."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from windlass._cli.jobs.bulk import run_bulk_action
from windlass._cli.jobs.filters import filter_of, filter_options, has_filter, instant_of
from windlass._cli.jobs.tables import ShownActionResult, print_action_results
from windlass._cli.options.confirmation import confirm
from windlass._cli.options.groups import examples, with_options
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
_yes = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")

RunSingleAction = Callable[["Windlass", str], Awaitable[str]]
"""Carries out one action and says what became of the job."""


class _JobActionCommand(NamedTuple):
    """One action, for one job and for many."""

    phrase: str
    """``Cancel {}``, for ``Cancel 3 jobs?``."""
    single: RunSingleAction
    many: Callable[[datetime], JobAction]
    """Made when the store's now is known."""
    asks: bool
    """Whether one job needs a confirmation, too: it cannot be undone."""


def _many(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options of every action."""
    return with_options(
        command,
        click.option(
            "--all", "every", is_flag=True, help="Select every job that matches the filters."
        ),
        filter_options,
        click.option(
            "--limit",
            type=click.IntRange(1),
            help="With --all: change at most this number of jobs.",
        ),
        click.option("--dry-run", is_flag=True, help="With --all: count jobs and change nothing."),
        _yes,
        url_option,
        json_option,
    )


@click.command(
    epilog=examples(
        "windlass jobs requeue shop:app 0198c3a7…9c4e07",
        "windlass jobs requeue shop:app --all --state failed --task send_email --dry-run",
    )
)
@_names
@click.option(
    "--as-new", is_flag=True, help="Enqueue a copy as a new job and leave the old job unchanged."
)
@_many
def requeue(words: tuple[str, ...], *, as_new: bool, **given: Any) -> int:
    """Run failed, cancelled or discarded jobs again, with all their attempts."""
    from windlass._storage.protocol.actions import Requeue

    if as_new and given["every"]:
        raise click.UsageError("--as-new needs job ids: it does not go with --all")

    async def single(app: Windlass, name: str) -> str:
        job = await app.admin.jobs.requeue(name, as_new=as_new)
        return f"runs again as job {job.id}" if as_new else "is ready to run again"

    return _carry_out(
        words, given, _JobActionCommand("Requeue {}", single, lambda _: Requeue(), asks=False)
    )


@click.command(
    epilog=examples(
        "windlass jobs cancel shop:app 0198c3a7…9c4e07 --children",
        "windlass jobs cancel shop:app --all --queue mail --state waiting --yes",
    )
)
@_names
@click.option(
    "--children", is_flag=True, help="Also cancel the jobs that these have enqueued, at any depth."
)
@_many
def cancel(words: tuple[str, ...], *, children: bool, **given: Any) -> int:
    """Cancel jobs. Waiting jobs will not run; running jobs are asked to stop."""
    from windlass._storage.protocol.actions import Cancel

    if children and given["every"]:
        raise click.UsageError("--children needs job ids: it does not go with --all")
    phrase = "Cancel {} and the jobs below" if children else "Cancel {}"
    single = _cancel_with_children if children else _cancel
    return _carry_out(
        words, given, _JobActionCommand(phrase, single, lambda _: Cancel(), asks=True)
    )


async def _cancel_with_children(app: Windlass, name: str) -> str:
    from windlass.errors import WrongState

    try:
        said = await _cancel(app, name)
    except WrongState:
        said = "had ended"
    below = await app.admin.jobs.cancel_children(name)
    if not below.matched:
        return f"{said}. No job below it is left to cancel"
    asked = f"{below.requested:,} are running and were asked to stop"
    return f"{said}. Of the jobs below it, {below.done:,} are cancelled and {asked}"


async def _cancel(app: Windlass, name: str) -> str:
    from windlass._storage.protocol.jobs import CancelAnswer
    from windlass.errors import JobNotFound, WrongState

    match await app.admin.jobs.cancel(name):
        case CancelAnswer.CANCELLED:
            return "is cancelled and will not run"
        case CancelAnswer.REQUESTED:
            return "is running; its worker was asked to stop it"
        case CancelAnswer.UNKNOWN:
            raise JobNotFound(name)
        case _:
            job = await app.admin.jobs.get(name)
            raise WrongState(name, job.state.value, "cancel", "a job that has not ended")


@click.command(
    epilog=examples(
        'windlass jobs discard shop:app 0198c3a7…9c4e07 --reason "customer left"',
        "windlass jobs discard shop:app --all --state failed --finished-until 7d",
    )
)
@_names
@click.option(
    "--reason",
    default="discarded by an operator",
    show_default=True,
    help="Stored with the job.",
)
@_many
def discard(words: tuple[str, ...], *, reason: str, **given: Any) -> int:
    """Mark failed jobs as given up. They are kept for the retention time, with the reason."""
    from windlass._storage.protocol.actions import Discard

    async def single(app: Windlass, name: str) -> str:
        await app.admin.jobs.discard(name, reason=reason)
        return "is discarded"

    return _carry_out(
        words, given, _JobActionCommand("Discard {}", single, lambda _: Discard(reason), asks=True)
    )


@click.command(
    "run-now",
    epilog=examples(
        "windlass jobs run-now shop:app 0198c3a7…9c4e07",
        "windlass jobs run-now shop:app --all --state retrying --task send_email",
    ),
)
@_names
@_many
def run_now(words: tuple[str, ...], **given: Any) -> int:
    """Make scheduled and retrying jobs due now."""
    from windlass._storage.protocol.actions import RunNow

    return _carry_out(
        words, given, _JobActionCommand("Run {} now", _run_now, lambda _: RunNow(), asks=False)
    )


async def _run_now(app: Windlass, name: str) -> str:
    from windlass.errors import WrongState

    if not await app.admin.jobs.run_now(name):
        job = await app.admin.jobs.get(name)
        raise WrongState(name, job.state.value, "run-now", "a waiting job")
    return "is due now"


@click.command(
    epilog=examples(
        "windlass jobs delete shop:app 0198c3a7…9c4e07 --yes",
        "windlass jobs delete shop:app --all --tenant acme --dry-run",
    )
)
@_names
@_many
def delete(words: tuple[str, ...], **given: Any) -> int:
    """Delete jobs with their results, logs and history. Running jobs are asked to stop instead."""
    from windlass._storage.protocol.actions import Delete

    async def single(app: Windlass, name: str) -> str:
        gone = await app.admin.jobs.delete(name)
        running = "is running; its worker was asked to stop it. Delete it again when it has ended"
        return "is deleted" if gone else running

    return _carry_out(
        words, given, _JobActionCommand("Delete {}", single, lambda _: Delete(), asks=True)
    )


@click.command(
    epilog=examples(
        "windlass jobs edit shop:app 0198c3a7…9c4e07 --due 15m",
        "windlass jobs edit shop:app --all --queue mail --state waiting --to-queue bulk",
    )
)
@_names
@click.option(
    "--due", metavar="INSTANT|IN", help="New due time: 2030-12-24T08:00+01:00, or 15m from now."
)
@click.option("--priority", type=int, help="New priority. Lower runs first.")
@click.option("--to-queue", metavar="QUEUE", help="New queue.")
@_many
def edit(
    words: tuple[str, ...],
    *,
    due: str | None,
    priority: int | None,
    to_queue: str | None,
    **given: Any,
) -> int:
    """Change the due time, priority or queue of waiting jobs."""
    from windlass._admin.jobs.actions import edit_of

    if due is None and priority is None and to_queue is None:
        raise click.UsageError("nothing to change: give --due, --priority or --to-queue")

    def instant(now: datetime) -> datetime | None:
        return None if due is None else instant_of(due, now, "--due", ago=False)

    def many(now: datetime) -> JobAction:
        return edit_of(due=instant(now), priority=priority, queue=to_queue)

    async def single(app: Windlass, name: str) -> str:
        at = instant(await app.admin.storage.now())
        job = await app.admin.jobs.edit(name, due=at, priority=priority, queue=to_queue)
        if job.blocked:
            return f"runs after other jobs of its flow, on {job.queue}, priority {job.priority}"
        return f"is due at {job.due:%Y-%m-%d %H:%M:%S} UTC on {job.queue}, priority {job.priority}"

    return _carry_out(words, given, _JobActionCommand("Edit {}", single, many, asks=False))


# --- carrying out ---------------------------------------------------------------------------------


def _carry_out(words: tuple[str, ...], given: Mapping[str, Any], wish: _JobActionCommand) -> int:
    if given["every"]:
        return _for_all(words, given, wish)
    if has_filter(given) or given["limit"] or given["dry_run"]:
        raise click.UsageError("filters, --limit and --dry-run need --all")
    where, names = target_and_names(words, given["url"], "id")
    if len(names) > 1 and any(map(id_patterns_of, names)):
        raise click.UsageError("for several jobs give whole ids, or --all with a filter")
    if wish.asks and not given["yes"]:
        what = f"job {names[0]}" if len(names) == 1 else f"{len(names):,} jobs"
        confirm(f"{wish.phrase.format(what)}?")

    async def each(app: Windlass) -> list[ShownActionResult]:
        return [await _one(app, name, wish.single) for name in names]

    return print_action_results(run_on_target(where, each), where, as_json=given["as_json"])


def _for_all(words: tuple[str, ...], given: Mapping[str, Any], wish: _JobActionCommand) -> int:
    if len(words) > 1 or (words and ":" not in words[0]):
        raise click.UsageError("give job ids, or --all with a filter, not both")
    if not has_filter(given):
        raise click.UsageError(
            f"{wish.phrase.format('which jobs').lower()}? --all needs --state, --queue, --task or "
            f"another filter"
        )
    return run_bulk_action(
        target_of(words[0] if words else None, given["url"]),
        lambda now: (wish.many(now), filter_of(given, now)),
        phrase=wish.phrase,
        most=given["limit"],
        dry_run=given["dry_run"],
        yes=given["yes"],
        as_json=given["as_json"],
    )


async def _one(app: Windlass, name: str, single: RunSingleAction) -> ShownActionResult:
    """Act on one job. If it fails, the others continue."""
    from windlass.errors import AmbiguousId, JobNotFound, KeyConflict, WrongState

    try:
        name = await app.admin.jobs.resolve(name)
        said = await single(app, name)
    except (AmbiguousId, JobNotFound, KeyConflict, WrongState) as error:
        return ShownActionResult(name, done=False, said=str(error))
    return ShownActionResult(name, done=True, said=f"Job {name} {said}.")
