"""Reads one frame of ``windlass top`` from the store in one go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from windlass._app.parts import parts_of
from windlass._core.job.state import Verb
from windlass._core.stats.rollup import COALESCED, Rollup, minute_of
from windlass._storage.protocol.admin import ErrorGroup, QueueCounts
from windlass._storage.protocol.queues import QueueRecord
from windlass._storage.protocol.workers import Standing, WorkerRecord, WorkerState

if TYPE_CHECKING:
    from windlass._app.app import Windlass

__all__ = ["TopFrame", "TopQueue", "read_frame"]

_MINUTES = 60
"""How far the throughput goes back."""
_RECENT = 5
"""Minutes that a rate is taken over: fewer would jump, more would lie about now."""
_GROUPS = 5
_CAP = 10_000
_HOUR = timedelta(hours=1)

_Wanted = Callable[[str], bool]
"""Of verbs."""


class TopQueue(msgspec.Struct, frozen=True):
    """One queue."""

    counts: QueueCounts
    record: QueueRecord
    slots: int
    """Of the live workers that serve it, which may serve others, too."""
    lag: timedelta
    """How long the job has waited that has been ready for longest."""
    per_minute: float
    """Runs that ended lately …"""
    failing_per_minute: float
    """… and those of them that did in an error, retried or not."""


class TopFrame(msgspec.Struct, frozen=True):
    """One frame."""

    at: datetime
    storage: str
    queues: Sequence[TopQueue]
    workers: Sequence[WorkerRecord]
    """Live and silent ones, and those that died lately."""
    errors: Sequence[ErrorGroup]
    """Of the last hour, the latest first."""
    ended: Sequence[int]
    """Runs that ended per minute, oldest first; the last minute is not over."""
    failing: Sequence[int]


async def read_frame(app: Windlass) -> TopFrame:
    """Ask for everything; bounded, however many jobs there are."""
    admin = app.admin
    now = await admin.storage.now()
    since = minute_of(now) - timedelta(minutes=_MINUTES - 1)
    rollups = await admin.stats.rollups(since, minute_of(now) + timedelta(minutes=1))
    workers = await admin.workers.list()
    errors = await admin.errors.groups(since=now - _HOUR)
    records = {one.queue: one for one in await admin.queues.list()}
    counts = {one.queue: one for one in await admin.queues.counts(cap=_CAP)}
    rates = _Rates(rollups, now)
    live = [one for one in workers if one.standing(now) is Standing.LIVE]
    names = {*counts, *records, *(name for one in live for name in one.start.queues)}
    return TopFrame(
        at=now,
        storage=(await parts_of(app).storage()).describe(),
        queues=[
            _queue(
                counts.get(name) or QueueCounts(queue=name),
                records.get(name) or QueueRecord(queue=name),
                sum(one.start.slots for one in live if name in one.start.queues),
                rates,
                now,
            )
            for name in sorted(names)
        ],
        workers=[one for one in workers if _lately(one, now)],
        errors=errors.groups[:_GROUPS],
        ended=_per_minute(rollups, since, _is_end),
        failing=_per_minute(rollups, since, _is_failure),
    )


def _lately(worker: WorkerRecord, now: datetime) -> bool:
    if worker.state is WorkerState.LIVE:
        return True
    ended = worker.ended_at or worker.beat_at
    return worker.state is WorkerState.DEAD and now - ended < _HOUR


def _queue(
    counts: QueueCounts, record: QueueRecord, slots: int, rates: _Rates, now: datetime
) -> TopQueue:
    due = counts.oldest_due
    ended, failing = rates.of(counts.queue)
    lag = timedelta(0) if due is None else max(now - due, timedelta(0))
    return TopQueue(counts, record, slots, lag, ended, failing)


def _is_end(verb: str) -> bool:
    """Return whether a verb ends a run of a job. A release gives a job back untouched."""
    return verb not in {Verb.RELEASE, COALESCED}


def _is_failure(verb: str) -> bool:
    return verb in {Verb.RETRY, Verb.FAIL}


class _Rates:
    """Ended runs per minute over the last few of them, the running one included as far as it is."""

    def __init__(self, rollups: Iterable[Rollup], now: datetime) -> None:
        since = minute_of(now) - timedelta(minutes=_RECENT - 1)
        self._minutes = max((now - since) / timedelta(minutes=1), 1 / 60)
        self._ended: dict[str, int] = {}
        self._failing: dict[str, int] = {}
        for rollup in rollups:
            if rollup.minute >= since:
                _add(self._ended, rollup, _is_end)
                _add(self._failing, rollup, _is_failure)

    def of(self, queue: str) -> tuple[float, float]:
        return (
            self._ended.get(queue, 0) / self._minutes,
            self._failing.get(queue, 0) / self._minutes,
        )


def _add(sums: dict[str, int], rollup: Rollup, wanted: _Wanted) -> None:
    sums[rollup.queue] = sums.get(rollup.queue, 0) + _count(rollup.counts, wanted)


def _count(counts: Mapping[str, int], wanted: _Wanted) -> int:
    return sum(number for verb, number in counts.items() if wanted(verb))


def _per_minute(rollups: Iterable[Rollup], since: datetime, wanted: _Wanted) -> list[int]:
    sums = [0] * _MINUTES
    for rollup in rollups:
        place = int((rollup.minute - since) / timedelta(minutes=1))
        if 0 <= place < _MINUTES:
            sums[place] += _count(rollup.counts, wanted)
    return sums
