"""The files by which workers prove that they live, left behind by some that did not."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.crash.harness.backends import SQLITE
from tests.crash.harness.processes import until
from tests.crash.harness.scene import Scene
from windlass._app.parts import parts_of

pytestmark = [pytest.mark.crash, pytest.mark.parametrize("place", [SQLITE], indirect=True)]

HOURS_AGO = 10_000_000


def locks(scene: Scene) -> set[Path]:
    return set(Path(f"{scene.file}-workers").iterdir())


def grow_old(paths: set[Path]) -> None:
    for path in paths:
        os.utime(path, (HOURS_AGO, HOURS_AGO))


def tidy(scene: Scene) -> None:
    """What the leader does every minute."""
    shop = scene.shop()

    async def run() -> None:
        async with shop.app as app:
            await (await parts_of(app).storage()).maintenance.tidy()

    asyncio.run(run())


@pytest.mark.parametrize("name", ["registration, lock held", "registration, stored"])
def test_locks_of_workers_that_died_early_are_swept_away(scene: Scene, name: str) -> None:
    scene.enqueue("work", 0.01)
    scene.worker(point=name).wait()
    scene.settle()
    left = locks(scene)
    assert len(left) == (1 if name == "registration, lock held" else 0)
    tidy(scene)
    assert locks(scene) == left, "it may be a worker that is just starting"
    grow_old(left)
    tidy(scene)
    assert locks(scene) == set()


def test_the_locks_of_living_workers_stay_however_old_they_are(scene: Scene) -> None:
    worker = scene.worker()
    scene.ready(worker)
    lock = locks(scene)
    grow_old(lock)
    tidy(scene)
    assert locks(scene) == lock
    worker.kill()
    rescuer = scene.worker()
    until(lambda: not lock & locks(scene), "the dead one is buried by its lock")
    scene.settle(rescuer)
