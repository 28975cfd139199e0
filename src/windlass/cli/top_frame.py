"""One frame of ``windlass top``, for a screen, a pipe or a machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from windlass.cli.tables import NUMBER, cell, left, table_of
from windlass.cli.top_look import Look, QueueLook
from windlass.core.job import AttemptError
from windlass.observe.log import brief, one_line
from windlass.storage.protocol import WorkerRecord

__all__ = ["fields", "frame", "sparkline"]

_BARS = " ▁▂▃▄▅▆▇█"
_LONGEST_ERROR = 90


def frame(seen: Look, note: str = "") -> RenderableType:
    """Everything, from the most to the least urgent; ``note`` stands at the top."""
    return Group(
        _head(seen, note),
        _throughput(seen),
        "",
        _queues(seen),
        "",
        _workers(seen),
        *_errors(seen),
    )


def _head(seen: Look, note: str) -> Text:
    line = Text.assemble(
        ("windlass top", "bold"), "  ", cell(seen.storage), f"  {seen.at:%Y-%m-%d %H:%M:%S} UTC"
    )
    return line.append(f"  {note}", style="dim") if note else line


def _throughput(seen: Look) -> Text:
    minutes, failing = len(seen.ended), sum(seen.failing)
    line = Text.assemble(
        (sparkline(seen.ended), "green"), f"  {sum(seen.ended):,} runs ended in {minutes} minutes, "
    )
    return line.append(f"{failing:,} in an error", style="red" if failing else "")


def sparkline(numbers: Sequence[int]) -> str:
    """One bar for each: the highest is full, and what is not nothing is seen."""
    most = max(numbers, default=0)
    if not most:
        return _BARS[1] * len(numbers)
    steps = len(_BARS) - 2
    return "".join(_BARS[1 + -(-number * steps // most)] for number in numbers)


# --- parts ----------------------------------------------------------------------------------------


def _queues(seen: Look) -> RenderableType:
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
    return table_of(("queue", *(f"{NUMBER}{title}" for title in titles), "state"), rows)


def _queue_row(one: QueueLook, seen: Look) -> tuple[str, ...]:
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


def _queue_states(one: QueueLook, seen: Look) -> Iterator[str]:
    if one.record.paused:
        yield "paused"
    until = one.record.cool_until
    if until is not None and until > seen.at:
        yield f"cooling for {left(until, seen.at)}"
    if not one.slots and (one.counts.ready or one.counts.scheduled):
        yield "no worker"


def _capped(number: int, cap: int | None) -> str:
    return f"{number:,}" + ("+" if cap is not None and number >= cap else "")


def _rate(per_minute: float) -> str:
    if not per_minute:
        return "–"
    return f"{per_minute:,.0f}" if per_minute >= 10 else f"{per_minute:.1f}"


def _workers(seen: Look) -> RenderableType:
    if not seen.workers:
        return Text("No worker is live.", style="yellow")
    titles = ("worker", "state", "host", f"{NUMBER}pid", "queues")
    numbers = (f"{NUMBER}busy slots", f"{NUMBER}memory", f"{NUMBER}heard of")
    return table_of((*titles, *numbers), (_worker_row(one, seen) for one in seen.workers))


def _worker_row(one: WorkerRecord, seen: Look) -> tuple[str, ...]:
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


def _errors(seen: Look) -> Iterator[RenderableType]:
    if not seen.errors:
        return
    yield ""
    titles = (f"{NUMBER}failed", f"{NUMBER}last", "tasks", "error")
    rows = (
        (
            f"{group.count:,}",
            f"{left(seen.at, group.last)} ago",
            ", ".join(group.tasks),
            one_line(AttemptError(group.kind, group.text), limit=_LONGEST_ERROR),
        )
        for group in seen.errors
    )
    yield table_of(titles, rows)


# --- for machines ---------------------------------------------------------------------------------


def fields(seen: Look) -> dict[str, Any]:
    """The same; names stay as they are."""
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


def _queue_fields(one: QueueLook, seen: Look) -> dict[str, Any]:
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
