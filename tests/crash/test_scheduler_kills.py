"""Workers killed while they fire schedules: every slot has one job, whoever dies when."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections import Counter
from datetime import timedelta
from statistics import median

import pytest

from tests.crash.harness.processes import Process, stand_still
from tests.crash.harness.scene import Scene
from windlass import Every
from windlass._core.job.job import JobId
from windlass._core.schedule.schedule import slot_of

pytestmark = pytest.mark.crash

NAME = "beat"
PERIOD = timedelta(milliseconds=200)
KILLS = 7
_WITHIN = 0.04
"""Seconds after a slot in which a kill comes: whoever fires it is at it then."""


def test_every_slot_has_one_job_when_schedulers_are_killed(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    draw = random.Random(5)
    workers = [scene.worker("--log-level", "warning") for _ in range(3)]
    scene.ready(*workers)
    asyncio.run(_create(scene))
    for _ in range(KILLS):
        stand_still(draw.uniform(0.3, 1.0))
        _stand_until_a_slot()
        stand_still(draw.uniform(0, _WITHIN))  # the instant is what is left to chance
        workers.pop(draw.randrange(len(workers))).kill()
        workers.append(scene.worker("--log-level", "warning"))
    _wait_for_everything_due(scene, workers)
    fired = asyncio.run(_remove(scene))
    scene.known = [job.id for job in scene.store.jobs()]
    scene.settle(*workers)
    scene.audit()

    slots = Counter(slot_of(JobId(job.id)) for job in scene.store.jobs())
    first, last = min(filter(None, slots)), max(filter(None, slots))
    expected = [first + PERIOD * number for number in range((last - first) // PERIOD + 1)]
    assert slots == Counter(expected)
    assert fired == len(expected)
    with capsys.disabled():  # to standard error: under xdist the other one leads nowhere
        print(f"\n{KILLS} kills over {len(expected)} slots", file=sys.stderr)  # noqa: T201


def test_a_slot_is_fired_when_it_comes_and_not_at_the_next_poll(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    workers = [scene.worker("--log-level", "warning") for _ in range(2)]
    scene.ready(*workers)
    asyncio.run(_create(scene))
    stand_still(PERIOD.total_seconds() * 25)
    asyncio.run(_remove(scene))
    scene.settle(*workers)
    late = sorted(
        job.started_at / 1000 - slot.timestamp() * 1000
        for job in scene.store.jobs()
        if job.started_at is not None and (slot := slot_of(JobId(job.id))) is not None
    )
    assert len(late) >= 20
    with capsys.disabled():
        print(f"\nstarted {median(late):.0f} ms after the slot", file=sys.stderr)  # noqa: T201
    assert median(late) < 500  # half of what polling takes, and of most: others work here, too


async def _create(scene: Scene) -> None:
    shop = scene.shop()
    async with shop.app as app:
        await app.admin.schedules.create(
            NAME,
            Every(PERIOD),
            shop.call("work", 0.01),
            overlap="allow",
            missed="all",
            breaker=False,
        )


async def _remove(scene: Scene) -> int:
    """How often it has fired by its own account, of which nothing follows any more."""
    async with scene.shop().app as app:
        await app.admin.schedules.remove(NAME)
        (report,) = [
            one for one in await app.admin.schedules.list(removed=True) if one.name == NAME
        ]
        assert report.left_out == 0
        return report.fired


def _stand_until_a_slot() -> None:
    seconds = PERIOD.total_seconds()
    stand_still(seconds - time.time() % seconds)


def _wait_for_everything_due(scene: Scene, workers: list[Process]) -> None:
    """Until the last to come has lived through a slot that was due after it came."""
    scene.ready(*workers)
    scene.beat_for(1.0)
