"""``windlass breakers``: tasks that are left alone because they keep failing."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from windlass.cli import choices, completing
from windlass.cli.commands import Commands
from windlass.cli.target import ask, json_option, named, place, target_argument, url_option

if TYPE_CHECKING:
    from windlass.admin import BreakerReport
    from windlass.app import Windlass

__all__ = ["breakers"]

_names = click.argument(
    "words", metavar="[MODULE:APP] TASK", nargs=-1, shell_complete=completing.tasks
)


class _Breaker(NamedTuple):
    report: BreakerReport
    now: datetime


@click.group(cls=Commands)
def breakers() -> None:
    """Look at circuit breakers, close them, and change their numbers."""


@breakers.command("list")
@target_argument
@url_option
@json_option
def list_breakers(target: str | None, url: str | None, *, as_json: bool) -> int:
    """Every task with a breaker, and whether it is closed (its jobs run), open or on trial."""
    from windlass.cli.tables import NUMBER, print_json, print_table

    async def question(app: Windlass) -> tuple[list[_Breaker], str]:
        return await _all(app), (await app.storage()).describe()

    found, described = ask(place(target, url), question)
    if as_json:
        print_json([_fields(breaker) for breaker in found])
    elif not found:
        click.echo(
            f"No breaker is stored in {described}. Give a task one with @app.task(breaker=True); "
            f"it is stored when a worker of it starts, or with its first job."
        )
    else:
        titles = ("task", "state", "failures in a row", "next trial", "running")
        numbers = tuple(f"{NUMBER}{t}" if t in titles[2::2] else t for t in titles)
        print_table(numbers, map(_row, found))
    return 0


@breakers.command()
@_names
@url_option
@json_option
def reset(words: tuple[str, ...], url: str | None, *, as_json: bool) -> int:
    """Close a task's breaker and forget its failures: its jobs start again at once."""
    where, task = named(words, url, "task")

    async def order(app: Windlass) -> _Breaker:
        await app.admin.reset_breaker(task)
        return await _one(app, task)

    _say(ask(where, order), f"The breaker of {task} is closed: its jobs start.", as_json=as_json)
    return 0


@breakers.command("set")
@_names
@click.option("--failures", type=int, metavar="N", help="Open after so many in a row.")
@click.option("--cool-down", metavar="TIME", help="How long it is open at first.")
@click.option("--growth", type=float, metavar="X", help="How many times longer after each trial.")
@click.option("--longest", metavar="TIME", help="How long it is open at most.")
@url_option
@json_option
def set_breaker(words: tuple[str, ...], url: str | None, *, as_json: bool, **given: Any) -> int:
    """Other numbers for a task's breaker, until those in the code change. The rest stays."""
    from windlass.config import parse_duration

    where, task = named(words, url, "task")
    wanted = choices.changes(given)
    choices.needs_one(wanted, "--failures, --cool-down, --growth or --longest")
    for name in ("cool_down", "longest"):
        if name in wanted:
            wanted[name] = parse_duration(wanted[name], f"--{name.replace('_', '-')}")

    async def order(app: Windlass) -> _Breaker:
        await app.admin.set_breaker(task, **wanted)
        return await _one(app, task)

    breaker = ask(where, order)
    _say(breaker, f"The breaker of {task} opens {_numbers(breaker)}.", as_json=as_json)
    return 0


async def _all(app: Windlass) -> list[_Breaker]:
    reports = await app.admin.breakers()
    now = await (await app.storage()).now()
    return [_Breaker(report, now) for report in reports]


async def _one(app: Windlass, task: str) -> _Breaker:
    return next(breaker for breaker in await _all(app) if breaker.report.task == task)


def _row(breaker: _Breaker) -> tuple[str, ...]:
    from windlass.cli.tables import left

    report = breaker.report
    trial = "–"
    if report.state == "open" and report.open_until is not None:
        trial = f"in {left(report.open_until, breaker.now)}"
    elif report.state == "trial":
        trial = "running" if report.running else "now"
    return (
        report.task,
        report.state,
        f"{report.failures:,} of {report.breaker.failures:,}",
        trial,
        f"{report.running:,}",
    )


def _numbers(breaker: _Breaker) -> str:
    from windlass.written import write_duration

    rule = breaker.report.breaker
    return (
        f"after {rule.failures:,} failures in a row, for {write_duration(rule.cool_down)}, "
        f"then × {rule.growth:g} each time, at most {write_duration(rule.longest)}"
    )


def _say(breaker: _Breaker, text: str, *, as_json: bool) -> None:
    from windlass.cli.tables import print_json

    if as_json:
        print_json(_fields(breaker))
    else:
        click.echo(text)


def _fields(breaker: _Breaker) -> dict[str, Any]:
    from windlass.written import write_duration

    report = breaker.report
    return {
        "task": report.task,
        "state": report.state,
        "failures": report.failures,
        "opened": report.opened,
        "open_until": report.open_until,
        "running": report.running,
        "breaker": {
            "failures": report.breaker.failures,
            "cool_down": write_duration(report.breaker.cool_down),
            "growth": report.breaker.growth,
            "longest": write_duration(report.breaker.longest),
        },
    }
