"""``windlass jobs``: find jobs, see what happened to them and why, and do something about it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from windlass._app.parts import parts_of
from windlass._cli.jobs.actions import cancel, delete, discard, edit, requeue, run_now
from windlass._cli.jobs.filters import filter_of, filter_options
from windlass._cli.jobs.logs import logs
from windlass._cli.jobs.replay import replay
from windlass._cli.jobs.tables import all_fields, fields, print_explanation, print_job, print_jobs
from windlass._cli.options.groups import SuggestingGroup
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
    from windlass._core.job.job import Attempt, JobRecord
    from windlass._storage.protocol.job_list import Cursor, JobFilter, Page
    from windlass.admin import Explanation

__all__ = ["jobs"]

T = TypeVar("T")
_PAGE = 1000
_ALL_OF_THEM = 10**9
_ORDERS = ("enqueued", "-enqueued", "due", "-due", "started", "-started", "finished", "-finished")
_name = click.argument("words", metavar="[MODULE:APP] ID", nargs=-1)


@click.group(cls=SuggestingGroup)
def jobs() -> None:
    """Find jobs, see what happened to them and why, run them again, stop them.

    A job that does not run: `explain` says what holds it, and what to do.
    """


for _order in (requeue, cancel, discard, run_now, delete, edit, logs, replay):
    jobs.add_command(_order)


# --- many -----------------------------------------------------------------------------------------


@jobs.command("list")
@target_argument
@filter_options
@click.option("--limit", type=click.IntRange(1, _PAGE), default=25, show_default=True)
@click.option(
    "--order",
    type=click.Choice(_ORDERS),
    help="Order by this time; with a minus the latest first. due: scheduled jobs; started: running "
    "ones; finished: ended ones; enqueued: all.",
)
@click.option(
    "--before",
    metavar="CURSOR",
    help="The next page: what the last one said, with --json as the next of its last job.",
)
@click.option("--all", "every", is_flag=True, help="All pages, one after the other.")
@url_option
@json_option
def list_jobs(
    target: str | None,
    url: str | None,
    *,
    limit: int,
    order: str | None,
    before: str | None,
    every: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """List jobs, newest first.

    Ended jobs come by the latest end, running ones by the latest start, scheduled ones by the next
    due time. --order changes that.

    INSTANT is written like 2030-12-24T08:00+01:00, AGO like 15m or 2h. --search looks in arguments
    and errors, for a quarter of a second, and says how far back it came; with --all to the end.
    """
    show = _as_json if as_json else _as_tables

    async def question(app: Windlass) -> None:
        import msgspec

        from windlass._storage.protocol.job_list import ListOrder

        now = await app.admin.storage.now()
        wanted = msgspec.structs.replace(
            filter_of(given, now),
            before=int(before) if before is not None and before.isdecimal() else before,
            order=None if order is None else ListOrder(order),
        )
        described = (await parts_of(app).storage()).describe()
        pages = _pages(app, wanted, _PAGE) if every else _page(app, wanted, limit)
        await show(pages, now, described)

    run_on_target(target_of(target, url), question)
    return 0


async def _pages(app: Windlass, wanted: JobFilter, limit: int) -> AsyncIterator[Page]:
    """All there is, as it is found."""
    import msgspec

    while True:
        page = await app.admin.jobs.find(wanted, limit=limit)
        yield page
        if page.next is None:
            return
        wanted = msgspec.structs.replace(wanted, before=page.next)


async def _page(app: Windlass, wanted: JobFilter, limit: int) -> AsyncIterator[Page]:
    """As many as were asked for. A store looks at some jobs at a time; a text has its own pace."""
    import msgspec

    from windlass._storage.protocol.job_list import Page

    if wanted.text is not None:
        yield await app.admin.jobs.search(wanted.text, wanted, limit=limit)
        return
    found: list[JobRecord] = []
    while True:
        page = await app.admin.jobs.find(wanted, limit=limit - len(found))
        found += page
        if len(found) >= limit or page.next is None:
            yield Page(found, page.next, page.reached)
            return
        wanted = msgspec.structs.replace(wanted, before=page.next)


async def _as_json(pages: AsyncIterator[Page], now: datetime, _described: str) -> None:
    """One list on one line, written as it comes: it may be long. Its last job says how to go on."""
    import msgspec

    before, held = "[", None  # when the first page is there: a question that fails prints nothing
    rest: Cursor | None = None
    async for page in pages:
        for job in page:
            if held is not None:
                click.echo(before + msgspec.json.encode({**held, "next": None}).decode(), nl=False)
                before = ","
            held = fields(job, now)
        rest = page.next
    if held is None:
        click.echo("[]")
        if rest is not None:
            click.echo(f"Found none so far. There may be more: --before {rest}", err=True)
    else:
        click.echo(before + msgspec.json.encode({**held, "next": rest}).decode() + "]")


async def _as_tables(pages: AsyncIterator[Page], now: datetime, described: str) -> None:
    found = 0
    rest: Cursor | None = None
    reached: datetime | None = None
    async for page in pages:
        if page:
            print_jobs(page, now)
        found += len(page)
        rest, reached = page.next, page.reached
    if rest is not None:
        far = "" if reached is None else f"Looked as far as {reached:%Y-%m-%d %H:%M:%S} UTC. "
        click.echo(f"{far}There may be more: --before {rest}")
    elif not found:
        click.echo(f"No job matches in {described}.")


@jobs.command()
@target_argument
@filter_options
@url_option
@json_option
def count(target: str | None, url: str | None, *, as_json: bool, **given: Any) -> int:
    """Count jobs that match, exactly, however many there are.

    With filters beyond state and queue the jobs are read one by one: that takes its time.
    """
    from windlass._cli.output.tables import print_json

    async def question(app: Windlass) -> int:
        wanted = filter_of(given, await app.admin.storage.now())
        return (await app.admin.jobs.count(wanted, most=_ALL_OF_THEM)).number

    number = run_on_target(target_of(target, url), question)
    if as_json:
        print_json({"count": number})
    else:
        click.echo(f"{number:,}")
    return 0


# --- one ------------------------------------------------------------------------------------------


@jobs.command()
@_name
@url_option
@json_option
def show(words: tuple[str, ...], url: str | None, *, as_json: bool) -> int:
    """One job, whole: arguments, result, progress, and every attempt with its error."""
    from windlass._cli.output.tables import print_json

    where, name = target_and_name(words, url, "id")

    async def question(app: Windlass) -> tuple[JobRecord, list[Attempt]]:
        return await app.admin.jobs.get(name), list(await app.admin.jobs.history(name))

    (job, history), now = _ask(where, question)
    if as_json:
        print_json(all_fields(job, history, now))
    else:
        print_job(job, history, now)
    return 0


@jobs.command()
@_name
@url_option
@json_option
def explain(words: tuple[str, ...], url: str | None, *, as_json: bool) -> int:
    """Why a job is not running now, what to do about it, and when it is expected to run."""
    where, name = target_and_name(words, url, "id")

    async def question(app: Windlass) -> Explanation:
        return await app.admin.jobs.explain(name)

    print_explanation(run_on_target(where, question), where, as_json=as_json)
    return 0


def _ask(where: Target, question: Callable[[Windlass], Awaitable[T]]) -> tuple[T, datetime]:
    """The answer, and the store's now."""

    async def asked(app: Windlass) -> tuple[T, datetime]:
        return await question(app), await app.admin.storage.now()

    return run_on_target(where, asked)
