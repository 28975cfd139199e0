"""Flows under random kills, cancels, requeues and retries, over one store; then all is counted."""

from __future__ import annotations

import asyncio
import random

from tests.crash.harness.processes import Process, stand_still
from tests.crash.harness.scene import Scene
from windlass import Windlass
from windlass._app.parts import parts_of
from windlass._core.flows.flow import FlowState
from windlass._core.job.job import FlowId
from windlass._core.job.state import State
from windlass._storage.protocol.actions import AuditNote, Requeue
from windlass._storage.protocol.flows import FlowAction, FlowFilter
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._storage.protocol.storage import Storage
from windlass._system.seams import new_job_id

_BESIDES = 3
"""Jobs of a flow besides its rows: the sum, the report and the callback."""
_LONGEST = 0.3
"""Seconds between two kills, at most."""
_LIVING = 2
"""Workers at a time."""


class FlowStorm:
    """Starts flows, disturbs them, and kills workers."""

    def __init__(self, scene: Scene, seed: int) -> None:
        self._scene = scene
        self._draw = random.Random(seed)
        self._flows: list[FlowId] = []
        self._workers: list[Process] = []
        self.acted: int = 0
        """Actions that were answered with done."""

    def run(self, flows: int, size: int, kills: int) -> None:
        """Start ``flows`` of ``size`` jobs while ``kills`` workers are killed, then count."""
        scene = self._scene
        asyncio.run(self._start(0, size))  # makes the tables
        deadlocks = scene.store.deadlocks()
        unknown = len({job.id for job in scene.store.jobs()}.difference(scene.known))
        for kill in range(kills):
            asyncio.run(self._disturb(flows * (kill + 1) // kills - len(self._flows), size))
            while len(self._workers) < _LIVING:
                self._workers.append(scene.worker("--slots", "5", "--log-level", "warning"))
            scene.ready(*self._workers)
            stand_still(self._draw.uniform(0, _LONGEST))
            self._workers.pop(self._draw.randrange(len(self._workers))).kill()
        scene.settle(*self._workers, seconds=120)
        asyncio.run(self._check(size))
        assert scene.store.deadlocks() == deadlocks
        scene.audit(unknown=unknown)

    async def _start(self, number: int, size: int) -> None:
        shop = self._scene.shop()
        async with shop.app as app:
            await parts_of(app).storage()
            for _ in range(number):
                flow = shop.flow(size - _BESIDES, self._draw.choice([0, 0, 0, 1, 3]))
                self._scene.known += [job for _, job, _ in flow.plan().calls]
                self._flows.append((await app.start(flow)).id)

    async def _disturb(self, number: int, size: int) -> None:
        await self._start(number, size)
        async with self._scene.shop().app as app:
            storage = await _storage(app)
            await self._act(storage, "cancel", FlowState.RUNNING)
            await self._act(storage, "retry", FlowState.CANCELLED)
            await self._act(storage, "retry", FlowState.FAILED)
            failed = await storage.admin.find(JobFilter(states=[State.FAILED]), limit=50)
            if failed:
                jobs = [job.id for job in failed]
                answers = await storage.orders.order(Requeue(), jobs[::2], _note())
                self.acted += sum(answer == "done" for answer in answers)

    async def _act(self, storage: Storage, action: FlowAction, state: FlowState) -> None:
        found = await storage.flows.find(FlowFilter(states=[state]), limit=100)
        if found and self._draw.random() < 0.7:
            answers = await storage.flows.act([self._draw.choice(found).id], action, _note())
            self.acted += sum(answer == "done" for answer in answers)

    async def _check(self, size: int) -> None:
        """Nothing is open, every flow is whole, and a recount finds nothing."""
        async with self._scene.shop().app as app:
            storage = await _storage(app)
            recount = await storage.flows.recount(limit=10_000)
            assert (list(recount.wrong), recount.next) == ([], None)
            for flow in self._flows:
                graph = await storage.flows.graph(flow)
                assert graph is not None, f"flow {flow} is lost"
                assert graph.flow.state is not FlowState.RUNNING, graph.flow
                assert sum(part.total for part in graph.parts) == size
                assert sum(part.open for part in graph.parts) == 0


async def _storage(app: Windlass) -> Storage:
    return await parts_of(app).storage()


def _note() -> AuditNote:
    return AuditNote(id=new_job_id(), who="storm", what="flows.act")
