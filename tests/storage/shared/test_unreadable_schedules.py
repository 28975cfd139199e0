"""A stored schedule whose job or runs no store can take: it stops nobody but itself."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from windlass._core.job.job import JobId, NewJob
from windlass._core.schedule.rules import Every, Once
from windlass._core.schedule.schedule import Schedule, ScheduleState
from windlass._observe.bus import Bus
from windlass._schedules.edits import Schedules, encoded
from windlass._storage.protocol.schedules import ScheduleWrite
from windlass._storage.protocol.storage import Storage
from windlass._system.seams import new_job_ids
from windlass._worker.scheduler.scheduler import Scheduler
from windlass.testing._clock import START

JOB = NewJob(id=JobId(""), task="report")
RUN = {"slot": "2030-01-01T00:00:00Z"}


class Leading:
    leading = True


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("plan.job.priority", 10**20),
        ("plan.job.max_attempts", 10**12),
        ("plan.job.max_attempts", 0),
        ("plan.job.timeout", "P999999D"),
        ("plan.job.expires", "P99999D"),
        ("plan.job.queue", ""),
        ("plan.job.task", "a\x00b"),
        ("plan.job.task", "\ud800"),
        ("plan.job.tags", ["x" * 10_000] * 50),
        ("plan.job.limits", [{"name": "unknown"}]),
        ("plan.rule", {"type": "once", "at": "1920-01-01T00:00:00Z"}),
        ("plan.rule", {"type": "once", "at": "0001-01-01T00:00:00Z"}),
        ("runs", [{**RUN, "job": "zz"}]),
        ("runs", [{**RUN, "job": "é" * 32}]),
        ("fired", 10**30),
    ],
    ids=lambda value: str(value)[:30].encode("ascii", "replace").decode(),
)
async def test_a_poisoned_schedule_stops_no_other(storage: Storage, place: str, value: Any) -> None:
    book = Schedules(storage.schedules, storage.now, new_job_ids)
    for number in range(3):
        await book.create(f"sound-{number}", Schedule(rule=Once(START), job=JOB), by="ann")
    body = json.loads(encoded(ScheduleState(plan=Schedule(rule=Every(60), job=JOB))))
    *path, last = place.split(".")
    part = body
    for name in path:
        part = part[name]
    part[last] = value
    poisoned = ScheduleWrite(
        name="poisoned", revision=0, body=json.dumps(body).encode(), next_at=START
    )
    await storage.schedules.write([poisoned])

    leader: Any = Leading()
    scheduler = Scheduler(storage, leader, Bus(), {}, poll=timedelta(seconds=1), token="t")
    assert await scheduler.step() >= 3
    assert not (await storage.schedules.due(10)).rows
    assert len(await book.all()) == 4
    await book.delete("poisoned")
