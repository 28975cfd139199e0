"""``windlass jobs``: find jobs, see what happened to them and why, and do something about it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

import click

from windlass.cli.job_tables import Answered, answered, describe, explained, fields, listed, whole
from windlass.cli.target import Place, ask, json_option, named, place, target_argument, url_option

if TYPE_CHECKING:
    from windlass.admin import Explanation
    from windlass.app import Windlass
    from windlass.core.job import Attempt, Job

__all__ = ["jobs"]

T = TypeVar("T")
_STATES = ("waiting", "running", "succeeded", "failed", "cancelled", "discarded")
_name = click.argument("words", metavar="[MODULE:APP] ID", nargs=-1)
_names = click.argument("words", metavar="[MODULE:APP] ID...", nargs=-1)
_yes = click.option("--yes", is_flag=True, help="Do not ask.")

Order = Callable[["Windlass", str], Awaitable[str]]
"""Carries out one order; the answer is what became of the job, in words."""


@click.group()
def jobs() -> None:
    """Find jobs, see what happened to them and why, run them again, stop them.

    A job that does not run: `explain` says what holds it, and what to do.
    """


@jobs.command("list")
@target_argument
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(_STATES),
    help="Only these; may be given several times.",
)
@click.option("--queue", metavar="QUEUE", help="Only of this queue.")
@click.option("--task", metavar="TASK", help="Only of this task.")
@click.option("--limit", type=click.IntRange(1, 1000), default=25, show_default=True)
@click.option("--before", type=int, metavar="SEQ", help="The next page: the last one's seq.")
@url_option
@json_option
def list_jobs(
    target: str | None,
    url: str | None,
    states: tuple[str, ...],
    *,
    limit: int,
    as_json: bool,
    **narrowed: str | int | None,
) -> int:
    """Jobs, newest first."""
    from windlass.cli.tables import print_json
    from windlass.core.state import State
    from windlass.storage.protocol import JobFilter

    kept = [State(state) for state in states] or None
    wanted = JobFilter(states=kept, **narrowed)  # type: ignore[arg-type]

    async def question(app: Windlass) -> list[Job]:
        return list(await app.admin.find(wanted, limit=limit))

    found, now, described = _ask(place(target, url), question)
    if as_json:
        print_json([fields(job, now) for job in found])
    elif not found:
        click.echo(f"No job matches in {described}.")
    else:
        listed(found, now)
        if len(found) == limit:
            click.echo(f"There may be older ones: --before {found[-1].seq}")
    return 0


@jobs.command()
@_name
@url_option
@json_option
def show(words: tuple[str, ...], url: str | None, *, as_json: bool) -> int:
    """One job, whole: arguments, result, progress, and every attempt with its error."""
    from windlass.cli.tables import print_json

    where, name = named(words, url, "id")

    async def question(app: Windlass) -> tuple[Job, list[Attempt]]:
        return await app.admin.get(name), list(await app.admin.history(name))

    (job, history), now, _ = _ask(where, question)
    if as_json:
        print_json(whole(job, history, now))
    else:
        describe(job, history, now)
    return 0


@jobs.command()
@_name
@url_option
@json_option
def explain(words: tuple[str, ...], url: str | None, *, as_json: bool) -> int:
    """Why a job is not running now, what to do about it, and when it is expected to run."""
    where, name = named(words, url, "id")

    async def question(app: Windlass) -> Explanation:
        return await app.admin.explain(name)

    explained(ask(where, question), where.target, as_json=as_json)
    return 0


@jobs.command()
@_names
@url_option
@json_option
def requeue(words: tuple[str, ...], url: str | None, *, as_json: bool) -> int:
    """Run failed, cancelled or discarded jobs again, with a fresh budget of attempts."""

    async def order(app: Windlass, name: str) -> str:
        await app.admin.requeue(name)
        return "is ready to run again"

    return _orders(*_several(words, url), order, as_json=as_json)


@jobs.command()
@_names
@_yes
@url_option
@json_option
def cancel(words: tuple[str, ...], url: str | None, *, yes: bool, as_json: bool) -> int:
    """Stop jobs: what waits does not run, what runs is asked to give way."""
    where, names = _several(words, url)
    _confirm("Cancel", names, yes=yes)

    async def order(app: Windlass, name: str) -> str:
        from windlass.errors import JobNotFound, WrongState
        from windlass.storage.protocol import CancelAnswer

        match await app.admin.cancel(name):
            case CancelAnswer.CANCELLED:
                return "is cancelled and will not run"
            case CancelAnswer.REQUESTED:
                return "is running; its worker is told to stop it"
            case CancelAnswer.UNKNOWN:
                raise JobNotFound(name)
            case _:
                job = await app.admin.get(name)
                raise WrongState(name, job.state.value, "cancel", "a job that has not ended")

    return _orders(where, names, order, as_json=as_json)


@jobs.command()
@_names
@click.option("--reason", default="discarded by an operator", show_default=True)
@_yes
@url_option
@json_option
def discard(
    words: tuple[str, ...], url: str | None, reason: str, *, yes: bool, as_json: bool
) -> int:
    """Give up on failed jobs for good. They are kept for a while, with the reason."""
    where, names = _several(words, url)
    _confirm("Discard", names, yes=yes)

    async def order(app: Windlass, name: str) -> str:
        await app.admin.discard(name, reason=reason)
        return "is discarded"

    return _orders(where, names, order, as_json=as_json)


@jobs.command("run-now")
@_names
@url_option
@json_option
def run_now(words: tuple[str, ...], url: str | None, *, as_json: bool) -> int:
    """Make waiting jobs due now, whenever they were due."""

    async def order(app: Windlass, name: str) -> str:
        from windlass.errors import WrongState

        if not await app.admin.run_now(name):
            job = await app.admin.get(name)
            raise WrongState(name, job.state.value, "run-now", "a waiting job")
        return "is due now"

    return _orders(*_several(words, url), order, as_json=as_json)


# --- asking ---------------------------------------------------------------------------------------


def _several(words: tuple[str, ...], url: str | None) -> tuple[Place, list[str]]:
    """``[MODULE:APP] ID...``: no id has a colon, so the first word tells itself."""
    if len(words) < 2:
        where, name = named(words, url, "id")
        return where, [name]
    app, *rest = words
    if ":" in app:
        return place(app, url), _once(rest)
    return place(None, url), _once(words)


def _once(names: Sequence[str]) -> list[str]:
    """A job is not told the same thing twice."""
    return list(dict.fromkeys(names))


def _ask(where: Place, question: Callable[[Windlass], Awaitable[T]]) -> tuple[T, datetime, str]:
    """The answer, the store's now, and what the storage is."""

    async def asked(app: Windlass) -> tuple[T, datetime, str]:
        storage = await app.storage()
        return await question(app), await storage.now(), storage.describe()

    return ask(where, asked)


def _orders(where: Place, names: list[str], order: Order, *, as_json: bool) -> int:
    """Each on its own: one that cannot be carried out does not stop the others."""

    async def each(app: Windlass) -> list[Answered]:
        return [await _order(app, name, order) for name in names]

    return answered(ask(where, each), as_json=as_json)


async def _order(app: Windlass, name: str, order: Order) -> Answered:
    from windlass.errors import JobNotFound, KeyConflict, WrongState

    try:
        said = await order(app, name)
    except (JobNotFound, KeyConflict, WrongState) as error:
        return Answered(name, done=False, said=str(error))
    return Answered(name, done=True, said=f"Job {name} {said}.")


def _confirm(verb: str, names: list[str], *, yes: bool) -> None:
    if not yes:
        what = f"job {names[0]}" if len(names) == 1 else f"{len(names):,} jobs"
        click.confirm(f"{verb} {what}?", abort=True, err=True)
