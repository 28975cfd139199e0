"""One action on many jobs: count, confirm, carry out with a progress bar, report."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

import click

from windlass._cli.exit_codes import COULD_NOT_START, IN_ORDER
from windlass._cli.options.confirmation import confirm
from windlass._cli.options.target import Target, run_on_target

if TYPE_CHECKING:
    from windlass._admin.jobs.bulk import BulkProgress, BulkReport
    from windlass._app.app import Windlass
    from windlass._storage.protocol.actions import JobAction
    from windlass._storage.protocol.lists.job_list import JobFilter

__all__ = ["run_bulk_action"]

MakeAction = Callable[[datetime], tuple["JobAction", "JobFilter"]]
"""The action and its filter, by the store's now."""


def run_bulk_action(
    where: Target,
    making: MakeAction,
    *,
    phrase: str,
    most: int | None = None,
    dry_run: bool = False,
    yes: bool = False,
    as_json: bool = False,
) -> int:
    """Act on every job that matches. An interrupted run can be repeated for the rest."""

    async def carried_out(app: Windlass) -> BulkReport:
        action, wanted = making(await app.admin.storage.now())
        if dry_run or not yes:
            counted = await app.admin.jobs.bulk(action, wanted, dry_run=True, most=most)
            if dry_run or not counted.matched:
                return counted
            _confirm(phrase, counted, wanted)
        with _bar(phrase.format("jobs")) as progress:
            return await app.admin.jobs.bulk(action, wanted, most=most, progress=progress)

    return _reported(run_on_target(where, carried_out), phrase, as_json=as_json)


def _confirm(phrase: str, counted: BulkReport, wanted: JobFilter) -> None:
    from windlass._admin.jobs.bulk import filter_in_words
    from windlass._observe.log import printable

    which = printable(filter_in_words(wanted))
    confirm(f"{phrase.format(_jobs(counted))} ({which})?")


def _jobs(counted: BulkReport) -> str:
    more = "" if counted.exact else " or more"
    return f"{counted.matched:,}{more} job{'' if counted.matched == 1 else 's'}"


@contextmanager
def _bar(title: str) -> Iterator[Callable[[BulkProgress], None]]:
    """Show progress on standard error, on a terminal only."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bars:
        bar = bars.add_task(title, total=None)
        yield lambda far: bars.update(bar, completed=far.seen, total=far.total)


def _reported(report: BulkReport, phrase: str, *, as_json: bool) -> int:
    from windlass._cli.output.tables import print_json

    if as_json:
        print_json(report)
    elif not report.matched:
        click.echo("No job matches. Nothing was changed.")
    elif report.dry_run:
        would = phrase.format(_jobs(report))
        click.echo(f"Would {would[0].lower()}{would[1:]}. Nothing was changed.")
    else:
        click.echo(_in_words(report))
    if report.conflicts:
        click.echo(
            f"Error: {report.conflicts:,} not changed: other jobs hold their unique keys",
            err=True,
        )
        return COULD_NOT_START
    return IN_ORDER


def _in_words(report: BulkReport) -> str:
    parts = [f"{report.done:,} of {report.matched:,} done"]
    if report.requested:
        parts.append(f"{report.requested:,} running and asked to stop")
    if report.skipped:
        parts.append(f"{report.skipped:,} skipped because of their state or their flow")
    return ", ".join(parts) + "."
