"""``windlass db``: migrate, inspect, copy, reset and drop a storage."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Literal

import click

from windlass._cli.commands.db_drop import drop, reset
from windlass._cli.exit_codes import COULD_NOT_START, IN_ORDER, PENDING
from windlass._cli.options.groups import SuggestingGroup, examples
from windlass._cli.options.target import (
    Target,
    json_option,
    refuse_missing_file,
    settings_of,
    target_argument,
    target_of,
    url_option,
)

if TYPE_CHECKING:
    from windlass._admin.copy.copy import CopyProgress, CopyReport
    from windlass._settings.settings import Settings
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
    from windlass._core.values.redaction import redacted_url
    from windlass._storage.open import StorageOpener

    settings = settings_of(Target(None, name) if "://" in name else Target(name, None))
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
            ("flows", f"{report.flows:,}"),
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
    """Migrate, inspect, copy, reset and drop a storage."""


for _command in (copy, reset, drop):
    db.add_command(_command)


@db.command(
    epilog=examples(
        "windlass db migrate shop:app",
        "windlass db migrate --url sqlite:///jobs.db",
        "windlass db migrate shop:app --check",
    )
)
@target_argument
@click.option("--check", is_flag=True, help="Change nothing; exit with 2 if it must be migrated.")
@url_option
@json_option
def migrate(target: str | None, url: str | None, *, check: bool, as_json: bool) -> int:
    """Create the tables, or migrate them to this version.

    Workers and apps migrate the storage when they open it, unless migrate = "manual" is set. Run
    this in a deploy if their database user may not create tables, or to see the migration succeed
    first. You can repeat it and run it in several places at once.
    """
    settings = settings_of(target_of(target, url))
    if check:
        return asyncio.run(_check(settings, as_json=as_json))
    described, _ = asyncio.run(_described(_with(settings, migrate="auto")))
    _say({"storage": described}, f"{described}: ready for this version", as_json=as_json)
    return IN_ORDER


async def _check(settings: Settings, *, as_json: bool) -> int:
    from windlass._core.values.redaction import redacted_url
    from windlass.errors import SchemaTooOld

    try:
        described, _ = await _described(_with(settings, migrate="manual"))
    except SchemaTooOld as error:
        answer = {"storage": redacted_url(settings.url), "pending": True}
        _say(answer, str(error), as_json=as_json)
        return PENDING
    answer = {"storage": described, "pending": False}
    _say(answer, f"{described}: ready for this version", as_json=as_json)
    return IN_ORDER


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
    from windlass._admin.storage import format_fact
    from windlass._cli.output.tables import print_json, print_pairs

    settings = settings_of(target_of(target, url))
    if target is None:
        refuse_missing_file(settings)
    described, facts = asyncio.run(_described(settings))
    if as_json:
        print_json({"storage": described, "facts": facts})
    else:
        told = [(name.replace("_", " "), format_fact(name, facts[name])) for name in facts]
        print_pairs(described, told)
    return 0


async def _described(settings: Settings) -> tuple[str, Mapping[str, float | str]]:
    from windlass._storage.open import StorageOpener

    storage = await StorageOpener(settings).open()
    try:
        return storage.describe(), await storage.health()
    finally:
        await storage.close()


def _with(settings: Settings, *, migrate: Literal["auto", "manual"]) -> Settings:
    import msgspec

    return msgspec.structs.replace(settings, migrate=migrate)


def _say(answer: Mapping[str, object], text: str, *, as_json: bool) -> None:
    import msgspec

    click.echo(msgspec.json.encode(answer).decode() if as_json else text)
