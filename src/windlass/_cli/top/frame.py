"""One frame of ``windlass top``, for a screen, a pipe or a machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from windlass._admin.explain.cause import plural
from windlass._cli.output.tables import NUMBER, FittingTable, left, plain_cell
from windlass._cli.top.frame_reader import TopFrame, TopQueue
from windlass._core.job.job import AttemptError
from windlass._observe.log import brief, error_in_one_line
from windlass._storage.protocol.workers import WorkerRecord

__all__ = ["fields", "render_frame", "sparkline"]

_BARS = " ▁▂▃▄▅▆▇█"
_LONGEST_ERROR = 90


def render_frame(seen: TopFrame, note: str = "") -> RenderableType:
    """Render a frame: queues, workers, errors. ``note`` is shown at the top."""
    return Group(
        _head(seen, note),
        _throughput(seen),
        "",
        _queues(seen),
        "",
        _workers(seen),
        *_errors(seen),
    )


def _head(seen: TopFrame, note: str) -> Text:
    line = Text.assemble(
        ("windlass top", "bold"),
        "  ",
        plain_cell(seen.storage),
        f"  {seen.at:%Y-%m-%d %H:%M:%S} UTC",
    )
    return line.append(f"  {note}", style="dim") if note else line


def _throughput(seen: TopFrame) -> Text:
    minutes, failing = len(seen.ended), sum(seen.failing)
    runs = plural(sum(seen.ended), "run")
    line = Text.assemble((sparkline(seen.ended), "green"), f"  {runs} ended in {minutes} minutes, ")
    return line.append(f"{failing:,} with an error", style="red" if failing else "")


def sparkline(numbers: Sequence[int]) -> str:
    """Draw one bar for each number. The highest is full, and a number above 0 is visible."""
    most = max(numbers, default=0)
    if not most:
        return _BARS[1] * len(numbers)
    steps = len(_BARS) - 2
    return "".join(_BARS[1 + -(-number * steps // most)] for number in numbers)


# --- parts ----------------------------------------------------------------------------------------


def _queues(seen: TopFrame) -> RenderableType:
    if not seen.queues:
        return Text("No queue has jobs, settings or workers.", style="dim")
    titles = (
        "ready",
        "scheduled",
        "retrying",
        "running",
        "slots",
        "lag",
        "ended/min",
        "errors/min",
    )
    rows = (_queue_row(one, seen) for one in seen.queues)
    going = ("slots", "ended/min", "retrying", "scheduled", "lag", "errors/min")
    named = ("queue", *(f"{NUMBER}{title}" for title in titles), "state")
    return FittingTable(named, rows, cut=("queue", "state"), going=going)


def _queue_row(one: TopQueue, seen: TopFrame) -> tuple[str, ...]:
    counts = one.counts
    most = one.record.settings.max_running
    running = f"{counts.running:,}" + ("" if most is None else f" of {most:,}")
    figures = [_capped(getattr(counts, n), counts.cap) for n in ("ready", "scheduled", "retrying")]
    return (
        counts.queue,
        *figures,
        running,
        f"{one.slots:,}",
        brief(one.lag) if one.lag > timedelta(0) else "–",
        _rate(one.per_minute),
        _rate(one.failing_per_minute),
        ", ".join(_queue_states(one, seen)) or "open",
    )


def _queue_states(one: TopQueue, seen: TopFrame) -> Iterator[str]:
    if one.record.paused:
        yield "paused"
    until = one.record.cool_until
    if until is not None and until > seen.at:
        yield f"cooling down for {left(until, seen.at)}"
    if not one.slots and (one.counts.ready or one.counts.scheduled):
        yield "no worker"


def _capped(number: int, cap: int | None) -> str:
    return f"{number:,}" + ("+" if cap is not None and number >= cap else "")


def _rate(per_minute: float) -> str:
    if not per_minute:
        return "–"
    return f"{per_minute:,.0f}" if per_minute >= 10 else f"{per_minute:.1f}"


def _workers(seen: TopFrame) -> RenderableType:
    if not seen.workers:
        return Text("No worker is live.", style="yellow")
    titles = ("worker", "state", "host", f"{NUMBER}pid", "queues")
    numbers = (f"{NUMBER}busy slots", f"{NUMBER}memory", f"{NUMBER}last heartbeat")
    rows = (_worker_row(one, seen) for one in seen.workers)
    going = ("pid", "memory", "host", "last heartbeat", "queues")
    return FittingTable((*titles, *numbers), rows, cut=("host", "queues"), going=going)


def _worker_row(one: WorkerRecord, seen: TopFrame) -> tuple[str, ...]:
    start = one.start
    return (
        start.id,
        one.standing(seen.at).value,
        start.host,
        str(start.pid),
        ", ".join(start.queues),
        f"{one.running:,} of {start.slots:,}",
        "–" if one.memory is None else f"{one.memory / 2**20:,.0f} MiB",
        f"{left(seen.at, one.beat_at)} ago",
    )


def _errors(seen: TopFrame) -> Iterator[RenderableType]:
    if not seen.errors:
        return
    yield ""
    titles = (f"{NUMBER}failed", f"{NUMBER}last", "tasks", "error")
    rows = (
        (
            f"{group.count:,}",
            f"{left(seen.at, group.last)} ago",
            ", ".join(group.tasks),
            error_in_one_line(AttemptError(group.kind, group.text), limit=_LONGEST_ERROR),
        )
        for group in seen.errors
    )
    yield FittingTable(titles, rows, cut=("tasks", "error"))


# --- for machines ---------------------------------------------------------------------------------


def fields(seen: TopFrame) -> dict[str, Any]:
    """Return the fields of a frame for machines. Never rename them."""
    return {
        "at": seen.at,
        "storage": seen.storage,
        "queues": [_queue_fields(one, seen) for one in seen.queues],
        "workers": [
            {
                "id": one.start.id,
                "state": one.standing(seen.at).value,
                "host": one.start.host,
                "pid": one.start.pid,
                "queues": list(one.start.queues),
                "slots": one.start.slots,
                "running": one.running,
                "memory": one.memory,
                "beat_age": max((seen.at - one.beat_at).total_seconds(), 0.0),
            }
            for one in seen.workers
        ],
        "errors": [
            {
                "kind": group.kind,
                "frame": group.frame,
                "count": group.count,
                "last": group.last,
                "job": group.job,
                "text": group.text,
                "tasks": list(group.tasks),
            }
            for group in seen.errors
        ],
        "ended_per_minute": list(seen.ended),
        "errors_per_minute": list(seen.failing),
    }


def _queue_fields(one: TopQueue, seen: TopFrame) -> dict[str, Any]:
    counts = one.counts
    names = ("queue", "ready", "scheduled", "retrying", "running", "cap")
    return {name: getattr(counts, name) for name in names} | {
        "slots": one.slots,
        "lag": one.lag.total_seconds(),
        "ended_per_minute": round(one.per_minute, 3),
        "errors_per_minute": round(one.failing_per_minute, 3),
        "paused": one.record.paused,
        "cooling": one.record.cool_until is not None and one.record.cool_until > seen.at,
    }
