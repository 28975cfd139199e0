"""``windlass tasks``: the jobs, outcomes and last error of each task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from windlass._app.parts import parts_of
from windlass._cli.options.groups import examples
from windlass._cli.options.target import (
    json_option,
    run_on_target,
    target_argument,
    target_of,
    url_option,
)

if TYPE_CHECKING:
    from windlass._app.app import Windlass
    from windlass.admin import TaskReport

__all__ = ["tasks"]

_ERROR = 60
"""Characters of an error in the table."""


@click.command(
    epilog=examples(
        "windlass tasks shop:app",
        "windlass tasks --url sqlite:///jobs.db --within 1h --json",
    )
)
@target_argument
@click.option(
    "--within",
    metavar="DURATION",
    default="1d",
    show_default=True,
    help="Count outcomes of this span: 30m, 1h, 1d.",
)
@url_option
@json_option
def tasks(target: str | None, url: str | None, within: str, *, as_json: bool) -> int:
    """List tasks: waiting and running jobs, recent outcomes and the last error.

    With an app, tasks are listed before their first job.
    """
    from windlass._cli.output.tables import NUMBER, print_json, print_table
    from windlass._settings.durations import parse_duration

    span = parse_duration(within, "--within")

    async def question(app: Windlass) -> Sequence[TaskReport]:
        parts_of(app).load()
        return await app.admin.tasks.list(within=span)

    found = run_on_target(target_of(target, url), question)
    if as_json:
        print_json(found)
        return 0
    if not found:
        click.echo("There are no tasks here: name the app that has them, such as shop:app.")
        return 0
    numbers = ("workers", "waiting", "running", "succeeded", "retried", "failed", "coalesced")
    titles = ("task", "queue", *(f"{NUMBER}{name}" for name in numbers), "last error")
    print_table(titles, map(_row, found))
    if any(one.at_least for one in found):
        click.echo("More jobs wait than were counted: numbers with + are lower bounds.", err=True)
    return 0


def _row(report: TaskReport) -> tuple[str, ...]:
    error = (report.last_error or "").partition("\n")[0]
    return (
        report.task,
        report.queue or "–",
        f"{report.workers:,}",
        f"{report.waiting:,}{'+' if report.at_least else ''}",
        *(f"{count:,}" for count in (report.running, report.succeeded, report.retried)),
        *(f"{count:,}" for count in (report.failed, report.coalesced)),
        error if len(error) <= _ERROR else f"{error[: _ERROR - 1]}…",
    )
