"""Print schedules: tables for people, fields for machines."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from windlass._core.schedule.describe import describe_outcome

if TYPE_CHECKING:
    from windlass._core.limits.breaker import BreakerState
    from windlass._core.schedule.schedule import ScheduleRun
    from windlass.admin import ScheduleReport

__all__ = [
    "ShownSchedule",
    "fields",
    "instant_in_zone",
    "next_slot_in_words",
    "print_change",
    "print_pause",
    "print_schedule",
    "schedule_row",
]

_RUNS = 5


class ShownSchedule(NamedTuple):
    """A schedule, the store's now, and since when all schedules are paused."""

    report: ScheduleReport
    now: datetime
    all_paused: datetime | None = None


def schedule_row(shown: ShownSchedule) -> tuple[str, ...]:
    """Return the row of a schedule in the list."""
    report = shown.report
    last = describe_outcome(report.runs[0].outcome) if report.runs else "none yet"
    when = report.words or report.problem
    if report.plan is not None and report.plan.on == "every_worker":
        when = f"{when}, on every worker"
        last = describe_outcome(report.on_workers[0].outcome) if report.on_workers else last
    failures = f"{report.failures:,}" if report.failures else ""
    return report.name, when, report.state, _when(report.next_at, shown.now), last, failures


def _when(at: datetime | None, now: datetime) -> str:
    from windlass._cli.output.tables import left

    if at is None:
        return "–"
    return "now" if at <= now else f"in {left(at, now)}"


def next_slot_in_words(shown: ShownSchedule) -> str:
    """Say when the schedule fires next."""
    at = shown.report.next_at
    return "It has no next slot." if at is None else f"Next {_when(at, shown.now)}."


def instant_in_zone(at: datetime, zone: str = "UTC") -> str:
    """Format an instant in a time zone."""
    from zoneinfo import ZoneInfo

    there = at.astimezone(ZoneInfo(zone))
    return f"{there:%Y-%m-%d %H:%M:%S %Z}"


def print_change(shown: ShownSchedule, text: str, *, as_json: bool) -> None:
    """Print a sentence, or the fields."""
    from windlass._cli.output.tables import print_json

    if as_json:
        print_json(fields(shown))
    else:
        click.echo(text)
        print_pause(shown.all_paused)


def print_pause(since: datetime | None) -> None:
    """Remark on standard error that all schedules are paused, if they are."""
    if since is not None:
        click.echo(
            f"All schedules are paused since {instant_in_zone(since)}. "
            f"Resume them with `windlass schedules resume --all`.",
            err=True,
        )


def print_schedule(shown: ShownSchedule, *, as_json: bool) -> None:
    """Print everything about one schedule."""
    from windlass._cli.output.tables import print_json, print_pairs

    if as_json:
        print_json(fields(shown))
        return
    report = shown.report
    pairs = [("state", report.state + (f": {report.problem}" if report.problem else ""))]
    if report.plan is not None:
        zone = getattr(report.plan.rule, "tz", "UTC")
        pairs += [("when", report.words), *_job(report)]
        pairs += [("next", instant_in_zone(slot, zone)) for slot in report.upcoming]
        pairs += _policies(report)
    pairs += [
        ("run", f"{instant_in_zone(run.slot)}  {_outcome(run)}") for run in report.runs[:_RUNS]
    ]
    pairs += [
        ("worker", f"{run.worker}  {instant_in_zone(run.slot)}  {describe_outcome(run.outcome)}")
        for run in report.on_workers[:_RUNS]
    ]
    if report.failures:
        pairs.append(("failures", f"{report.failures:,} in a row"))
    pairs += [
        (f"changed {name}", f"{now}; in the code: {code}")
        for name, (code, now) in report.changed.items()
    ]
    if report.changed_at is not None:
        pairs.append(
            ("last changed", f"{instant_in_zone(report.changed_at)} by {report.changed_by}")
        )
    print_pairs(report.name, pairs)
    print_pause(shown.all_paused)


def _job(report: ScheduleReport) -> Sequence[tuple[str, str]]:
    job = None if report.plan is None else report.plan.job
    if job is None:
        return [("runs", "a chore of Windlass, without a job")]
    return [
        ("runs", f"{job.task} on queue {job.queue}{_where(report)}"),
        ("arguments", job.payload.decode(errors="replace")),
    ]


def _where(report: ScheduleReport) -> str:
    every = report.plan is not None and report.plan.on == "every_worker"
    return ", on every worker, without a job" if every else ""


def _policies(report: ScheduleReport) -> Sequence[tuple[str, str]]:
    from windlass._settings.durations import format_duration

    plan = report.plan
    if plan is None:
        return []
    pairs = [("missed", plan.missed.value), ("overlap", str(plan.overlap))]
    if plan.jitter:
        pairs.append(("jitter", f"up to {format_duration(plan.jitter)}"))
    for name in ("starts", "ends"):
        at = getattr(plan, name)
        if at is not None:
            pairs.append((name, instant_in_zone(at)))
    breaker = report.breaker
    if breaker is not None and breaker.open_until is not None:
        pairs.append(("breaker", f"open until {instant_in_zone(breaker.open_until)}"))
    counts = f"{report.fired:,} fired, {report.left_out:,} skipped"
    return [*pairs, ("slots", counts)]


def _outcome(run: ScheduleRun) -> str:
    by = f" (triggered by {run.by})" if run.by else ""
    outcome = describe_outcome(run.outcome) or "active"
    return f"{outcome}{by}" + (f"  job {run.job}" if run.job else "")


def fields(shown: ShownSchedule) -> dict[str, Any]:
    """Return the fields for machines. Never rename them."""
    import msgspec

    from windlass._cli.options.schedule_rules import rule_as_options

    report = shown.report
    plan = report.plan
    job = None if plan is None else plan.job
    return {
        "name": report.name,
        "state": report.state,
        "problem": report.problem or None,
        "words": report.words or None,
        "rule": None if plan is None else rule_as_options(plan.rule),
        "next_at": report.next_at,
        "upcoming": list(report.upcoming),
        "failures": report.failures,
        "fired": report.fired,
        "left_out": report.left_out,
        "declared": report.declared,
        "changed": {name: {"code": c, "now": n} for name, (c, n) in report.changed.items()},
        "changed_by": report.changed_by or None,
        "changed_at": report.changed_at,
        "runs": [_run(run) for run in report.runs],
        "on": None if plan is None else plan.on,
        "on_workers": [
            {
                "worker": run.worker,
                "slot": run.slot,
                "outcome": run.outcome,
                "ended_at": run.ended_at,
            }
            for run in report.on_workers
        ],
        "breaker": None if report.breaker is None else _breaker(report.breaker),
        "task": None if job is None else job.task,
        "queue": None if job is None else job.queue,
        "arguments": None if job is None else msgspec.Raw(job.payload),
        "missed": None if plan is None else plan.missed.value,
        "most_missed": None if plan is None else plan.most_missed,
        "overlap": None if plan is None else plan.overlap,
        "jitter": None if plan is None else plan.jitter.total_seconds(),
        "starts": None if plan is None else plan.starts,
        "ends": None if plan is None else plan.ends,
    }


def _run(run: ScheduleRun) -> dict[str, Any]:
    return {
        "slot": run.slot,
        "job": run.job,
        "outcome": run.outcome or None,
        "ended_at": run.ended_at,
        "by": run.by or None,
    }


def _breaker(state: BreakerState) -> dict[str, Any]:
    return {"failures": state.failures, "opened": state.opened, "open_until": state.open_until}
