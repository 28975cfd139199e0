"""The processes of a simulated world: who starts them again, and what befalls them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

import msgspec

from tests.simulation.framework.network import Surroundings
from tests.simulation.framework.process import PROCESS, ProcessState, SimProcess
from tests.simulation.world.faults import HEARTBEAT, LEASE
from tests.simulation.world.flows import FlowOrders, draw_added_flow, plan_flows
from tests.simulation.world.shape import Shape
from tests.simulation.world.users import Orders, operate, produce
from tests.simulation.world.workload import API, DESK, QUEUES, Lab, Seat, payload_of
from windlass._app.app import Windlass
from windlass._app.parts import parts_of
from windlass._core.job.job import JobId, LimitUse, NewJob
from windlass._settings.settings import Settings
from windlass._storage.open import StorageOpener
from windlass._system.seams import Seams
from windlass._worker.periodic import Main
from windlass._worker.worker import Worker
from windlass.errors import StorageError

__all__ = ["POLL", "Cluster", "Node", "Stage"]

POLL = 1.0
_GRACE = 2.0


class Stage(Protocol):
    """Where the store of a world stands."""

    proves_death: bool

    async def begin(self) -> None:
        """Make what must be there first."""
        ...

    async def open(self, process: SimProcess) -> Any:
        """A storage for one process."""
        ...

    async def ask(self, op: str, *args: Any, **options: Any) -> Any:
        """Call the store as the world: at once, and without faults."""
        ...

    def let_go(self, process: SimProcess) -> None:
        """What an operating system does for the dead: close its files, free its locks."""
        ...

    async def check_mirror(self) -> None:
        """Compare every row with what was seen of it."""
        ...

    def close(self) -> None:
        """Leave nothing behind."""
        ...


class _Opener(StorageOpener):
    def __init__(self, settings: Settings, stage: Stage, process: SimProcess) -> None:
        super().__init__(settings)
        self._stage = stage
        self._process = process

    async def open(self) -> Any:
        return await self._stage.open(self._process)


class _Aside:
    """The heartbeat beside the worker: in a world without threads, a task of the same process."""

    def __init__(self, name: str, main: Main) -> None:
        self._stop = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(main(self._stop), name=name)

    async def stop(self) -> None:
        self._stop.set()
        await self._task


class Node:
    """A process that is started again whenever it ends, and its latest life."""

    def __init__(self, name: str, main: Callable[[Node], Coroutine[Any, Any, None]]) -> None:
        self.name = name
        self.main = main
        self.lives = 0
        self.process: SimProcess | None = None
        self.worker: Worker | None = None
        self.old = False
        self.done = False

    @property
    def awake(self) -> bool:
        """Whether it runs."""
        return self.process is not None and self.process.state is ProcessState.RUNNING

    @property
    def working(self) -> bool:
        """Whether it claims jobs."""
        return self.awake and self.worker is not None and self.worker.started.is_set()


class Cluster:
    """All processes of a world."""

    def __init__(self, around: Surroundings, stage: Stage, lab: Lab, shape: Shape) -> None:
        self._around = around
        self._loop = around.loop
        self._stage = stage
        self._lab = lab
        self.shape = shape
        self._ids = 0
        self._chance = random.Random(around.loop.seed + 3)
        self.over: bool = False
        """Set when nobody is to be started any more."""
        self.workers: list[Node] = [Node(f"worker-{n}", self._work) for n in range(shape.workers)]
        orders = [
            Orders(shape.jobs // shape.producers, self._pause(), shape.poison)
            for _ in range(shape.producers)
        ]
        self.people: list[Node] = [
            Node(f"producer-{n}", self._produce(o)) for n, o in enumerate(orders)
        ]
        if around.flows:
            flow_orders = FlowOrders(self._chance.randint(2, 6), around.faults.plan.chaos / 20)
            self.people.append(Node("planner", self._plan(flow_orders)))
        if shape.operator:
            self.people.append(Node("operator", self._operate))
        self._keepers: list[asyncio.Task[None]] = []

    def _pause(self) -> float:
        # About two and a half jobs per order: all are placed when chaos has run for a while.
        plan, shape = self._around.faults.plan, self.shape
        return plan.chaos * 0.7 / (shape.jobs / shape.producers / 2.5)

    @property
    def nodes(self) -> list[Node]:
        """Everybody."""
        return [*self.workers, *self.people]

    # --- starting again -----------------------------------------------------------------------

    def start(self) -> None:
        """Start everybody, and start them again when they end."""
        create = self._loop.create_task
        self._keepers = [create(self._keep(node), name=node.name) for node in self.nodes]

    async def _keep(self, node: Node) -> None:
        while not self.over and not node.done:
            process = self._spawn(node)
            try:
                await process.join()
            except StorageError:
                self._around.ledger.count("failed to start")
            await asyncio.sleep(self._chance.uniform(0.1, 2.0))

    def _spawn(self, node: Node) -> SimProcess:
        node.lives += 1
        health = self._around.health

        async def main() -> None:
            await node.main(node)

        process = self._loop.spawn_process(f"{node.name}.{node.lives}", main)
        node.process, node.worker = process, None
        node.old = self._chance.random() < self.shape.old and not self._around.faults.healed
        health.born[process] = self._loop.time()

        def ended() -> None:
            health.died.setdefault(process, self._loop.time())
            self._stage.let_go(process)
            self._around.ledger.death(process)

        process.at_end(ended)
        return process

    # --- what they are ------------------------------------------------------------------------

    def _seat(self, drawn: list[JobId], *, old: bool = False) -> tuple[Seat, _Opener, Seams]:
        process = PROCESS.get()
        if process is None:
            raise RuntimeError("an app belongs to a process")
        app = Windlass(
            "memory://",
            heartbeat=HEARTBEAT,
            lease=LEASE,
            reap_every=1.0,
            poll=POLL,
            grace=_GRACE,
            keep_succeeded=60.0 * 60 if self.shape.keep else 0.0,
            on_isolation=self.shape.on_isolation,
        )

        app.on_transition(self._around.ledger.told)

        def new_job_ids(count: int) -> Sequence[JobId]:
            fresh = [self._fresh_id() for _ in range(count)]
            drawn.extend(fresh)
            return fresh

        def new_worker_id() -> str:
            self._ids += 1
            worker = f"w{self._ids}"
            self._around.ledger.owners[worker] = process
            return worker

        wall = self._around.ledger.clock.now
        seams = Seams(self._chance.random, new_job_ids, new_worker_id, self._loop.time, wall)
        return (
            Seat(self._lab, app, old=old, draw=draw_added_flow),
            _Opener(app.settings, self._stage, process),
            seams,
        )

    def _fresh_id(self) -> JobId:
        self._ids += 1
        return JobId(f"{self._chance.getrandbits(104):026x}{self._ids:06x}")

    async def _work(self, node: Node) -> None:
        seat, opener, seams = self._seat([], old=node.old)
        with parts_of(seat.app).connections.replaced(opener, seams):
            async with seat.app:
                node.worker = await parts_of(seat.app).workers.make(
                    self.shape.worker_settings(), aside=_Aside, watch_loop=False
                )
                # It may have been opening when everybody, or every old one, was told to stop.
                if not self.over and not (node.old and self._around.faults.healed):
                    await node.worker.run()

    def _produce(self, orders: Orders) -> Callable[[Node], Coroutine[Any, Any, None]]:
        async def main(node: Node) -> None:
            drawn: list[JobId] = []
            seat, opener, seams = self._seat(drawn)
            with parts_of(seat.app).connections.replaced(opener, seams):
                async with seat.app:
                    await produce(seat, orders, drawn)
            node.done = True

        return main

    def _plan(self, orders: FlowOrders) -> Callable[[Node], Coroutine[Any, Any, None]]:
        async def main(node: Node) -> None:
            seat, opener, seams = self._seat([])
            with parts_of(seat.app).connections.replaced(opener, seams):
                async with seat.app:
                    await plan_flows(seat, orders, lambda: self._around.faults.healed)
            node.done = True

        return main

    async def _operate(self, node: Node) -> None:
        seat, opener, seams = self._seat([])
        with parts_of(seat.app).connections.replaced(opener, seams):
            async with seat.app:
                await operate(seat, self.shape.operator, lambda: self._around.faults.healed)
        node.done = True

    def full_load(self, seconds: float) -> list[NewJob]:
        """As many jobs as there are slots; the first of them take all units of a limit."""
        per_queue = self.shape.slots * self.shape.workers
        jobs = [
            NewJob(
                id=self._fresh_id(),
                task="sim.steady",
                queue=queue,
                payload=payload_of("sim.steady", seconds),
            )
            for queue in (QUEUES if self.shape.own_pools else QUEUES[:1])
            for _ in range(per_queue)
        ]
        uses = [(LimitUse(API.name),)] * (API.concurrency or 0)
        uses += [(LimitUse(DESK.name, str(number)),) for number in range(len(jobs) - len(uses))]
        return [
            msgspec.structs.replace(job, limits=limits)
            for job, limits in zip(jobs, uses, strict=False)
        ]

    # --- what befalls them --------------------------------------------------------------------

    async def suffer(self) -> None:
        """Let the plan's chaos happen to the processes, until it is cancelled."""
        plan = self._around.faults.plan
        async with asyncio.TaskGroup() as group:
            group.create_task(self._now_and_then(plan.killed_every, self._strike))
            group.create_task(self._now_and_then(plan.paused_every, self._freeze))
            group.create_task(self._now_and_then(plan.restarted_every, self._replace))
            group.create_task(self._now_and_then(plan.stepped_every, self._step_clock))

    async def _now_and_then(self, mean: float, act: Callable[[], None]) -> None:
        while mean:
            await asyncio.sleep(self._chance.expovariate(1 / mean))
            act()

    def _victim(self, nodes: Sequence[Node]) -> Node | None:
        awake = [node for node in nodes if node.awake]
        return self._chance.choice(awake) if awake else None

    def _strike(self) -> None:
        node = self._victim([*self.workers, *self.workers, *self.people])
        if node is not None and node.process is not None:
            self._around.ledger.count("killed")
            node.process.kill()

    def _freeze(self) -> None:
        node = self._victim([*self.workers, *self.workers, *self.people])
        if node is not None and node.process is not None:
            process = node.process
            self._around.ledger.count("paused")
            self._around.health.impair(process, self._loop.time())
            process.pause()
            length = self._chance.uniform(0.1, self._around.faults.plan.longest_pause)
            self._loop.call_later(length, self._thaw, process)

    def _thaw(self, process: SimProcess) -> None:
        self._around.health.recover(process, self._loop.time())
        process.resume()

    def _replace(self) -> None:
        """A rolling deployment reaches one of the workers; some are in a hurry."""
        node = self._victim(self.workers)
        if node is not None and node.worker is not None:
            self._around.ledger.count("replaced")
            self._stop(node)
            if self._chance.random() < 0.3:
                self._loop.call_later(self._chance.uniform(0, 1), self._stop, node)

    def _step_clock(self) -> None:
        """Somebody sets the clock: leases must not care, and due times follow it."""
        self._around.ledger.step_clock(self._chance.choice([-2.0, -0.5, 1.0, 20.0, 3600.0]))

    def _stop(self, node: Node) -> None:
        if node.worker is not None and node.process is not None and node.process.alive:
            self._around.health.died.setdefault(node.process, self._loop.time())
            self._loop.call_as(node.process, node.worker.stop)

    # --- the end ------------------------------------------------------------------------------

    def heal(self) -> None:
        """Nothing goes wrong from now on."""
        self._around.faults.healed = True
        self._lab.calm = True
        for node in self.nodes:
            if node.process is not None and node.process.paused:
                self._thaw(node.process)
            if node.old:
                self._stop(node)

    async def people_done(self) -> None:
        """Wait until everything was asked for."""
        await asyncio.wait(self._keepers[len(self.workers) :])

    async def stop(self) -> None:
        """Stop the workers in order, and wait for all."""
        self.over = True
        for node in self.workers:
            self._stop(node)
        await asyncio.wait(self._keepers)
        for keeper in self._keepers:
            keeper.result()
