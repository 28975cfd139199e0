"""Processes die while they start, run and settle flows."""

from __future__ import annotations

import asyncio
import os

import pytest

from tests.crash.flow_storm import FlowStorm
from tests.crash.harness import points
from tests.crash.harness.points import POINTS
from tests.crash.harness.scene import Scene
from tests.crash.test_points import at_points_of, dies
from windlass._app.parts import parts_of
from windlass._core.flows.flow import FlowState
from windlass._storage.protocol.flows import FlowFilter

pytestmark = pytest.mark.crash

ROWS, JOBS = 8, 11
WHOLE = bool(os.environ.get("WINDLASS_TEST_WHOLE"))
TELLING = None if WHOLE else {"flow, on its way", "members, on their way", "settling, on its way"}
"""The points on servers that the file does not have. `make soak` kills at all of them."""
FLOWS, SIZE, KILLS = (200, 50, 60) if WHOLE else (6, 12, 3)


@at_points_of(points.PLANNER, on_servers=TELLING)
def test_a_process_dies_while_it_starts_a_flow(scene: Scene, name: str) -> None:
    dies(scene.start("planner", rows=ROWS, point=name), name)
    scene.settle()
    point = POINTS[scene.place.backend][name]
    ended = asyncio.run(flows_of(scene))
    # It is there as a whole, or it is not there.
    assert len(ended) in ({0, 1} if point.when == "amid" else {point.attempts})
    assert set(ended) <= {FlowState.SUCCEEDED}
    assert len(scene.store.jobs()) == JOBS * len(ended)
    scene.audit(unknown=JOBS)


@at_points_of(points.MEMBERS, on_servers=TELLING)
def test_a_worker_dies_with_members_of_a_flow(scene: Scene, name: str) -> None:
    asyncio.run(start(scene))
    dies(scene.worker("--slots", "3", point=name), name)
    scene.settle()
    assert asyncio.run(flows_of(scene)) == [FlowState.SUCCEEDED]
    scene.audit()


@pytest.mark.parametrize("seed", [1])
def test_flows_under_kills_cancels_and_requeues_end_whole(scene: Scene, seed: int) -> None:
    storm = FlowStorm(scene, seed)
    storm.run(FLOWS, SIZE, KILLS)
    assert storm.acted > 0


async def start(scene: Scene) -> None:
    shop = scene.shop()
    async with shop.app as app:
        flow = shop.flow(ROWS)
        scene.known += [job for _, job, _ in flow.plan().calls]
        await app.start(flow)


async def flows_of(scene: Scene) -> list[FlowState]:
    """Return the states of all flows, whose counts must be right."""
    async with scene.shop().app as app:
        storage = await parts_of(app).storage()
        assert not (await storage.flows.recount()).wrong
        return [flow.state for flow in await storage.flows.find(FlowFilter())]
