"""``windlass errors``: failed jobs, grouped by exception and place."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from windlass._cli.jobs.bulk import run_bulk_action
from windlass._cli.options import name_completion
from windlass._cli.options.groups import SuggestingGroup, examples
from windlass._cli.options.target import (
    Target,
    json_option,
    run_on_target,
    target_and_name,
    target_argument,
    target_of,
    url_option,
)

if TYPE_CHECKING:
    from windlass._app.app import Windlass
    from windlass._core.job.job import JobRecord
    from windlass._storage.protocol.actions import JobAction
    from windlass._storage.protocol.admin import ErrorGroup, ErrorLook
    from windlass._storage.protocol.lists.job_list import JobFilter

__all__ = ["errors"]

_name = click.argument("words", metavar="[MODULE:APP] GROUP", nargs=-1)
_SOME = 10


@click.group(
    cls=SuggestingGroup,
    epilog=examples(
        "windlass errors list shop:app --since 1h",
        "windlass errors show shop:app 5b1f03ac",
    ),
)
def errors() -> None:
    """Show failed jobs grouped by exception and place.

    GROUP is the name that `list` shows: eight digits that do not change.
    """


@errors.command(
    "list",
    epilog=examples(
        "windlass errors list shop:app --since 24h",
        "windlass errors list --url sqlite:///jobs.db --queue mail --json",
    ),
)
@target_argument
@click.option(
    "--queue",
    metavar="QUEUE",
    shell_complete=name_completion.queues,
    help="Only jobs of this queue.",
)
@click.option(
    "--task", metavar="TASK", shell_complete=name_completion.tasks, help="Only jobs of this task."
)
@click.option("--since", metavar="INSTANT|AGO", help="Only jobs that failed at this time or later.")
@url_option
@json_option
def list_errors(
    target: str | None,
    url: str | None,
    queue: str | None,
    task: str | None,
    since: str | None,
    *,
    as_json: bool,
) -> int:
    """List groups of failed jobs, latest first."""
    from windlass._cli.jobs.filters import instant_of
    from windlass._cli.output.tables import print_json

    async def question(app: Windlass) -> tuple[ErrorLook, datetime]:
        now = await app.admin.storage.now()
        start = None if since is None else instant_of(since, now, "--since", ago=True)
        return await app.admin.errors.groups(queue=queue, task=task, since=start), now

    look, now = run_on_target(target_of(target, url), question)
    if as_json:
        print_json({"complete": look.complete, "groups": [_fields(one) for one in look.groups]})
        return 0
    if not look.groups:
        click.echo("No job has failed." if since is None else "No job has failed since.")
        return 0
    _table(look.groups, now)
    if not look.complete:
        click.echo("Only the latest failures are counted. There are older ones.")
    return 0


@errors.command(
    epilog=examples(
        "windlass errors show shop:app 5b1f03ac",
        "windlass errors show --url sqlite:///jobs.db 5b1f03ac --json",
    )
)
@_name
@url_option
@json_option
def show(words: tuple[str, ...], url: str | None, *, as_json: bool) -> int:
    """Show a group: its count, place, tasks, latest jobs, and the last traceback."""
    from windlass._cli.jobs.tables import fields, print_jobs
    from windlass._cli.output.tables import print_json, print_pairs

    where, name = target_and_name(words, url, "group")

    async def question(
        app: Windlass,
    ) -> tuple[ErrorGroup, Sequence[JobRecord], JobRecord | None, datetime]:
        group = await _known(app, name)
        found = await app.admin.jobs.find(_of(group), limit=_SOME)
        last = found[0] if found else None
        return group, found, last, await app.admin.storage.now()

    group, found, last, now = run_on_target(where, question)
    trace = "" if last is None or last.error is None else last.error.traceback
    if as_json:
        jobs = [fields(job, now) for job in found]
        print_json({**_fields(group), "traceback": trace, "latest": jobs})
        return 0
    pairs = [
        ("error", f"{group.kind}: {group.text}"),
        ("place", group.frame or "unknown"),
        ("failed", f"{group.count:,}, first {_instant(group.first)}, last {_instant(group.last)}"),
        ("tasks", ", ".join(group.tasks)),
        ("queues", ", ".join(group.queues)),
        *(("", line) for line in trace.splitlines()),
    ]
    print_pairs(_key(group), pairs)
    if found:
        print_jobs(found, now)
    return 0


@errors.command(
    epilog=examples(
        "windlass errors requeue shop:app 5b1f03ac --dry-run",
        "windlass errors requeue shop:app 5b1f03ac --limit 10",
    )
)
@_name
@click.option("--limit", type=click.IntRange(1), help="Change at most this number of jobs.")
@click.option("--dry-run", is_flag=True, help="Count jobs and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@url_option
@json_option
def requeue(
    words: tuple[str, ...],
    url: str | None,
    limit: int | None,
    *,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Run the failed jobs of a group again, with all their attempts."""
    where, name = target_and_name(words, url, "group")
    group = _asked_for(where, name)

    def making(_now: datetime) -> tuple[JobAction, JobFilter]:
        from windlass._storage.protocol.actions import Requeue

        return Requeue(), _of(group)

    return run_bulk_action(
        where, making, phrase="Requeue {}", most=limit, dry_run=dry_run, yes=yes, as_json=as_json
    )


# --- groups ---------------------------------------------------------------------------------------


def _asked_for(where: Target, name: str) -> ErrorGroup:
    async def question(app: Windlass) -> ErrorGroup:
        return await _known(app, name)

    return run_on_target(where, question)


async def _known(app: Windlass, name: str) -> ErrorGroup:
    for group in (await app.admin.errors.groups()).groups:
        if _key(group) == name.lower():
            return group
    message = f"No failed job is in a group {name!r}. `windlass errors list` shows all groups."
    raise click.ClickException(message)


def _key(group: ErrorGroup) -> str:
    """Return the name of a group. It depends only on the exception and the place."""
    return hashlib.sha256(f"{group.kind}\x1f{group.frame}".encode()).hexdigest()[:8]


def _of(group: ErrorGroup) -> JobFilter:
    from windlass._core.job.state import State
    from windlass._storage.protocol.lists.job_list import JobFilter

    return JobFilter(states=[State.FAILED], error=group.kind, frame=group.frame)


# --- telling --------------------------------------------------------------------------------------


def _table(groups: Sequence[ErrorGroup], now: datetime) -> None:
    from windlass._cli.output.tables import NUMBER, left, print_table
    from windlass._core.job.job import AttemptError
    from windlass._observe.log import error_in_one_line

    titles = (
        "group",
        f"{NUMBER}failed",
        f"{NUMBER}first",
        f"{NUMBER}last",
        "tasks",
        "place",
        "error",
    )
    print_table(
        titles,
        (
            (
                _key(one),
                f"{one.count:,}",
                f"{left(now, one.first)} ago",
                f"{left(now, one.last)} ago",
                ", ".join(one.tasks),
                one.frame,
                error_in_one_line(AttemptError(one.kind, one.text), limit=100),
            )
            for one in groups
        ),
    )


def _instant(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def _fields(group: ErrorGroup) -> dict[str, Any]:
    return {
        "group": _key(group),
        "kind": group.kind,
        "frame": group.frame,
        "text": group.text,
        "count": group.count,
        "first": group.first,
        "last": group.last,
        "job": group.job,
        "tasks": list(group.tasks),
        "queues": list(group.queues),
    }
