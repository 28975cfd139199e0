"""``windlass jobs events``: the event log, page by page and by filters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
    from windlass.admin import EventPage, EventRecord

__all__ = ["events"]

_FILTERS = ("job", "kinds", "task", "queue", "worker")


@click.command(
    epilog=examples(
        "windlass jobs events shop:app --since 15m",
        "windlass jobs events shop:app --kind failed --kind retried --queue mail --newest",
        "windlass jobs events shop:app --job 0198c3a7…9c4e07 --since 7d --json",
    )
)
@target_argument
@click.option("--job", metavar="ID", help="Only events of this job. The id may be shortened.")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    metavar="KIND",
    help="Only events of this kind: enqueued, started, retried, failed … Repeatable.",
)
@click.option("--task", metavar="NAME", help="Only events of this task.")
@click.option("--queue", metavar="NAME", help="Only events of this queue.")
@click.option("--worker", metavar="ID", help="Only events of this worker.")
@click.option(
    "--since",
    default="1h",
    show_default=True,
    metavar="TIME",
    help="From this instant on, or from this long ago.",
)
@click.option("--until", metavar="TIME", help="Before this instant, or until this long ago.")
@click.option("--newest", is_flag=True, help="Show the newest event first.")
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=1000,
    show_default=True,
    help="Number of events.",
)
@click.option("--after", metavar="CURSOR", help="Continue a list, as the last output said.")
@url_option
@json_option
def events(target: str | None, url: str | None, *, as_json: bool, **asked: Any) -> int:
    """Show the event log, oldest first. It is empty unless event_log = true is set."""
    from windlass._cli.output.tables import print_json, print_table

    with ignore_broken_pipe():
        page = run_on_target(target_of(target, url), lambda app: _page(app, asked))
        if as_json:
            print_json(page.events)
        elif page.events:
            titles = ("when", "event", "task", "queue", "job", "worker")
            print_table(titles, map(_row, page.events))
        elif page.next is None and any(asked[name] for name in _FILTERS):
            click.echo("No event matches.")
        elif page.next is None:
            click.echo("There are no events. Windlass stores them if event_log = true is set.")
        if page.next is not None:
            click.echo(f"There may be more. Continue with --after {page.next}", err=True)
    return 0


async def _page(app: Windlass, asked: dict[str, Any]) -> EventPage:
    from windlass._client.event_log import EVENT_KINDS
    from windlass.admin import EventFilter

    for kind in asked["kinds"]:
        if kind not in EVENT_KINDS:
            raise click.BadParameter(
                f"{kind!r} is none of {', '.join(EVENT_KINDS)}.", param_hint="--kind"
            )
    now = await app.admin.storage.now()
    until = asked["until"]
    wanted = EventFilter(**{name: asked[name] for name in _FILTERS})
    return await app.admin.storage.timeline(
        wanted,
        since=instant_of(asked["since"], now, "--since", ago=True),
        until=None if until is None else instant_of(until, now, "--until", ago=True),
        newest_first=asked["newest"],
        limit=asked["limit"],
        after=asked["after"],
    )


def _row(event: EventRecord) -> tuple[str, ...]:
    at = f"{event.at:%Y-%m-%d %H:%M:%S}.{event.at.microsecond // 1000:03d}"
    return at, event.kind, event.task, event.queue, event.job, event.worker
