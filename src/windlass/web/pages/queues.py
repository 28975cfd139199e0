"""Queues: what waits and runs in each, and whether it may."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec
from starlette.responses import Response

from windlass.storage.protocol import QueueCounts, QueueRecord
from windlass.web.actions import Action, Done, Question
from windlass.web.visit import Visit

if TYPE_CHECKING:
    from windlass.admin import Admin

__all__ = ["PAUSE", "RESUME", "WARM", "look", "queues"]

_PAGE = "/queues"


_COUNTED = ("ready", "scheduled", "running", "succeeded", "failed", "retrying")


class Count(msgspec.Struct, frozen=True):
    """A number that may go on: nobody counts further than a page needs."""

    value: int
    more: bool


class QueueRow(msgspec.Struct, frozen=True):
    """One queue as its row shows it."""

    record: QueueRecord
    counts: QueueCounts
    now: datetime

    @property
    def name(self) -> str:
        return self.record.queue

    def count(self, name: str) -> Count:
        """How many of them are ready, running …."""
        value: int = getattr(self.counts, name)
        cap = self.counts.cap
        return Count(value, more=cap is not None and value >= cap)

    @property
    def cooling(self) -> bool:
        until = self.record.cool_until
        return until is not None and until > self.now

    @property
    def full(self) -> bool:
        most = self.record.settings.max_running
        return most is not None and self.counts.running >= most

    @property
    def states(self) -> tuple[str, ...]:
        """What holds it back; nothing: it is open."""
        held = (("paused", self.record.paused), ("cooling", self.cooling), ("full", self.full))
        return tuple(word for word, holds in held if holds) or ("open",)


async def queues(visit: Visit) -> Response:
    """The page."""
    now = await visit.admin.now()
    rows = await _rows(visit, now)
    return await visit.render("queues.html", now=now, rows=rows, totals=_totals(rows))


async def look(admin: Admin) -> object:
    """What the page is made of."""
    return await admin.counts(), await admin.queues()


async def _rows(visit: Visit, now: datetime) -> list[QueueRow]:
    counts = {one.queue: one for one in await visit.admin.counts()}
    records = {one.queue: one for one in await visit.admin.queues()}
    app = visit.dashboard.app
    of_tasks = app.worker_settings().shared if len(app.tasks) else ()
    return [
        QueueRow(
            records.get(name) or QueueRecord(queue=name),
            counts.get(name) or QueueCounts(queue=name),
            now,
        )
        for name in sorted({*counts, *records, *of_tasks})
    ]


def _totals(rows: Sequence[QueueRow]) -> Mapping[str, Count]:
    totals: dict[str, Count] = {}
    for name in _COUNTED:
        counts = [row.count(name) for row in rows]
        totals[name] = Count(sum(one.value for one in counts), any(one.more for one in counts))
    return totals


# --- orders ---------------------------------------------------------------------------------------


def _order(
    verb: str,
    button: str,
    *,
    sentence: str,
    told: str,
    act: Callable[[Admin, str], Awaitable[None]],
) -> Action:
    async def ask(visit: Visit) -> Question:
        queue = visit.needed("queue")
        return Question(
            title=f"{verb} queue {queue}?", sentence=sentence, button=button, back=_PAGE
        )

    async def carry_out(visit: Visit) -> Done:
        queue = visit.needed("queue")
        await act(visit.orders, queue)
        return Done(told.format(queue=queue), _PAGE)

    return Action(ask=ask, act=carry_out)


PAUSE = _order(
    "Pause",
    "Pause queue",
    sentence="Nothing of it starts until it is resumed, in no worker. What runs goes on, and new "
    "jobs are accepted and wait.",
    told="Queue {queue} is paused.",
    act=lambda admin, queue: admin.pause(queue),
)
RESUME = _order(
    "Resume",
    "Resume queue",
    sentence="Its workers start what waits, at once.",
    told="Queue {queue} runs again.",
    act=lambda admin, queue: admin.resume(queue),
)
WARM = _order(
    "End the cool-down of",
    "End cool-down",
    sentence="Jobs start again at once. Whoever asked for the pause upstream may ask again; the "
    "next cool-down is as short as the first.",
    told="Queue {queue} is not cooling down.",
    act=lambda admin, queue: admin.warm(queue),
)
