"""``windlass db copy``: moving house."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

import click

from windlass.cli.codes import COULD_NOT_START, IN_ORDER
from windlass.cli.target import json_option, refuse_missing

if TYPE_CHECKING:
    from windlass.admin.moving import CopyProgress, CopyReport
    from windlass.storage.protocol import Storage

__all__ = ["copy"]


@click.command()
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--resume", is_flag=True, help="What TO holds is the beginning of this very copy.")
@json_option
def copy(source: str, target: str, *, resume: bool, as_json: bool) -> int:
    """Copy jobs, schedules, limits, settings and history from one storage to another.

    FROM and TO are URLs or apps (MODULE:APP), of any backend. Stop workers and whatever enqueues
    first: while a worker is live on either side nothing is copied. TO must hold no other jobs.
    Interrupted, run it again: what is there is left out. At the end both sides are read and
    compared; FROM is not changed.
    """
    report = asyncio.run(_copied(source, target, resume=resume))
    if as_json:
        from windlass.cli.tables import print_json

        print_json(report)
    else:
        _tell(report)
    for problem in report.problems:
        click.echo(f"Error: {problem}", err=True)
    return COULD_NOT_START if report.problems else IN_ORDER


async def _copied(source: str, target: str, *, resume: bool) -> CopyReport:
    from windlass.admin.moving import copy as copy_all

    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(_opened(source, there=True))
        there = await stack.enter_async_context(_opened(target))
        with _bars() as progress:
            return await copy_all(here, there, resume=resume, progress=progress)


@asynccontextmanager
async def _opened(name: str, *, there: bool = False) -> AsyncIterator[Storage]:
    """``there``: it must be; of a misspelt name an empty one would be made, and copied."""
    from windlass.cli.loading import load_app
    from windlass.config import load_settings
    from windlass.core.redact import redacted_url
    from windlass.storage.open import Opener

    settings = load_settings(name, {}) if "://" in name else load_app(name).settings
    if there:
        refuse_missing(settings)
    storage = await Opener(settings).open()
    try:
        if not storage.shared:
            message = (
                f"{redacted_url(settings.url)} dies with this command: name a storage that stays"
            )
            raise click.ClickException(message)
        yield storage
    finally:
        await storage.close()


@contextmanager
def _bars() -> Iterator[Callable[[CopyProgress], None]]:
    """One for each part, on a terminal; elsewhere nothing."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description:<8}"), BarColumn(), MofNCompleteColumn())
    known: dict[str, TaskID] = {}
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:

        def show(far: CopyProgress) -> None:
            if far.part not in known:
                known[far.part] = bars.add_task(far.part, total=far.total)
            bars.update(known[far.part], completed=far.done, total=far.total)

        yield show


def _tell(report: CopyReport) -> None:
    from windlass.cli.tables import print_pairs

    same = "the same on both sides" if not report.problems else "NOT the same: see below"
    events = f"{report.events:,} events"
    print_pairs(
        f"{report.source} → {report.target}",
        [
            ("jobs", f"{report.jobs:,}, {report.new:,} of them copied now"),
            ("settings", f"{report.limits:,} limits, {report.queues:,} queues"),
            ("schedules", f"{report.schedules:,}"),
            ("history", f"{report.rollups:,} rollups, {report.audits:,} orders, {events}"),
            ("checksum", f"{report.checksum[:16]}…, {same}"),
        ],
    )
