"""``windlass jobs``: list, inspect and change jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from windlass._app.parts import parts_of
from windlass._cli.jobs.actions import cancel, delete, discard, edit, requeue, run_now
from windlass._cli.jobs.events import events
from windlass._cli.jobs.filters import filter_of, filter_options
from windlass._cli.jobs.logs import logs
from windlass._cli.jobs.replay import replay
from windlass._cli.jobs.tables import all_fields, fields, print_explanation, print_job, print_jobs
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
    from windlass._core.job.job import Attempt, JobRecord
    from windlass._storage.protocol.lists.job_list import Cursor, JobFilter, Page
    from windlass.admin import Explanation

__all__ = ["jobs"]

T = TypeVar("T")
_PAGE = 1000
_ALL_OF_THEM = 10**9
_ORDERS = ("enqueued", "-enqueued", "due", "-due", "started", "-started", "finished", "-finished")
_name = click.argument("words", metavar="[MODULE:APP] ID", nargs=-1)


@click.group(
    cls=SuggestingGroup,
    epilog=examples(
        "windlass jobs list shop:app --state failed",
        "windlass jobs explain shop:app 0198c3a7…9c4e07",
    ),
)
def jobs() -> None:
    """List, inspect, requeue and cancel jobs.

    If a job does not run, `explain` shows the reason and what to do.

    An ID may be shortened, as `list` shows it.
    """


for _action in (requeue, cancel, discard, run_now, delete, edit, logs, events, replay):
    jobs.add_command(_action)


# --- many -----------------------------------------------------------------------------------------


@jobs.command(
    "list",
    epilog=examples(
        "windlass jobs list shop:app --state failed --finished-from 2h",
        "windlass jobs list shop:app --queue mail --tenant acme --all --json",
    ),
)
@target_argument
@filter_options
@click.option(
    "--limit",
    type=click.IntRange(1, _PAGE),
    default=25,
    show_default=True,
    help="Jobs on a page.",
)
@click.option(
    "--order",
    type=click.Choice(_ORDERS),
    help="Sort by this time, with a minus the latest first. due lists scheduled jobs, started "
    "running jobs, finished ended jobs, enqueued all jobs.",
)
@click.option(
    "--before",
    metavar="CURSOR",
    help="Show the next page. The page before prints the cursor; with --json it is the field next "
    "of the last job.",
)
@click.option("--all", "every", is_flag=True, help="Print all pages.")
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

    With --state, ended jobs are sorted by their end, running jobs by their start, scheduled jobs by
    their due time. --order changes that.

    Write INSTANT like 2030-12-24T08:00+01:00 and AGO like 15m or 2h.

    --search reads jobs for a quarter of a second and prints how far back it came. With --all it
    reads all of them.
    """
    show = _as_json if as_json else _as_tables

    async def question(app: Windlass) -> None:
        import msgspec

        from windlass._storage.protocol.lists.job_list import ListOrder

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
    """Yield page after page."""
    import msgspec

    while True:
        page = await app.admin.jobs.find(wanted, limit=limit)
        yield page
        if page.next is None:
            return
        wanted = msgspec.structs.replace(wanted, before=page.next)


async def _page(app: Windlass, wanted: JobFilter, limit: int) -> AsyncIterator[Page]:
    """Yield one page of ``limit`` jobs. A store may return fewer at a time: it bounds its reads."""
    import msgspec

    from windlass._storage.protocol.lists.job_list import Page

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
    """Print one list on one line, job by job: it may be long. Its last job has the cursor."""
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
            click.echo(f"Found no job so far. Continue with --before {rest}", err=True)
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
        far = "" if reached is None else f"Searched back to {reached:%Y-%m-%d %H:%M:%S} UTC. "
        click.echo(f"{far}There may be more. Continue with --before {rest}")
    elif not found:
        click.echo(f"No job matches in {described}.")


@jobs.command(
    epilog=examples(
        "windlass jobs count shop:app --state failed",
        "windlass jobs count shop:app --tenant acme --created-from 1d",
    )
)
@target_argument
@filter_options
@url_option
@json_option
def count(target: str | None, url: str | None, *, as_json: bool, **given: Any) -> int:
    """Count the jobs that match, exactly.

    Filters other than --state and --queue read every job, which takes longer.
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


@jobs.command(
    epilog=examples(
        "windlass jobs show shop:app 0198c3a7…9c4e07",
        "windlass jobs show shop:app 0198c3a7…9c4e07 --json",
    )
)
@_name
@url_option
@json_option
def show(words: tuple[str, ...], url: str | None, *, as_json: bool) -> int:
    """Show a job with its arguments, result, progress, and every attempt with its error."""
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


@jobs.command(
    epilog=examples(
        "windlass jobs explain shop:app 0198c3a7…9c4e07",
        "windlass jobs explain --url sqlite:///jobs.db 0198c3a7…9c4e07",
    )
)
@_name
@url_option
@json_option
def explain(words: tuple[str, ...], url: str | None, *, as_json: bool) -> int:
    """Explain why a job is not running, what to do, and when it is expected to run."""
    where, name = target_and_name(words, url, "id")

    async def question(app: Windlass) -> Explanation:
        return await app.admin.jobs.explain(name)

    print_explanation(run_on_target(where, question), where, as_json=as_json)
    return 0


def _ask(where: Target, question: Callable[[Windlass], Awaitable[T]]) -> tuple[T, datetime]:
    """Return the answer and the store's now."""

    async def asked(app: Windlass) -> tuple[T, datetime]:
        return await question(app), await app.admin.storage.now()

    return run_on_target(where, asked)
