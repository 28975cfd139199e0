"""``windlass db``: migrate, inspect and copy a storage."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

import click

from windlass._cli.exit_codes import COULD_NOT_START, IN_ORDER
from windlass._cli.options.groups import SuggestingGroup, examples
from windlass._cli.options.target import (
    json_option,
    refuse_missing_file,
    target_argument,
    target_of,
    url_option,
)

if TYPE_CHECKING:
    from windlass._admin.copy.copy import CopyProgress, CopyReport
    from windlass._storage.protocol.storage import Storage

__all__ = ["copy", "db"]


@click.command(
    epilog=examples(
        "windlass db copy sqlite:///jobs.db postgresql://localhost/shop",
        "windlass db copy shop:app redis://localhost:6379/0 --resume",
    )
)
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option("--resume", is_flag=True, help="The jobs in TO are from an earlier run of this copy.")
@json_option
def copy(source: str, target: str, *, resume: bool, as_json: bool) -> int:
    """Copy jobs, schedules, limits, settings and history from one storage to another.

    FROM and TO are URLs or apps (MODULE:APP), of any backend. Stop workers and producers first: the
    copy refuses to start while either side has a live worker. TO must have no other jobs.

    You can interrupt the copy and run it again: it skips what it has copied. At the end it reads
    and compares both sides. It does not change FROM.
    """
    report = asyncio.run(_copied(source, target, resume=resume))
    if as_json:
        from windlass._cli.output.tables import print_json

        print_json(report)
    else:
        _tell(report)
    for problem in report.problems:
        click.echo(f"Error: {problem}", err=True)
    return COULD_NOT_START if report.problems else IN_ORDER


async def _copied(source: str, target: str, *, resume: bool) -> CopyReport:
    from windlass._admin.copy.copy import copy as copy_all

    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(_opened(source, there=True))
        there = await stack.enter_async_context(_opened(target))
        with _bars() as progress:
            return await copy_all(here, there, resume=resume, progress=progress)


@asynccontextmanager
async def _opened(name: str, *, there: bool = False) -> AsyncIterator[Storage]:
    """Open a storage. ``there``: its file must exist, so that a misspelt name is not created."""
    from windlass._cli.app_loader import load_app
    from windlass._core.values.redaction import redacted_url
    from windlass._settings.load import load_settings
    from windlass._storage.open import StorageOpener

    settings = load_settings(name, {}) if "://" in name else load_app(name).settings
    if there:
        refuse_missing_file(settings)
    storage = await StorageOpener(settings).open()
    try:
        if not storage.shared:
            message = (
                f"{redacted_url(settings.url)} ends with this command: name a storage that persists"
            )
            raise click.ClickException(message)
        yield storage
    finally:
        await storage.close()


@contextmanager
def _bars() -> Iterator[Callable[[CopyProgress], None]]:
    """Show one progress bar for each part, on a terminal only."""
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
    from windlass._cli.output.tables import print_pairs

    same = "equal on both sides" if not report.problems else "NOT equal: see below"
    events = f"{report.events:,} events"
    print_pairs(
        f"{report.source} → {report.target}",
        [
            ("jobs", f"{report.jobs:,}, {report.new:,} of them copied now"),
            ("settings", f"{report.limits:,} limits, {report.queues:,} queues"),
            ("schedules", f"{report.schedules:,}"),
            ("history", f"{report.rollups:,} rollups, {report.audits:,} audit entries, {events}"),
            ("checksum", f"{report.checksum[:16]}…, {same}"),
        ],
    )


@click.group(
    cls=SuggestingGroup,
    epilog=examples(
        "windlass db migrate --url sqlite:///jobs.db",
        "windlass db show shop:app",
    ),
)
def db() -> None:
    """Migrate, inspect and copy a storage."""


db.add_command(copy)


@db.command(
    epilog=examples(
        "windlass db migrate shop:app",
        "windlass db migrate --url sqlite:///jobs.db",
    )
)
@target_argument
@url_option
@json_option
def migrate(target: str | None, url: str | None, *, as_json: bool) -> int:
    """Create the tables, or migrate them to this version.

    Workers and apps migrate the storage when they open it. Run this in a deploy if their database
    user may not create tables, or to see the migration succeed first. You can repeat it and run it
    in several places at once.
    """
    described = asyncio.run(_describe(target, url))
    _say(described, f"{described}: ready for this version", as_json=as_json)
    return 0


@db.command(
    epilog=examples(
        "windlass db show shop:app",
        "windlass db show --url sqlite:///jobs.db --json",
    )
)
@target_argument
@url_option
@json_option
def show(target: str | None, url: str | None, *, as_json: bool) -> int:
    """Show a storage: its address, sizes, settings and connections.

    `windlass doctor` judges them.
    """
    from windlass._cli.output.tables import print_json, print_pairs

    described, facts = asyncio.run(_described(target, url, there=target is None))
    if as_json:
        print_json({"storage": described, "facts": facts})
    else:
        print_pairs(described, [(name.replace("_", " "), _fact(name, facts)) for name in facts])
    return 0


_SIZES = frozenset({"size", "wal", "free_disk", "maxmemory", "append_only_file"})


def _fact(name: str, facts: Mapping[str, float | str]) -> str:
    from windlass._admin.doctor.finding import format_bytes

    value = facts[name]
    if isinstance(value, str):
        return value
    return format_bytes(value) if name in _SIZES else f"{value:,g}"


async def _describe(target: str | None, url: str | None) -> str:
    described, _ = await _described(target, url)
    return described


async def _described(
    target: str | None, url: str | None, *, there: bool = False
) -> tuple[str, Mapping[str, float | str]]:
    storage = await _open(target, url, there=there)
    try:
        return storage.describe(), await storage.health()
    finally:
        await storage.close()


async def _open(target: str | None, url: str | None, *, there: bool) -> Storage:
    from windlass._cli.app_loader import load_app
    from windlass._settings.load import load_settings
    from windlass._storage.open import StorageOpener

    where = target_of(target, url)
    named = where.target
    settings = load_settings(where.url, {}) if named is None else load_app(named).settings
    if there:
        refuse_missing_file(settings)
    return await StorageOpener(settings).open()


def _say(described: str, text: str, *, as_json: bool) -> None:
    import msgspec

    click.echo(msgspec.json.encode({"storage": described}).decode() if as_json else text)
