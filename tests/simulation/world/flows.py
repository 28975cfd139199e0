"""Flows in a simulated world: random graphs, and a person who starts, cancels and retries them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import msgspec

from tests.simulation.world.workload import QUEUES, Seat
from windlass._app.parts import parts_of
from windlass._client.client import new_job
from windlass._core.flows.flow import Edge, FlowState, NewFlow, NewPart, PartKind, When
from windlass._core.flows.plan import complete
from windlass._core.job.job import FlowId
from windlass._core.job.state import State
from windlass._storage.protocol.actions import AuditNote
from windlass._tasks.task import Call
from windlass.errors import JobNotFound, KeyConflict, StorageError, WrongState

__all__ = ["FlowOrders", "draw_added_flow", "plan_flows"]


class FlowOrders:
    """How many flows are still to be started; outlives the process that starts them."""

    def __init__(self, flows: int, pause: float) -> None:
        self.left = flows
        self.pause = pause


async def plan_flows(seat: Seat, orders: FlowOrders, over: Callable[[], bool]) -> None:
    """Start flows, and do to them what people do, until all are started and the world is calm."""
    chance = seat.lab.chance
    ways = [_start, _start, _add, _cancel, _retry, _requeue, _prune]
    while orders.left > 0 or not over():
        await asyncio.sleep(chance.expovariate(1 / orders.pause))
        with suppress(StorageError):
            await (_start if over() else chance.choice(ways))(seat, orders)


async def _start(seat: Seat, orders: FlowOrders) -> None:
    if orders.left <= 0:
        return
    orders.left -= 1
    flow = draw_flow(seat)
    seat.lab.ledger.unheard.update(job.id for _, job in flow.jobs)
    storage = await parts_of(seat.app).storage()
    for _ in range(3):  # without an answer it is asked again, with the same ids
        with suppress(StorageError):
            await storage.flows.start([flow])
            return
        await asyncio.sleep(0.2)


async def _add(seat: Seat, orders: FlowOrders) -> None:
    """Add a flow from outside, which may wait for parts that are there."""
    chance, ledger = seat.lab.chance, seat.lab.ledger
    graph = ledger.flows.get(into := _pick(seat, FlowState.RUNNING))
    if graph is None:
        return
    end = next(part.number for part in graph.parts if part.kind is PartKind.END)
    before = sorted(chance.sample(range(end), chance.randint(0, min(2, end))))
    after = tuple(Edge(one, strict=chance.random() < 0.75) for one in before)
    flow = msgspec.structs.replace(draw_added_flow(seat), after=after)
    ledger.unheard.update(job.id for _, job in flow.jobs)
    storage = await parts_of(seat.app).storage()
    for _ in range(3):
        with suppress(StorageError):
            await storage.flows.add(into, flow)
            return
        await asyncio.sleep(0.2)


async def _cancel(seat: Seat, orders: FlowOrders) -> None:
    storage = await parts_of(seat.app).storage()
    await storage.flows.act([_pick(seat, FlowState.RUNNING)], "cancel", _note(seat))


async def _retry(seat: Seat, orders: FlowOrders) -> None:
    storage = await parts_of(seat.app).storage()
    ended = seat.lab.chance.choice([FlowState.FAILED, FlowState.CANCELLED])
    await storage.flows.act([_pick(seat, ended)], "retry", _note(seat))


async def _requeue(seat: Seat, orders: FlowOrders) -> None:
    """Requeue one member that has failed."""
    ledger = seat.lab.ledger
    failed = [job for job, view in ledger.jobs.items() if view.flow and view.state is State.FAILED]
    if failed:
        with suppress(WrongState, KeyConflict, JobNotFound):
            await seat.app.admin.jobs.requeue(seat.lab.chance.choice(failed))


async def _prune(seat: Seat, orders: FlowOrders) -> None:
    storage = await parts_of(seat.app).storage()
    state = seat.lab.chance.choice([FlowState.SUCCEEDED, FlowState.FAILED, FlowState.CANCELLED])
    await storage.flows.prune(state=state, older_than=timedelta(seconds=5), limit=10)


def _pick(seat: Seat, state: FlowState) -> FlowId:
    """Return a flow that probably is in this state."""
    ledger = seat.lab.ledger
    fitting = [flow for flow, graph in ledger.flows.items() if graph.flow.state is state]
    return seat.lab.chance.choice(fitting or [*ledger.asked_flows] or [FlowId("0" * 32)])


def _note(seat: Seat) -> AuditNote:
    (fresh,) = parts_of(seat.app).connections.seams.new_job_ids(1)
    return AuditNote(id=fresh, who="planner", what="flows.act")


# --- drawing ----------------------------------------------------------------------------------


def draw_flow(seat: Seat, most: int = 7) -> NewFlow:
    """Draw a flow of up to ``most`` parts and three callbacks."""
    chance = seat.lab.chance
    parts = [_part(number, chance) for number in range(chance.randint(1, most))]
    callbacks = [
        NewPart(name="good", after=(Edge(0),)),
        NewPart(name="bad", when="failed", after=(Edge(0),)),
        NewPart(name="any", after=(Edge(0, strict=False),)),
    ]
    graph = complete(parts, [one for one in callbacks if chance.random() < 0.4])
    places = [number for number, part in enumerate(graph) for _ in range(_size(part.kind, chance))]
    fresh = parts_of(seat.app).connections.seams.new_job_ids(len(places) + 1)
    jobs = [
        (number, new_job(_call(seat), seat.app.settings, job))
        for number, job in zip(places, fresh[1:], strict=True)
    ]
    return NewFlow(
        id=FlowId(fresh[0]),
        name="flow",
        parts=graph,
        jobs=jobs,
        key=chance.choice([None, None, None, "one"]),
        expires=timedelta(seconds=20) if chance.random() < 0.1 else None,
    )


def draw_added_flow(seat: Seat) -> NewFlow:
    """Draw a flow for a run to add: a small one, because its jobs may add others."""
    flow = draw_flow(seat, most=3)
    return msgspec.structs.replace(flow, key=None, expires=None)


def _part(number: int, chance: random.Random) -> NewPart:
    before = sorted(chance.sample(range(number), chance.randint(0, min(3, number))))
    after = tuple(Edge(one, strict=chance.random() < 0.75) for one in before)
    if number and chance.random() < 0.2:
        return NewPart(name=f"join {number}", kind=PartKind.JOIN, after=after)
    when: When = "failed" if before and chance.random() < 0.15 else "succeeded"
    return NewPart(name=f"part {number}", when=when, after=after)


def _size(kind: PartKind, chance: random.Random) -> int:
    if kind is PartKind.JOBS:
        return chance.choice([0, 1, 1, 1, 2, 3, 5])
    return 1 if kind is PartKind.CALLBACK else 0


def _call(seat: Seat) -> Call[Any]:
    chance = seat.lab.chance
    wishes: dict[str, Any] = {"queue": chance.choice(QUEUES)}
    if chance.random() < 0.15:
        wishes["delay"] = chance.choice([0.5, 2.0])
    if chance.random() < 0.3:
        wishes["max_attempts"] = chance.choice([1, 2])
    seconds = chance.choice([0.0, 0.1, 0.5])
    match chance.choice(["steady", "steady", "moody", "moody", "split"]):
        case "steady":
            return seat.steady.options(**wishes).call(seconds)
        case "split":
            return seat.split.options(**wishes).call(seconds)
        case mood:
            return seat.fussy.options(**wishes).call(seconds, mood)
