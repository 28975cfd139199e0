"""``windlass jobs events``: the event log, of all jobs or of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from windlass._cli.jobs.filters import instant_of
from windlass._cli.options.groups import examples
from windlass._cli.options.target import (
    json_option,
    run_on_target,
    target_argument,
    target_of,
    url_option,
)
from windlass._cli.output.terminal import ignore_broken_pipe

if TYPE_CHECKING:
    from windlass._app.app import Windlass
    from windlass._storage.protocol.journal import EventRecord

__all__ = ["events"]


@click.command(
    epilog=examples(
        "windlass jobs events shop:app --since 15m",
        "windlass jobs events shop:app --job 0198c3a7…9c4e07 --since 7d --json",
    )
)
@target_argument
@click.option("--job", metavar="ID", help="Only events of this job. The id may be shortened.")
@click.option(
    "--since",
    default="1h",
    show_default=True,
    metavar="TIME",
    help="From this instant on, or from this long ago.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=1000,
    show_default=True,
    help="Number of events, from the oldest on.",
)
@url_option
@json_option
def events(
    target: str | None, url: str | None, job: str | None, since: str, limit: int, *, as_json: bool
) -> int:
    """Show the event log, oldest first. It is empty unless event_log = true is set."""
    from windlass._cli.output.tables import print_json, print_table

    async def question(app: Windlass) -> Sequence[EventRecord]:
        now = await app.admin.storage.now()
        start = instant_of(since, now, "--since", ago=True)
        return await app.admin.storage.events(start, now, limit=limit, job_id=job)

    with ignore_broken_pipe():
        found = run_on_target(target_of(target, url), question)
        if as_json:
            print_json(found)
        elif not found:
            click.echo("There are no events. Windlass stores them if event_log = true is set.")
        else:
            print_table(("when", "event", "task", "queue", "job", "worker"), map(_row, found))
            if len(found) == limit:
                last = found[-1].at.isoformat()
                click.echo(f"There may be more. Continue with --since {last}", err=True)
    return 0


def _row(event: EventRecord) -> tuple[str, ...]:
    at = f"{event.at:%Y-%m-%d %H:%M:%S}.{event.at.microsecond // 1000:03d}"
    return at, event.kind, event.task, event.queue, event.job, event.worker
