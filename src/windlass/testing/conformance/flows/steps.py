"""The steps of every test of flows: draw a graph, start it, run its jobs, look."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from windlass._core.flows.flow import Edge, FlowRecord, NewFlow, NewPart, PartKind, PartRecord, When
from windlass._core.flows.plan import complete
from windlass._core.job.job import ClaimedJob, FlowId, NewJob
from windlass._core.job.transition import Transition, fail, succeed
from windlass._storage.protocol.actions import ActionResult
from windlass._storage.protocol.flows import FlowAction, Member, StartedFlow
from windlass._storage.protocol.storage import Storage
from windlass._system.seams import new_job_id
from windlass.testing.conformance.steps import OOPS, a_job, a_note, claim, end, enlist

__all__ = [
    "Plan",
    "a_chain",
    "act",
    "agree",
    "finish",
    "graph",
    "members",
    "part",
    "run",
    "run_all",
    "settle",
    "start",
    "state",
    "tasks",
]

_MANY_PASSES = 1_000
"""More than any test needs: a store that is still settling after these never ends."""


class Plan:
    """A flow in the making. The task of each job is the name of its part."""

    def __init__(self, **asked: Any) -> None:
        self._asked = {"id": FlowId(new_job_id()), "name": "flow", **asked}
        self._parts: list[NewPart] = []
        self._callbacks: list[NewPart] = []
        self.jobs: dict[str, list[NewJob]] = {}

    def part(
        self,
        name: str,
        jobs: int = 1,
        *,
        after: Sequence[str] = (),
        ended: Sequence[str] = (),
        when: When = "succeeded",
        **asked: Any,
    ) -> list[NewJob]:
        """Add a part of alike jobs. A failure of those in ``ended`` does not matter to it."""
        edges = [(name, True) for name in after] + [(name, False) for name in ended]
        self._parts.append(
            NewPart(name=name, task=name, when=when, after=tuple(self._edges(edges)))
        )
        self.jobs[name] = [a_job(task=name, **asked) for _ in range(jobs)]
        return self.jobs[name]

    def join(self, name: str, *, after: Sequence[str]) -> None:
        """Add a part without jobs that waits for a group."""
        edges = tuple(self._edges([(one, True) for one in after]))
        self._parts.append(NewPart(name=name, kind=PartKind.JOIN, after=edges))

    def callback(self, name: str, when: When = "succeeded", *, always: bool = False) -> NewJob:
        """Add a job that waits for the end; ``always``: however the flow ends."""
        edge = Edge(0, strict=not always)
        self._callbacks.append(NewPart(name=name, task=name, when=when, after=(edge,)))
        (job,) = self.jobs[name] = [a_job(task=name)]
        return job

    def _edges(self, edges: Sequence[tuple[str, bool]]) -> list[Edge]:
        numbers = {part.name: number for number, part in enumerate(self._parts)}
        return [Edge(numbers[name], strict) for name, strict in edges]

    @property
    def id(self) -> FlowId:
        return FlowId(self._asked["id"])

    @property
    def flow(self) -> NewFlow:
        """The flow as it is asked for."""
        parts = complete(self._parts, self._callbacks)
        jobs = [
            (number, job)
            for number, part in enumerate(parts)
            for job in self.jobs.get(part.name, ())
        ]
        return NewFlow(**self._asked, parts=parts, jobs=jobs)


def a_chain(**asked: object) -> Plan:
    """Return a flow of three jobs in a row, and a callback for each end."""
    plan = Plan(**asked)
    plan.part("a")
    plan.part("b", after=["a"])
    plan.part("c", after=["b"])
    plan.callback("good")
    plan.callback("bad", "failed")
    return plan


# --- acting -----------------------------------------------------------------------------------


async def start(storage: Storage, plan: Plan) -> StartedFlow:
    """Start a flow that must be new, with a worker to run it."""
    await enlist(storage)
    (answer,) = await storage.flows.start([plan.flow])
    assert answer == StartedFlow(plan.id, created=True)
    return answer


async def finish(
    storage: Storage, *jobs: ClaimedJob, failing: Collection[str] = (), result: bytes | None = None
) -> None:
    """End claims: those of the tasks in ``failing`` fail for good, the others succeed."""
    transitions: list[Transition] = [
        fail(job, by=job.worker, error=OOPS)
        if job.task in failing
        else succeed(job, by=job.worker, result=result)
        for job in jobs
    ]
    await end(storage, *transitions)


async def run(storage: Storage, *failing: str, limit: int = 100) -> list[str]:
    """Claim and end what is claimable now; the tasks, in order of claim."""
    jobs = await claim(storage, limit)
    await finish(storage, *jobs, failing=failing)
    return tasks(jobs)


async def run_all(storage: Storage, *failing: str) -> list[str]:
    """Claim, end and settle until nothing is left to do; the tasks, in order of claim."""
    ran: list[str] = []
    while some := await run(storage, *failing):
        ran += some
        await settle(storage)
    return ran


async def settle(storage: Storage) -> None:
    """Settle all parts that are due."""
    for _ in range(_MANY_PASSES):
        if not await storage.flows.settle(100):
            return
    raise AssertionError(f"{_MANY_PASSES} passes have not settled everything")


async def act(storage: Storage, plan: Plan, action: FlowAction) -> ActionResult:
    """Cancel or retry a flow, and settle all that follows."""
    (answer,) = await storage.flows.act([plan.id], action, a_note(what=f"flows.{action}"))
    await settle(storage)
    return answer


# --- looking ----------------------------------------------------------------------------------


def tasks(jobs: Sequence[ClaimedJob]) -> list[str]:
    return [job.task for job in jobs]


async def state(storage: Storage, plan: Plan) -> FlowRecord:
    """Return the stored flow, which must be there."""
    return (await _graph(storage, plan))[0]


async def graph(storage: Storage, plan: Plan) -> dict[str, PartRecord]:
    """Return the stored parts by name."""
    return (await _graph(storage, plan))[1]


async def part(storage: Storage, plan: Plan, name: str) -> PartRecord:
    return (await graph(storage, plan))[name]


async def _graph(storage: Storage, plan: Plan) -> tuple[FlowRecord, dict[str, PartRecord]]:
    found = await storage.flows.graph(plan.id)
    assert found is not None, "the flow is not stored"
    return found.flow, {part.name: part for part in found.parts}


async def members(storage: Storage, plan: Plan, name: str) -> list[Member]:
    """Return the jobs of a part."""
    number = (await part(storage, plan, name)).number
    return list(await storage.flows.members(plan.id, number))


async def agree(storage: Storage) -> bool:
    """Return whether the stored counts are those of the jobs."""
    return not (await storage.flows.recount()).wrong
