"""Starting a flow, and waiting for its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

import msgspec

from windlass._client.flow_outcomes import POLL, ended_members, pause_after
from windlass._core.flows.flow import FlowRecord, FlowState, NewFlow
from windlass._core.job.job import FlowId, NewJob
from windlass._core.values.instants import duration
from windlass._storage.protocol.flows import AddAnswer, FlowGraph, FlowStore, Member, StartedFlow
from windlass._storage.protocol.jobs import Inserted
from windlass._storage.protocol.storage import Storage
from windlass._tasks.cancel_token import MOST_ADDED
from windlass._tasks.flows.plan import FlowPlan, check_added, refuse_keys
from windlass.errors import FlowEnded, FlowNotFound, FlowTimeout, InvalidArgument

__all__ = ["FlowStart", "StoredFlows", "check_addition", "new_flow"]

_NOT_RUNNING = (
    "Flow {} has ended, was cancelled or has expired, so nothing was added: start what you wanted "
    "to add with app.start(flow)."
)
_NOT_WHOLE = (
    "flow {} is being stored and takes no other jobs yet: add to it after app.start(flow) has "
    "returned"
)


def check_addition(plan: FlowPlan) -> None:
    """Check a flow that ``run.add`` adds to a running one."""
    check_added(plan, inside=True)
    if len(plan.calls) > MOST_ADDED:
        message = (
            f"run.add(flow) stores a flow in one write, and {plan.name!r} has {len(plan.calls):,} "
            f"jobs: at most {MOST_ADDED:,} are allowed. Add several smaller flows, or jobs that "
            f"each add a part with ctx.then(...)"
        )
        raise InvalidArgument(message)
    waiting = sum(not part.after for part in plan.parts) * len(plan.after)
    if waiting > MOST_ADDED:
        message = (
            f"after= lets every first job and group of {plan.name!r} wait for {len(plan.after):,} "
            f"others, which is {waiting:,} dependencies: at most {MOST_ADDED:,} are allowed. Begin "
            f"the flow with one job that the others wait for"
        )
        raise InvalidArgument(message)


def new_flow(plan: FlowPlan, jobs: Sequence[NewJob]) -> NewFlow:
    """Return a flow as the store wants it. The jobs are those of the plan's calls, in order."""
    numbers = [part for part, _, _ in plan.calls]
    return NewFlow(
        id=plan.id,
        name=plan.name,
        key=plan.key,
        expires=plan.expires,
        parts=plan.parts,
        after=plan.after,
        jobs=list(zip(numbers, jobs, strict=True)),
        tenant=next((job.tenant for job in jobs if job.tenant is not None), None),
    )


class FlowStart:
    """An `Inserter` that stores the jobs of one flow, with the flow. ``into``: the running flow
    that it is added to.
    """

    def __init__(self, store: FlowStore, plan: FlowPlan, into: FlowId | None = None) -> None:
        self._store, self._plan, self._into = store, plan, into
        self._answer: StartedFlow | None = None

    @property
    def answer(self) -> StartedFlow:
        """The answer of the store."""
        if self._answer is None:
            raise LookupError(self._plan.id)
        return self._answer

    async def submit(self, items: Sequence[NewJob], /) -> Sequence[Inserted]:
        """Store the flow with these jobs, in the order of the plan's calls."""
        flow = new_flow(self._plan, items)
        if self._into is None:
            self._answer = answer = await self._start(flow, items)
        else:
            self._answer = answer = await self._add(self._into, flow, items)
        return [Inserted(job.id, answer.created, repeated=answer.repeated) for job in items]

    async def _start(self, flow: NewFlow, items: Sequence[NewJob]) -> StartedFlow:
        portion = self._store.portion
        sealed = len(items) > portion
        if sealed:
            _refuse_keys(items, portion)
        # The other portions are full. A store can start jobs of the last one at once, without a
        # second write.
        many = (len(items) - 1) % portion + 1 if sealed else len(items)
        first = msgspec.structs.replace(flow, jobs=flow.jobs[:many], sealed=sealed)
        (answer,) = await self._store.start([first])
        if sealed and answer.created:
            await self._extend(flow.jobs[many:], portion)
        return answer

    async def _add(self, into: FlowId, flow: NewFlow, items: Sequence[NewJob]) -> StartedFlow:
        refuse_keys(self._plan, items)
        answer = await self._store.add(into, flow)
        if answer is AddAnswer.UNKNOWN:
            raise FlowNotFound(into)
        if answer is AddAnswer.ENDED:
            raise FlowEnded(into, _NOT_RUNNING.format(into))
        if answer is AddAnswer.SEALED:
            raise InvalidArgument(_NOT_WHOLE.format(into))
        return StartedFlow(flow.id, created=True, repeated=answer is AddAnswer.REPEATED)

    async def _extend(self, jobs: Sequence[tuple[int, NewJob]], portion: int) -> None:
        """Store the other portions. The last one opens the flow."""
        flow = self._plan.id
        for first in range(0, len(jobs), portion):
            some, last = jobs[first : first + portion], first + portion >= len(jobs)
            if not await self._store.extend(flow, some, last=last):
                raise FlowEnded(flow)

    async def idle(self) -> None:
        """Return at once: nothing is under way."""


def _refuse_keys(jobs: Sequence[NewJob], portion: int) -> None:
    keyed = next((job for job in jobs if job.unique is not None), None)
    if keyed is not None:
        message = (
            f"a flow of more than {portion:,} jobs is stored in several writes, and its jobs "
            f"cannot have unique keys: leave unique= out of {keyed.task}, or start smaller flows"
        )
        raise InvalidArgument(message)


class StoredFlows:
    """Reads flows, and waits for their end."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    async def graph(self, flow: FlowId) -> FlowGraph:
        """Return the stored flow, or FlowNotFound."""
        found = await self._storage.flows.graph(flow)
        if found is None:
            raise FlowNotFound(flow)
        return found

    async def page(self, flow: FlowId, part: int, *, after: int, limit: int) -> Sequence[Member]:
        """Return jobs of a part, in order."""
        return await self._storage.flows.members(flow, part, after=after, limit=limit)

    def ended(
        self, flow: FlowId, parts: Sequence[int], timeout: timedelta | float | None
    ) -> AsyncIterator[Member]:
        """Yield the jobs of parts as they end; FlowTimeout."""
        return ended_members(self._storage, flow, parts, timeout)

    async def wait(self, flow: FlowId, timeout: timedelta | float | None) -> FlowRecord:
        """Wait for the end of a flow; FlowTimeout."""
        seconds = None if timeout is None else duration(timeout, "timeout").total_seconds()
        scope = asyncio.timeout(seconds)
        try:
            async with scope:
                return await self._ended(flow)
        except TimeoutError:
            if not scope.expired():
                raise
        found = (await self.graph(flow)).flow
        if found.state is not FlowState.RUNNING:
            return found
        raise FlowTimeout(flow, found.open)

    async def _ended(self, flow: FlowId) -> FlowRecord:
        time = asyncio.get_running_loop().time
        changed = asyncio.Event()
        undo = self._storage.wakeups.subscribe(changed.set)
        try:
            while True:
                changed.clear()
                begun = time()
                (state,) = await self._storage.flows.states([flow])
                if state is not FlowState.RUNNING:
                    found = (await self.graph(flow)).flow
                    if found.state is not FlowState.RUNNING:  # nor was brought back meanwhile
                        return found
                await asyncio.sleep(pause_after(time() - begun))
                try:
                    async with asyncio.timeout(POLL):
                        await changed.wait()
                except TimeoutError:
                    continue
        finally:
            undo()
