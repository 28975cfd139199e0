"""``windlass stats``: hosts and the storage over time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

import click

from windlass._cli.jobs.filters import instant_of
from windlass._cli.options.groups import Command, SuggestingGroup, examples, with_options
from windlass._cli.options.target import (
    json_option,
    run_on_target,
    target_argument,
    target_of,
    url_option,
)

if TYPE_CHECKING:
    from windlass._app.app import Windlass
    from windlass.admin import GaugePoint, GaugeSeries

__all__ = ["stats"]

T = TypeVar("T")

_NO_WORKER = "There are no measurements of this time. Workers report them once a minute."
_JOBS = ("ready", "scheduled", "running", "failed")


@click.group(
    cls=SuggestingGroup,
    epilog=examples("windlass stats hosts shop:app", "windlass stats storage shop:app --since 7d"),
)
def stats() -> None:
    """Show how busy the hosts and how large the storage were over time."""


def _over_time(command: Command) -> Command:
    """Add the options of a series."""
    return with_options(
        command,
        click.option(
            "--since",
            default="1h",
            show_default=True,
            metavar="TIME",
            help="From this instant on, or from this long ago.",
        ),
        click.option(
            "--step",
            metavar="DURATION",
            help="Width of a row: 1m, 5m, 1h. Default: what suits the time span.",
        ),
        url_option,
        json_option,
    )


@stats.command(
    epilog=examples(
        "windlass stats hosts shop:app",
        "windlass stats hosts shop:app --host web-1 --since 24h --step 1h",
        "windlass stats hosts --url sqlite:///jobs.db --since 7d --json",
    )
)
@target_argument
@click.option("--host", metavar="NAME", help="Only this host, with a row for each step.")
@_over_time
def hosts(
    target: str | None,
    url: str | None,
    host: str | None,
    since: str,
    step: str | None,
    *,
    as_json: bool,
) -> int:
    """Show CPU, memory and disk use of the hosts that run workers."""
    from windlass._cli.output.tables import NUMBER, print_json, print_table

    async def question(
        app: Windlass, start: datetime, now: datetime, width: timedelta | None
    ) -> Sequence[GaugeSeries]:
        return await app.admin.stats.hosts(start, now, step=width, host=host)

    found = _ask(target, url, since, step, question)
    if as_json:
        print_json(found)
    elif not found:
        click.echo(_NO_WORKER)
    elif host is None:
        numbers = ("cpu", "mean", "peak", "memory", "disk")
        titles = ("host", "when", *(f"{NUMBER}{name}" for name in numbers))
        print_table(titles, [_host_row(one) for one in found])
    else:
        titles = ("from", *(f"{NUMBER}{name}" for name in ("cpu", "peak", "memory", "disk")))
        print_table(titles, [_host_point(point) for point in found[0].points if point.mean])
    return 0


@stats.command(
    epilog=examples(
        "windlass stats storage shop:app",
        "windlass stats storage shop:app --since 7d --step 1d --json",
    )
)
@target_argument
@_over_time
def storage(
    target: str | None, url: str | None, since: str, step: str | None, *, as_json: bool
) -> int:
    """Show the size of the storage, its jobs by state and how fast it answered."""
    from windlass._cli.output.tables import NUMBER, print_json, print_table

    async def question(
        app: Windlass, start: datetime, now: datetime, width: timedelta | None
    ) -> GaugeSeries:
        return await app.admin.stats.storage(start, now, step=width)

    told = _ask(target, url, since, step, question)
    if as_json:
        print_json(told)
    elif told.latest is None:
        click.echo(_NO_WORKER)
    else:
        numbers = ("size", *_JOBS, "read p95", "write p95")
        titles = ("from", *(f"{NUMBER}{name}" for name in numbers))
        print_table(titles, [_storage_point(point) for point in told.points if point.mean])
    return 0


def _ask(
    target: str | None,
    url: str | None,
    since: str,
    step: str | None,
    question: Callable[[Windlass, datetime, datetime, timedelta | None], Awaitable[T]],
) -> T:
    from windlass._settings.durations import parse_duration

    width = None if step is None else parse_duration(step, "--step")

    async def ask(app: Windlass) -> T:
        now = await app.admin.storage.now()
        return await question(app, instant_of(since, now, "--since", ago=True), now, width)

    return run_on_target(target_of(target, url), ask)


def _host_row(series: GaugeSeries) -> tuple[str, ...]:
    latest = series.latest or series.whole
    cpu = (latest.mean, series.whole.mean, series.whole.peak)
    return (
        series.source,
        _when(latest),
        *(_percent(values.get("cpu")) for values in cpu),
        _part_of(latest.mean, "memory"),
        _part_of(latest.mean, "disk"),
    )


def _host_point(point: GaugePoint) -> tuple[str, ...]:
    return (
        _when(point),
        _percent(point.mean.get("cpu")),
        _percent(point.peak.get("cpu")),
        _part_of(point.mean, "memory"),
        _part_of(point.mean, "disk"),
    )


def _storage_point(point: GaugePoint) -> tuple[str, ...]:
    return (
        _when(point),
        _bytes(point.mean.get("size")),
        *(_count(point.mean.get(f"jobs_{state}")) for state in _JOBS),
        *(_seconds(point.mean.get(name)) for name in ("read_p95", "write_p95")),
    )


def _when(point: GaugePoint) -> str:
    return f"{point.at:%Y-%m-%d %H:%M}"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.0%}"


def _part_of(values: Mapping[str, float], name: str) -> str:
    from windlass._admin.doctor.finding import format_bytes

    used, total = values.get(f"{name}_used"), values.get(f"{name}_total")
    if used is None or not total:
        return "–"
    return f"{format_bytes(used)} of {format_bytes(total)} ({used / total:.0%})"


def _bytes(value: float | None) -> str:
    from windlass._admin.doctor.finding import format_bytes

    return "–" if value is None else format_bytes(value)


def _count(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _seconds(value: float | None) -> str:
    from windlass._observe.log import brief

    return "–" if value is None else brief(timedelta(seconds=value))
