"""``windlass breakers``: list, reset and change circuit breakers."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from windlass._app.parts import parts_of
from windlass._cli.options import name_completion, optional_values
from windlass._cli.options.groups import SuggestingGroup, examples
from windlass._cli.options.target import (
    json_option,
    run_on_target,
    target_and_name,
    target_argument,
    target_of,
    url_option,
)

if TYPE_CHECKING:
    from windlass._app.app import Windlass
    from windlass.admin import BreakerReport

__all__ = ["breakers"]

_names = click.argument(
    "words", metavar="[MODULE:APP] TASK", nargs=-1, shell_complete=name_completion.tasks
)


class _ShownBreaker(NamedTuple):
    report: BreakerReport
    now: datetime


@click.group(
    cls=SuggestingGroup,
    epilog=examples(
        "windlass breakers list shop:app",
        "windlass breakers reset shop:app charge_card",
    ),
)
def breakers() -> None:
    """List, reset and change circuit breakers."""


@breakers.command(
    "list",
    epilog=examples(
        "windlass breakers list shop:app",
        "windlass breakers list --url sqlite:///jobs.db --json",
    ),
)
@target_argument
@url_option
@json_option
def list_breakers(target: str | None, url: str | None, *, as_json: bool) -> int:
    """List tasks with a breaker.

    \b
    closed  its jobs run
    open    no job of the task starts before the next trial
    trial   one job runs; its outcome closes or reopens the breaker
    """  # noqa: D301 -- click's mark for lines that stay as they are
    from windlass._cli.output.tables import NUMBER, print_json, print_table

    async def question(app: Windlass) -> tuple[list[_ShownBreaker], str]:
        return await _all(app), (await parts_of(app).storage()).describe()

    found, described = run_on_target(target_of(target, url), question)
    if as_json:
        print_json([_fields(breaker) for breaker in found])
    elif not found:
        click.echo(
            f"{described} has no circuit breakers. Give a task one with @app.task(breaker=True). "
            f"It is stored when a worker starts, or with the task's first job."
        )
    else:
        titles = ("task", "state", "failures in a row", "next trial", "running")
        numbers = tuple(f"{NUMBER}{t}" if t in titles[2::2] else t for t in titles)
        print_table(numbers, map(_row, found))
    return 0


@breakers.command(
    epilog=examples(
        "windlass breakers reset shop:app charge_card",
        "windlass breakers reset --url sqlite:///jobs.db charge_card",
    )
)
@_names
@url_option
@json_option
def reset(words: tuple[str, ...], url: str | None, *, as_json: bool) -> int:
    """Close the breaker of a task and reset its failures. Its jobs start at once."""
    where, task = target_and_name(words, url, "task")

    async def act(app: Windlass) -> _ShownBreaker:
        await app.admin.breakers.reset(task)
        return await _one(app, task)

    _say(
        run_on_target(where, act),
        f"The breaker of {task} is closed. Its jobs can start.",
        as_json=as_json,
    )
    return 0


@breakers.command(
    "set",
    epilog=examples(
        "windlass breakers set shop:app charge_card --failures 10",
        "windlass breakers set shop:app charge_card --cool-down 1m --growth 2 --longest 30m",
    ),
)
@_names
@click.option("--failures", type=int, metavar="N", help="Open after N failures in a row.")
@click.option("--cool-down", metavar="TIME", help="How long it is open the first time.")
@click.option(
    "--growth", type=float, metavar="X", help="Multiply that time by X after each failed trial."
)
@click.option("--longest", metavar="TIME", help="Maximum time that it is open.")
@url_option
@json_option
def set_breaker(words: tuple[str, ...], url: str | None, *, as_json: bool, **given: Any) -> int:
    """Change the breaker of a task. The values apply until those in the code change."""
    from windlass._settings.settings import parse_duration

    where, task = target_and_name(words, url, "task")
    wanted = optional_values.changes(given)
    optional_values.require_change(wanted, "--failures, --cool-down, --growth or --longest")
    for name in ("cool_down", "longest"):
        if name in wanted:
            wanted[name] = parse_duration(wanted[name], f"--{name.replace('_', '-')}")

    async def act(app: Windlass) -> _ShownBreaker:
        await app.admin.breakers.set(task, **wanted)
        return await _one(app, task)

    breaker = run_on_target(where, act)
    _say(breaker, f"The breaker of {task} opens {_numbers(breaker)}.", as_json=as_json)
    return 0


async def _all(app: Windlass) -> list[_ShownBreaker]:
    reports = await app.admin.breakers.list()
    now = await (await parts_of(app).storage()).now()
    return [_ShownBreaker(report, now) for report in reports]


async def _one(app: Windlass, task: str) -> _ShownBreaker:
    return next(breaker for breaker in await _all(app) if breaker.report.task == task)


def _row(breaker: _ShownBreaker) -> tuple[str, ...]:
    from windlass._cli.output.tables import left

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


def _numbers(breaker: _ShownBreaker) -> str:
    from windlass._settings.durations import format_duration

    rule = breaker.report.breaker
    return (
        f"after {rule.failures:,} failures in a row, for {format_duration(rule.cool_down)}, "
        f"then × {rule.growth:g} each time, at most {format_duration(rule.longest)}"
    )


def _say(breaker: _ShownBreaker, text: str, *, as_json: bool) -> None:
    from windlass._cli.output.tables import print_json

    if as_json:
        print_json(_fields(breaker))
    else:
        click.echo(text)


def _fields(breaker: _ShownBreaker) -> dict[str, Any]:
    from windlass._settings.durations import format_duration

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
            "cool_down": format_duration(report.breaker.cool_down),
            "growth": report.breaker.growth,
            "longest": format_duration(report.breaker.longest),
        },
    }
