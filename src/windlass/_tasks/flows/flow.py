"""`Flow`: jobs that wait for jobs, drawn before they are started."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    TypeVar,
    cast,
)

from windlass._core.flows.flow import Edge, NewPart, PartKind
from windlass._core.flows.pending import Pending, has_pending, pending_part, wanted_in
from windlass._core.flows.plan import complete
from windlass._core.flows.results import Results
from windlass._core.job.job import FlowId, JobId
from windlass._core.values.instants import duration
from windlass._core.values.names import shown
from windlass._core.values.payload import decode_any
from windlass._system.seams import new_job_id
from windlass._tasks.call import Call
from windlass._tasks.flows.plan import FlowPlan, check_call
from windlass.errors import InvalidArgument

if TYPE_CHECKING:
    from windlass._tasks.task import BoundTask, Task

__all__ = ["AnyEnd", "Flow", "Group", "Node", "Upstream", "ended"]

P = ParamSpec("P")
A = TypeVar("A")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
S = TypeVar("S")

FlowWhen = Literal["succeeded", "ended", "failed"]
MOST = 1_000_000
"""Jobs of one flow."""


class Node(Generic[R_co]):
    """A job of a flow. Made by `Flow.add`."""

    def __init__(self, flow: Flow, part: int, job: JobId, name: str) -> None:
        self._flow: Flow = flow
        self.part: int = part
        """The number of its part."""
        self.name: str = name
        self.id: JobId = job
        """The id that its job will have."""

    def __repr__(self) -> str:
        return f"<Node {self.name!r} of {self._flow!r}>"

    @property
    def flow(self) -> Flow:
        """The flow that it belongs to."""
        return self._flow

    @property
    def result(self) -> R_co:
        """Its result, as an argument for a call in the same flow. That call waits for it."""
        return cast("R_co", Pending("job", self.id, self.name))

    def then(
        self,
        task: Task[Concatenate[R_co, P], S] | BoundTask[Concatenate[R_co, P], S],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Node[S]:
        """Add a job that takes this result as its first argument."""
        return self._flow.add(task.call(self.result, *args, **kwargs))


class Group(Generic[R_co]):
    """Many jobs that others can wait for as one. Made by `Flow.map` and `Flow.group`."""

    def __init__(
        self,
        flow: Flow,
        name: str,
        part: int | None = None,
        decode: Callable[[bytes | None], R_co] = decode_any,
    ) -> None:
        self._flow: Flow = flow
        self.name: str = name
        self._part: int | None = part
        self.decode: Callable[[bytes | None], R_co] = decode
        """Decodes a stored result of its jobs."""
        self._nodes: list[Upstream] = []

    def __repr__(self) -> str:
        return f"<Group {self.name!r} of {self._flow!r}>"

    @property
    def flow(self) -> Flow:
        """The flow that it belongs to."""
        return self._flow

    @property
    def part(self) -> int:
        """The part that stands for the group. A drawn group is closed at its first use."""
        if self._part is None:
            self._part = self._flow._join(self.name, self._nodes)  # noqa: SLF001
        return self._part

    @property
    def results(self) -> Results[R_co]:
        """Its results, as an argument for a call in the same flow. That call waits for all."""
        return cast("Results[R_co]", pending_part(self._flow.id, self.part, self.name))

    def add(
        self,
        call: Call[S],
        *,
        after: After = (),
        when: FlowWhen = "succeeded",
        name: str | None = None,
    ) -> Node[S]:
        """Add a job to the flow and to this group."""
        self._check_open()
        node = self._flow.add(call, after=after, when=when, name=name)
        self._nodes.append(node)
        return node

    def map(
        self,
        task: Task[Concatenate[A, P], S] | BoundTask[Concatenate[A, P], S],
        items: Iterable[A],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Group[S]:
        """Add one job per item to the flow and to this group."""
        self._check_open()
        group = self._flow.map(task, items, *args, **kwargs)
        self._nodes.append(group)
        return group

    def _check_open(self) -> None:
        if self._part is not None:
            message = (
                f"group {self.name!r} is complete: another job waits for it already. Add all of "
                f"its jobs before you use it in after= or as results"
            )
            raise InvalidArgument(message)


Upstream = Node[Any] | Group[Any]


class AnyEnd:
    """A node or group of which only the end matters."""

    def __init__(self, upstream: Upstream) -> None:
        self.upstream: Upstream = upstream


def ended(upstream: Upstream) -> AnyEnd:
    """Wait for the end of a node or group, however it ends: ``after=ended(node)``."""
    return AnyEnd(upstream)


After = Upstream | AnyEnd | Sequence[Upstream | AnyEnd]


class Flow:
    """Jobs that wait for jobs. Draw it, then ``await app.start(flow)``.

    ``on_succeeded``, ``on_failed`` and ``on_ended`` are calls that run after all jobs of the flow.
    ``key``: while a flow with this key runs, starting another returns that one. ``expires``: what
    has not started this long after the start is cancelled. ``priority``: of all its jobs that have
    none of their own.
    """

    def __init__(
        self,
        name: str,
        *,
        on_succeeded: Call[Any] | None = None,
        on_failed: Call[Any] | None = None,
        on_ended: Call[Any] | None = None,
        key: str | None = None,
        expires: timedelta | float | str | None = None,
        priority: int | None = None,
    ) -> None:
        self.name: str = name
        self.id: FlowId = FlowId(new_job_id())
        """The id that it will have."""
        self.key: str | None = key
        self.started: bool = False
        self._expires = None if expires is None else duration(expires, "expires")
        self._priority = priority
        self._parts: list[NewPart] = []
        self._calls: list[tuple[int, JobId, Call[Any]]] = []
        given = {"on_succeeded": on_succeeded, "on_failed": on_failed, "on_ended": on_ended}
        self._callbacks = [
            (which, JobId(new_job_id()), call) for which, call in given.items() if call is not None
        ]
        for which, _, call in self._callbacks:
            check_call(call, which)

    def __repr__(self) -> str:
        return f"<Flow {self.name!r}, {len(self._calls)} jobs>"

    def __len__(self) -> int:
        return len(self._calls)

    def add(
        self,
        call: Call[R],
        *,
        after: After = (),
        when: FlowWhen = "succeeded",
        name: str | None = None,
    ) -> Node[R]:
        """Add a job. It waits for the nodes in ``after``, and for those whose results it takes.

        ``when``: "succeeded" (default) runs it if all of these succeed, and cancels it as soon as
        one does not; "ended" runs it however they end; "failed" runs it if one of them fails.
        """
        check_call(call, "Flow.add")
        title = name or call.task.name
        part = self._part(title, call.task.name, [call], self._edges(after, when, [call]), when)
        job = self._calls[-1][1]
        return Node(self, part, job, title)

    def map(
        self,
        task: Task[Concatenate[A, P], R] | BoundTask[Concatenate[A, P], R],
        items: Iterable[A],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Group[R]:
        """Add one job per item, which is its first argument. They run side by side."""
        calls = [task.call(item, *args, **kwargs) for item in items]
        return self.map_calls(calls)

    def map_calls(
        self,
        calls: Sequence[Call[R]],
        *,
        after: After = (),
        when: FlowWhen = "succeeded",
        name: str | None = None,
    ) -> Group[R]:
        """Add calls of one task as a group. Like `map`, with ``after``, ``when`` and ``name``."""
        for call in calls:
            check_call(call, "Flow.map_calls")
        tasks = {call.task.name for call in calls}
        task = tasks.pop() if len(tasks) == 1 else ""
        title = name or task or f"group {len(self._parts)}"
        edges = self._edges(after, when, calls)
        part = self._part(title, task, calls, edges, when)
        decode = calls[0].task.codec.decode_result if task else decode_any
        return Group(self, title, part, decode)

    def group(self, name: str) -> Group[Any]:
        """Make an empty group, to which you add jobs that others wait for as one."""
        self._check_draft()
        return Group(self, name)

    def plan(self) -> FlowPlan:
        """Return what is to be stored."""
        callbacks = [
            NewPart(
                name=which,
                task=call.task.name,
                when="failed" if which == "on_failed" else "succeeded",
                after=(Edge(0, strict=which != "on_ended"),),
            )
            for which, _, call in self._callbacks
        ]
        first = len(self._parts) + 1
        told = [
            (first + number, job, call) for number, (_, job, call) in enumerate(self._callbacks)
        ]
        return FlowPlan(
            id=self.id,
            name=self.name,
            key=self.key,
            expires=self._expires,
            parts=complete(self._parts, callbacks),
            calls=[*self._calls, *told],
        )

    def close(self) -> None:
        """Take no more jobs: it was started."""
        self.started = True

    # --- drawing ---

    def _check_draft(self) -> None:
        if self.started:
            message = (
                f"flow {self.name!r} was started: make a new Flow, or let a job of it add jobs "
                f"with ctx.then(...)"
            )
            raise InvalidArgument(message)

    def _part(
        self,
        name: str,
        task: str,
        calls: Sequence[Call[Any]],
        edges: tuple[Edge, ...],
        when: FlowWhen,
    ) -> int:
        self._check_draft()
        if len(self._calls) + len(calls) > MOST:
            message = (
                f"a flow has at most {MOST:,} jobs: give each job more items, or let jobs add jobs "
                f"with ctx.then(...)"
            )
            raise InvalidArgument(message)
        number = len(self._parts)
        stored: Literal["succeeded", "failed"] = "failed" if when == "failed" else "succeeded"
        self._parts.append(NewPart(name=name, task=task, when=stored, after=edges))
        for call in calls:
            own = call
            if self._priority is not None and call.options.priority is None:
                own = call.with_options(priority=self._priority)
            self._calls.append((number, JobId(new_job_id()), own))
        return number

    def _join(self, name: str, nodes: Sequence[Upstream]) -> int:
        self._check_draft()
        edges = tuple(Edge(number) for number in dict.fromkeys(node.part for node in nodes))
        self._parts.append(NewPart(name=name, kind=PartKind.JOIN, after=edges))
        return len(self._parts) - 1

    def _edges(self, after: After, when: FlowWhen, calls: Sequence[Call[Any]]) -> tuple[Edge, ...]:
        """Return what a part waits for, each part once. Strict wins where both are asked for."""
        several = after if isinstance(after, Sequence) else (after,)
        edges: dict[int, bool] = {}
        for one in several:
            upstream = one.upstream if isinstance(one, AnyEnd) else one
            self._check_upstream(upstream)
            strict = not isinstance(one, AnyEnd) and when != "ended"
            edges[upstream.part] = edges.get(upstream.part, False) or strict
        for number in self._sources(calls):
            edges.setdefault(number, when != "ended")  # unless after= said how it matters
        return tuple(Edge(number, strict) for number, strict in sorted(edges.items()))

    def _check_upstream(self, upstream: object) -> None:
        if not isinstance(upstream, Node | Group):
            message = (
                f"after= takes nodes and groups of the same flow, got {shown(upstream)}. To wait "
                f"for a job outside, put both into one flow"
            )
            raise InvalidArgument(message)
        if upstream.flow is not self:
            message = f"{upstream!r} belongs to another flow: add its job to {self!r}"
            raise InvalidArgument(message)

    def _sources(self, calls: Sequence[Call[Any]]) -> list[int]:
        """Return the parts whose results these calls take."""
        waiting = [call for call in calls if has_pending(call.payload)]
        if not waiting:
            return []
        parts = {job: part for part, job, _ in self._calls}
        found: list[int] = []
        for call in waiting:
            for one in wanted_in(call.payload):
                if one.kind == "part" and (part := one.part_of(self.id)) is not None:
                    found.append(part)
                elif one.kind == "job" and JobId(one.source) in parts:
                    found.append(parts[JobId(one.source)])
                else:
                    message = (
                        f"a call of {call.task.name} takes a result of another flow: add the job "
                        f"whose result it takes to {self!r}"
                    )
                    raise InvalidArgument(message)
        return list(dict.fromkeys(found))
