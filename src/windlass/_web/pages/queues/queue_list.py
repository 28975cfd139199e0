"""Queues: what waits and runs in each, and whether it may."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec
from starlette.responses import Response

from windlass._app.parts import parts_of
from windlass._core.stats.rollup import Rollup, minute_of
from windlass._storage.protocol.admin import QueueCounts
from windlass._storage.protocol.queues import QueueRecord
from windlass._storage.protocol.workers import Standing, WorkerRecord
from windlass._web.render.confirmation import ActionNotice, ActionPage, Confirmation
from windlass._web.render.forms import page_path
from windlass._web.render.paging import page_rows
from windlass._web.request import PageRequest

if TYPE_CHECKING:
    from windlass.admin import Admin

__all__ = [
    "ENDED",
    "PAUSE",
    "RESUME",
    "WARM",
    "QueueListRow",
    "format_per_minute",
    "page_of",
    "queues",
    "read_live_state",
    "rows_of",
]

_PAGE = "/queues"
_HOUR = timedelta(hours=1)
_STEP = timedelta(minutes=2)
_PACE = timedelta(minutes=5)
"""The window of a rate: long enough not to jump, short enough to show a stop."""
ENDED = ("succeed", "fail", "cancel")
"""The verbs that take a job out of a queue for good."""

_COUNTED = ("ready", "scheduled", "running", "succeeded", "failed", "retrying")


class BoundedCount(msgspec.Struct, frozen=True):
    """A number that may be a lower bound: counting stops where a page needs no more."""

    value: int
    more: bool


class QueueListRow(msgspec.Struct, frozen=True):
    """One queue as its row shows it."""

    record: QueueRecord
    counts: QueueCounts
    now: datetime
    slots: int = 0
    """Of the live workers that serve it; they may serve others, too."""
    workers: int = 0
    spark: Sequence[int] = ()
    """Jobs that ended, in steps of two minutes of the last hour, oldest first."""
    per_minute: float = 0.0
    """Jobs that ended, lately."""

    @property
    def name(self) -> str:
        return self.record.queue

    def count(self, name: str) -> BoundedCount:
        """Return how many of them are ready, running …."""
        value: int = getattr(self.counts, name)
        cap = self.counts.cap
        return BoundedCount(value, more=cap is not None and value >= cap)

    @property
    def cooling(self) -> bool:
        until = self.record.cool_until
        return until is not None and until > self.now

    @property
    def full(self) -> bool:
        most = self.record.settings.max_running
        return most is not None and self.counts.running >= most

    @property
    def room(self) -> int:
        """How many of it can run at once, as things stand."""
        most = self.record.settings.max_running
        return self.slots if most is None else min(self.slots, most)

    @property
    def deserted(self) -> bool:
        """Return whether jobs wait in a queue without a worker."""
        return not self.workers and bool(self.counts.ready or self.counts.scheduled)

    @property
    def states(self) -> tuple[str, ...]:
        """Return the reasons that hold it back; empty: it is open."""
        held = (("paused", self.record.paused), ("cooling", self.cooling), ("full", self.full))
        return tuple(word for word, holds in held if holds) or ("open",)


async def queues(visit: PageRequest) -> Response:
    """Return the page."""
    now = await visit.admin.storage.now()
    rows = await rows_of(visit, now)
    shown = page_rows(visit, rows)
    return await visit.render(
        "queues.html", now=now, rows=shown.rows, shown=shown, totals=_totals(rows)
    )


async def read_live_state(admin: Admin) -> object:
    """Read the values of the page; rates and lines follow, once a minute at least."""
    return (
        await admin.queues.counts(),
        await admin.queues.list(),
        minute_of(await admin.storage.now()),
    )


def page_of(queue: str) -> str:
    """Everything about one queue. Its name may hold a slash, so it is no part of the path."""
    return page_path("/queues/one", queue=queue)


async def rows_of(visit: PageRequest, now: datetime) -> list[QueueListRow]:
    """List every queue that has jobs, workers, tasks or settings."""
    admin = visit.admin
    counts = {one.queue: one for one in await admin.queues.counts()}
    records = {one.queue: one for one in await admin.queues.list()}
    crew = [one for one in await admin.workers.list(ended_within=timedelta(0)) if _serves(one, now)]
    past: dict[str, list[Rollup]] = {}
    for rollup in await admin.stats.rollups(minute_of(now) - _HOUR, now):
        past.setdefault(rollup.queue, []).append(rollup)
    app = visit.dashboard.app
    of_tasks = parts_of(app).queues() if len(app.tasks) else ()
    rows: list[QueueListRow] = []
    for name in sorted({*counts, *records, *of_tasks}):
        serving = [one for one in crew if name in one.start.queues]
        ran = past.get(name, [])
        rows.append(
            QueueListRow(
                records.get(name) or QueueRecord(queue=name),
                counts.get(name) or QueueCounts(queue=name),
                now,
                slots=sum(one.start.pools.get(name, one.start.slots) for one in serving),
                workers=len(serving),
                spark=_spark(ran, now),
                per_minute=_pace(ran, now),
            )
        )
    return rows


def _serves(worker: WorkerRecord, now: datetime) -> bool:
    return worker.standing(now) is Standing.LIVE


def _pace(rollups: Sequence[Rollup], now: datetime) -> float:
    """Per minute, over whole minutes and the one that is under way."""
    since = minute_of(now) - _PACE
    recent = [rollup for rollup in rollups if rollup.minute >= since]
    ended = sum(rollup.counts.get(verb, 0) for rollup in recent for verb in ENDED)
    return format_per_minute(ended / ((now - since) / timedelta(minutes=1)))


def format_per_minute(rate: float) -> float:
    """Return a rate in digits that do not flicker: tenths only below ten."""
    return round(rate, 1) if rate < 10 else float(round(rate))


def _spark(rollups: Sequence[Rollup], now: datetime) -> list[int]:
    steps = [0] * (_HOUR // _STEP)
    for rollup in rollups:
        step = len(steps) - 1 - (minute_of(now) - rollup.minute) // _STEP
        if 0 <= step < len(steps):
            steps[step] += sum(rollup.counts.get(verb, 0) for verb in ENDED)
    return steps


def _totals(rows: Sequence[QueueListRow]) -> Mapping[str, BoundedCount]:
    totals: dict[str, BoundedCount] = {}
    for name in _COUNTED:
        counts = [row.count(name) for row in rows]
        totals[name] = BoundedCount(
            sum(one.value for one in counts), any(one.more for one in counts)
        )
    return totals


# --- orders ---------------------------------------------------------------------------------------


def _back(visit: PageRequest) -> str:
    """Return the page that the action came from."""
    return page_of(visit.needed("queue")) if visit.asked("back") == "queue" else _PAGE


def _order(
    verb: str,
    button: str,
    *,
    sentence: str,
    told: str,
    act: Callable[[Admin, str], Awaitable[None]],
) -> ActionPage:
    async def ask(visit: PageRequest) -> Confirmation:
        queue = visit.needed("queue")
        return Confirmation(
            title=f"{verb} queue {queue}?", sentence=sentence, button=button, back=_back(visit)
        )

    async def carry_out(visit: PageRequest) -> ActionNotice:
        queue = visit.needed("queue")
        await act(visit.orders, queue)
        return ActionNotice(told.format(queue=queue), _back(visit))

    return ActionPage(ask=ask, act=carry_out)


PAUSE = _order(
    "Pause",
    "Pause queue",
    sentence="No worker starts jobs of this queue until it is resumed. Running jobs finish. New "
    "jobs are accepted and wait.",
    told="Queue {queue} is paused.",
    act=lambda admin, queue: admin.queues.pause(queue),
)
RESUME = _order(
    "Resume",
    "Resume queue",
    sentence="Workers start its waiting jobs at once.",
    told="Queue {queue} is resumed.",
    act=lambda admin, queue: admin.queues.resume(queue),
)
WARM = _order(
    "End the cool-down of",
    "End cool-down",
    sentence="Jobs start again at once. If they are throttled again, the next cool-down is as "
    "short as the first.",
    told="Queue {queue} is not cooling down.",
    act=lambda admin, queue: admin.queues.warm(queue),
)
