"""Schedules that are changed while they are due, and deploys that say different things."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from tests.worker.scheduler.test_scheduler import JOB, MINUTE, Stage
from windlass._core.schedule.rules import Every
from windlass._core.schedule.schedule import Schedule
from windlass._storage.protocol.schedules import ScheduleWrite
from windlass.testing._clock import START


@pytest.fixture
def stage() -> Stage:
    return Stage()


async def test_an_edit_that_leaves_the_slots_alone_keeps_one_that_is_due(stage: Stage) -> None:
    await stage.declare()
    await stage.advance(61)
    await stage.book.change("nightly", jitter=timedelta(seconds=5), by="ann")
    assert await stage.scheduler().step() == 1
    assert await stage.slots() == [START + MINUTE]


@pytest.mark.parametrize("order", ["pause", "remove"])
async def test_a_due_schedule_that_is_paused_does_not_fire(stage: Stage, order: str) -> None:
    await stage.declare()
    await stage.advance(61)
    await getattr(stage.book, order)("nightly", by="ann")
    assert await stage.scheduler().step() == 0
    await stage.advance(600)
    assert await stage.scheduler().step() == 0


@pytest.mark.parametrize("order", ["pause", "remove", "delete"])
async def test_a_schedule_paused_between_read_and_write_does_not_fire(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    await stage.declare()
    await stage.advance(61)
    write = stage.storage.schedules.write

    async def overtaken(writes: Sequence[ScheduleWrite]) -> Any:
        monkeypatch.undo()
        named = {} if order == "delete" else {"by": "ann"}
        await getattr(stage.book, order)("nightly", **named)
        return await write(writes)

    monkeypatch.setattr(stage.storage.schedules, "write", overtaken)
    scheduler = stage.scheduler()
    assert await scheduler.step() == 0
    assert await scheduler.step() == 0
    assert await stage.jobs() == []


async def test_alternating_deploys_fire_no_slot_twice_and_keep_operators_values(
    stage: Stage,
) -> None:
    await stage.declare(rule=Every(MINUTE), overlap="allow")
    await stage.book.change("nightly", jitter=timedelta(seconds=1), by="ann")
    scheduler = stage.scheduler()
    for second in range(600):
        await stage.advance(1)
        await scheduler.step()
        if second % 7 == 0:  # one of the two is restarted again and again
            await stage.declare(rule=Every(MINUTE if second % 2 else 2 * MINUTE), overlap="allow")
    state = (await stage.known()).state
    slots = await stage.slots()
    assert state.plan.jitter == timedelta(seconds=1)
    assert len(slots) == len(set(slots)) == state.fired
    # Those that both rules have are all there.
    assert {START + 2 * n * MINUTE for n in range(1, 6)} <= {*slots}


async def test_many_processes_that_start_at_once_agree(stage: Stage) -> None:
    plans = {f"s{n}": Schedule(rule=Every(MINUTE), job=JOB) for n in range(50)}
    await asyncio.gather(*(stage.book.declare(plans, by="code") for _ in range(20)))
    await stage.advance(60)
    fired = await asyncio.gather(*(stage.scheduler().step() for _ in range(5)))
    assert sum(fired) >= 50
    assert len(await stage.jobs()) == 50
