"""`FlowRun`, the handle of a started flow."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from datetime import timedelta
from typing import Any, Protocol, TypeVar

from windlass._core.flows.flow import Edge, FlowRecord
from windlass._core.flows.results import Done, Outcome, Results, done_of
from windlass._core.job.job import FlowId, JobId
from windlass._core.values.names import shown
from windlass._storage.protocol.actions import ActionResult
from windlass._storage.protocol.flows import FlowAction, FlowGraph
from windlass._tasks.flows.flow import Flow, Group, Node
from windlass._tasks.flows.node import After, AnyEnd, upstreams_of
from windlass._tasks.handle import Job, JobClient
from windlass.errors import InvalidArgument

__all__ = ["FlowClient", "FlowRun"]

R = TypeVar("R")


class FlowClient(JobClient, Protocol):
    """The calls that a handle makes about its flow."""

    async def flow_graph(self, flow: FlowId) -> FlowGraph:
        """Read the stored flow; FlowNotFound."""
        ...

    async def wait_for_flow(self, flow: FlowId, timeout: timedelta | float | None) -> FlowRecord:
        """Wait for its end."""
        ...

    def flow_ends(
        self, flow: FlowId, parts: Sequence[int], timeout: timedelta | float | None
    ) -> AsyncIterator[Outcome]:
        """Yield the jobs of its parts as they end."""
        ...

    async def add_to_flow(self, into: FlowId, flow: Flow, after: tuple[Edge, ...]) -> None:
        """Add a flow to it while it runs. ``after``: parts of it that the added one waits for."""
        ...

    async def act_on_flow(self, flow: FlowId, action: FlowAction) -> ActionResult:
        """Cancel or retry it."""
        ...

    async def flow_page(
        self, flow: FlowId, part: int, *, after: int, limit: int
    ) -> Sequence[Outcome]:
        """Read jobs of a part."""
        ...

    def flow_page_sync(
        self, flow: FlowId, part: int, *, after: int, limit: int
    ) -> Sequence[Outcome]:
        """Read jobs of a part, in code without an event loop."""
        ...


class _FlowReader:
    """Reads the results of a group for a caller that is no job."""

    def __init__(self, client: FlowClient) -> None:
        self._client = client

    async def page(self, flow: FlowId, part: int, *, after: int, limit: int) -> Sequence[Outcome]:
        return await self._client.flow_page(flow, part, after=after, limit=limit)

    def page_here(self, flow: FlowId, part: int, *, after: int, limit: int) -> Sequence[Outcome]:
        return self._client.flow_page_sync(flow, part, after=after, limit=limit)


class FlowRun:
    """The handle of a started flow: read it, wait for its end, add to it, cancel it, retry what
    failed.
    """

    __slots__ = ("_client", "created", "id")

    def __init__(self, client: FlowClient, flow: FlowId, *, created: bool) -> None:
        """Make a handle. Users get one from ``app.start(flow)`` or ``app.flow_run(id)``."""
        self._client = client
        self.id: FlowId = flow
        """The flow's id."""
        self.created: bool = created
        """False if a running flow with the same key was found and is the answer."""

    def __repr__(self) -> str:
        return f"<FlowRun {self.id}{'' if self.created else ' (found)'}>"

    async def refresh(self) -> FlowRecord:
        """Read the stored flow. FlowNotFound if it never existed, or has been deleted."""
        return (await self._client.flow_graph(self.id)).flow

    async def graph(self) -> FlowGraph:
        """Read the flow with its parts and their counts."""
        return await self._client.flow_graph(self.id)

    async def wait(self, timeout: timedelta | float | None = None) -> FlowRecord:
        """Wait until all of its jobs have ended, and return the flow.

        ``timeout``: seconds or a timedelta; FlowTimeout after that, and the flow is not stopped.
        """
        return await self._client.wait_for_flow(self.id, timeout)

    async def result(self, node: Node[R], timeout: timedelta | float | None = None) -> R:
        """Wait for the result of one node, as `Job.result` does."""
        self._check(node, Node, "flow.add(call)")
        job: Job[R] = Job(self._client, JobId(node.id), created=False, task=None)
        return await job.result(timeout)

    def results(self, group: Group[R]) -> Results[R]:
        """Return the results of a group, in the order of its jobs. Wait for the flow before."""
        self._check(group, Group, "flow.map(...) or flow.group(name)")
        return Results(self.id, group.parts, _FlowReader(self._client), group.decode)

    async def as_completed(
        self, group: Group[R], timeout: timedelta | float | None = None
    ) -> AsyncGenerator[Done[R], None]:
        """Yield the jobs of a group as they end, each once, with its value or its error.

        ``timeout``: for all of them, in seconds or as a timedelta; FlowTimeout after that, and the
        flow is not stopped. A job that is requeued after it has failed is not yielded again.
        """
        self._check(group, Group, "flow.map(...) or flow.group(name)")
        async for ended in self._client.flow_ends(self.id, group.parts, timeout):
            yield done_of(ended, group.decode)

    def _check(self, given: object, kind: type[Node[Any] | Group[Any]], made_by: str) -> None:
        """Refuse what is not drawn in this flow."""
        if not isinstance(given, kind):
            message = f"this takes what {made_by} returned, got {shown(given)}"
            raise InvalidArgument(message)
        if given.flow.id == self.id:
            return
        message = f"{given!r} does not belong to flow {self.id}"
        if not self.created:
            message += ", which was started elsewhere: read its parts with run.graph()"
        raise InvalidArgument(message)

    async def add(self, flow: Flow, *, after: After = ()) -> None:
        """Add a flow to this one while it runs, whole or not at all.

        It counts for the end: this flow and its callbacks wait for all its jobs, and a failure of
        it is one of this flow. No job that is there waits for it.

        ``after``: nodes and groups of the `Flow` that this run was started from. The added jobs
        that wait for nothing else wait for these, and are cancelled if one fails. With
        ``ended(node)`` only its end counts.

        The added flow has no ``key``, ``expires`` or unique keys, and at most 10,000 jobs. After
        an error add the same `Flow` again: it is stored once. Raises FlowEnded if this flow has
        ended, was cancelled or has expired, and FlowNotFound.
        """
        await self._client.add_to_flow(self.id, flow, self._edges(after))

    def _edges(self, after: After) -> tuple[Edge, ...]:
        """Return the parts that an added flow waits for, each once. Strict wins where both are
        asked for.
        """
        edges: dict[int, bool] = {}
        for one in upstreams_of(after):
            upstream, strict = (one.upstream, False) if isinstance(one, AnyEnd) else (one, True)
            self._check_upstream(upstream)
            for part in upstream.awaited:
                edges[part] = edges.get(part, False) or strict
        return tuple(Edge(part, strict) for part, strict in sorted(edges.items()))

    def _check_upstream(self, given: object) -> None:
        if not isinstance(given, Node | Group):
            message = (
                f"after= takes a node or a group of the Flow that this run was started from, or a "
                f"list of them, got {shown(given)}"
            )
            raise InvalidArgument(message)
        if given.flow.id != self.id:
            message = (
                f"{given!r} does not belong to flow {self.id}: after= takes nodes and groups of "
                f"the Flow that was given to app.start. Where that Flow is not at hand, add "
                f"without after=, or let a job of the flow add with ctx.then(...)"
            )
            raise InvalidArgument(message)

    async def cancel(self) -> ActionResult:
        """Cancel what waits, and ask what runs to stop. Returns "done", or "wrong_state" if the
        flow has ended.
        """
        return await self._client.act_on_flow(self.id, "cancel")

    async def retry(self) -> ActionResult:
        """Run again what failed, and what that has stopped. Returns "done", "wrong_state" if it
        runs or has succeeded, or "conflict" if another running flow holds its key.
        """
        return await self._client.act_on_flow(self.id, "retry")
