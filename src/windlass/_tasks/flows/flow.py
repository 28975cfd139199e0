"""`Flow`: jobs that wait for jobs, drawn before they are started."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import timedelta
from itertools import islice
from operator import itemgetter, length_hint
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar, get_args

import msgspec

from windlass._core.flows.flow import Edge, NewPart, PartKind
from windlass._core.flows.pending import has_pending, wanted_in
from windlass._core.flows.plan import END, complete
from windlass._core.job.job import FlowId, JobId
from windlass._core.values.instants import duration
from windlass._core.values.names import check_text, shown
from windlass._system.seams import new_job_id
from windlass._tasks.call import Call
from windlass._tasks.flows.node import (
    After,
    AnyEnd,
    FlowWhen,
    Group,
    Node,
    Upstream,
    ended,
    upstreams_of,
)
from windlass._tasks.flows.plan import FlowPlan, check_call, check_callback, check_task
from windlass._tasks.options import JobOptions, check_priority
from windlass.errors import InvalidArgument, PayloadError

if TYPE_CHECKING:
    from windlass._tasks.task import BoundTask, Task

__all__ = ["AnyEnd", "Flow", "Group", "Node", "Upstream", "ended", "plan_of"]

P = ParamSpec("P")
A = TypeVar("A")
R = TypeVar("R")

MOST = 1_000_000
"""Jobs of one flow."""
MOST_PARTS = 10_000
"""Nodes, maps and groups of one flow. A cancel looks at each of them in one write."""
_RESERVED = (END, "on_succeeded", "on_failed", "on_ended")
"""The names of the parts that a flow adds itself."""


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
        self.name: str = _title(name, "the name of a flow")
        self.id: FlowId = FlowId(new_job_id())
        """The id that it will have."""
        self.key: str | None = None if key is None else _title(key, "the key of a flow")
        self.started: bool = False
        self._fixed = False
        self._expires = None if expires is None else duration(expires, "expires")
        if priority is not None:
            check_priority(priority)
        self._priority = priority
        self._parts: list[NewPart] = []
        self._calls: list[tuple[int, JobId, Call[Any]]] = []
        self._part_of: dict[str, int] = {}  # by the ids of its jobs
        given = {"on_succeeded": on_succeeded, "on_failed": on_failed, "on_ended": on_ended}
        self._callbacks = [
            (which, JobId(new_job_id()), call) for which, call in given.items() if call is not None
        ]
        for which, _, call in self._callbacks:
            check_callback(call, which)

    def __repr__(self) -> str:
        jobs = "1 job" if len(self) == 1 else f"{len(self)} jobs"
        return f"<Flow {self.name!r}, {jobs}>"

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
        title = call.task.name if name is None else _part_name(name, "the name of a node")
        part = self._part(title, call.task.name, [call], self._edges(after, when, [call]), when)
        job = self._calls[-1][1]
        return Node(self, part, job, title, call.task.codec.returns)

    def map(
        self,
        task: Task[Concatenate[A, P], R] | BoundTask[Concatenate[A, P], R],
        items: Iterable[A],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Group[R]:
        """Add one job per item, which is its first argument. They run side by side."""
        self._check_draft()
        check_task(task, "flow.map")
        _check_many(items, "flow.map takes a task and its items")
        try:
            calls = self._as_many((task.call(item, *args, **kwargs) for item in items), items)
        except PayloadError as error:
            meant = [name for name in ("after", "when", "name") if name in kwargs]
            if not meant:
                raise
            message = (
                f"{error}. flow.map passes keywords to the task: use "
                f"flow.map_calls(calls, {meant[0]}=…)"
            )
            raise PayloadError(message) from error
        return self._map(calls, (), "succeeded", task.name)

    def map_calls(
        self,
        calls: Iterable[Call[R]],
        *,
        after: After = (),
        when: FlowWhen = "succeeded",
        name: str | None = None,
    ) -> Group[R]:
        """Add calls of one task as a group. Like `map`, with ``after``, ``when`` and ``name``."""
        self._check_draft()
        _check_many(calls, "flow.map_calls takes calls made by task.call(...)")
        every = self._as_many(calls, calls)
        for call in every:
            check_call(call, "Flow.map_calls")
        return self._map(every, after, when, name)

    def group(self, name: str) -> Group[Any]:
        """Make an empty group, to which you add jobs that others wait for as one."""
        self._check_draft()
        return Group(self, _part_name(name, "the name of a group"))

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

    @property
    def calls(self) -> list[Call[Any]]:
        """All its calls, those after its end, too."""
        return [call for _, _, call in (*self._calls, *self._callbacks)]

    def fix(self) -> None:
        """Take no more jobs: it is on its way to the store, and may be there after an error."""
        self._fixed = True

    def close(self) -> None:
        """Take no more jobs: it was started."""
        self._fixed = self.started = True

    # --- drawing ---

    def _check_draft(self) -> None:
        if self.started:
            message = (
                f"flow {self.name!r} was started: make a new Flow, or let a job of it add jobs "
                f"with ctx.then(...)"
            )
            raise InvalidArgument(message)
        if self._fixed:
            message = (
                f"flow {self.name!r} was given to app.start, and may be stored: start it again as "
                f"it is, or make a new Flow"
            )
            raise InvalidArgument(message)

    def _check_parts(self) -> None:
        if len(self._parts) >= MOST_PARTS:
            raise InvalidArgument(_TOO_MANY_PARTS)

    def _as_many(self, made: Iterable[Call[R]], given: object) -> list[Call[R]]:
        """Return calls as a list, unless they are too many: no more than that are made.

        ``given``: what they are made of. If it has a length, not even the first one is made.
        """
        room = MOST - len(self._calls)
        if _length(given) > room:
            raise InvalidArgument(_TOO_MANY)
        every = list(islice(made, room + 1))
        if len(every) > room:
            raise InvalidArgument(_TOO_MANY)
        return every

    def _map(
        self, calls: Sequence[Call[R]], after: After, when: FlowWhen, name: str | None
    ) -> Group[R]:
        tasks = {call.task.name: call.task for call in calls}
        task = next(iter(tasks.values())) if len(tasks) == 1 else None
        title = f"group {len(self._parts)}" if task is None else task.name
        if name is not None:
            title = _part_name(name, "the name of a group")
        edges = self._edges(after, when, calls)
        part = self._part(title, "" if task is None else task.name, calls, edges, when)
        if task is None:
            return Group(self, title, part)
        return Group(self, title, part, task.codec.decode_result, task.codec.returns)

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
            raise InvalidArgument(_TOO_MANY)
        self._check_parts()
        number = len(self._parts)
        stored: Literal["succeeded", "failed"] = "failed" if when == "failed" else "succeeded"
        self._parts.append(NewPart(name=name, task=task, when=stored, after=edges))
        for call in calls if self._priority is None else _with_priority(calls, self._priority):
            job = JobId(new_job_id())
            self._calls.append((number, job, call))
            self._part_of[job] = number
        return number

    def _ids_in(self, parts: Sequence[int]) -> list[JobId]:
        place = {part: number for number, part in enumerate(parts)}
        inside = [(place[part], job) for part, job, _ in self._calls if part in place]
        return [job for _, job in sorted(inside, key=itemgetter(0))]

    def _join(self, name: str, nodes: Sequence[Upstream]) -> int:
        self._check_draft()
        self._check_parts()
        edges = tuple(Edge(number) for number in dict.fromkeys(node.part for node in nodes))
        self._parts.append(NewPart(name=name, kind=PartKind.JOIN, after=edges))
        return len(self._parts) - 1

    def _edges(self, after: After, when: FlowWhen, calls: Sequence[Call[Any]]) -> tuple[Edge, ...]:
        """Return what a part waits for, each part once. Strict wins where both are asked for."""
        if when not in get_args(FlowWhen):
            known = ", ".join(map(repr, get_args(FlowWhen)))
            message = f"when= takes {known}, got {shown(when)}"
            raise InvalidArgument(message)
        several = upstreams_of(after)
        for one in several:  # all of them first: `part` closes groups
            self._check_upstream(one.upstream if isinstance(one, AnyEnd) else one)
        edges: dict[int, bool] = {}
        for one in several:
            upstream = one.upstream if isinstance(one, AnyEnd) else one
            strict = not isinstance(one, AnyEnd) and when != "ended"
            edges[upstream.part] = edges.get(upstream.part, False) or strict
        for number in self._sources(calls):
            edges.setdefault(number, when != "ended")  # unless after= said how it matters
        if when != "succeeded" and not edges:
            message = f"when={when!r} needs something to wait for: name nodes or groups in after="
            raise InvalidArgument(message)
        return tuple(Edge(number, strict) for number, strict in sorted(edges.items()))

    def _check_upstream(self, upstream: object) -> None:
        if not isinstance(upstream, Node | Group):
            message = (
                f"after= takes a node or a group of the same flow, or a list of them, got "
                f"{shown(upstream)}. To wait for a job outside, put both into one flow"
            )
            raise InvalidArgument(message)
        if upstream.flow is not self:
            message = f"{upstream!r} belongs to another flow: add its job to {self!r}"
            raise InvalidArgument(message)

    def _sources(self, calls: Sequence[Call[Any]]) -> list[int]:
        """Return the parts whose results these calls take."""
        found: list[int] = []
        for call in calls:
            for one in wanted_in(call.payload) if has_pending(call.payload) else ():
                if one.kind == "part" and (part := one.part_of(self.id)) is not None:
                    found.append(part)
                elif one.kind == "job" and one.source in self._part_of:
                    found.append(self._part_of[one.source])
                else:
                    message = (
                        f"a call of {call.task.name} takes a result of another flow: add the job "
                        f"whose result it takes to {self!r}"
                    )
                    raise InvalidArgument(message)
        return list(dict.fromkeys(found))


def plan_of(flow: object) -> FlowPlan:
    """Return what is to be stored of a flow that is not started yet."""
    if not isinstance(flow, Flow):
        message = f"this takes a Flow, got {shown(flow)}"
        if isinstance(flow, Call):
            message = "this takes a Flow, got a call: flow = Flow(name); flow.add(call)"
        raise InvalidArgument(message)
    if flow.started:
        message = f"{flow!r} was started already: make a new Flow to run it again"
        raise InvalidArgument(message)
    return flow.plan()


_TOO_MANY_PARTS = (
    f"a flow has at most {MOST_PARTS:,} nodes and groups: add many alike jobs as one group, with "
    f"flow.map(...), or let jobs add jobs with ctx.then(...)"
)
_TOO_MANY = (
    f"a flow has at most {MOST:,} jobs: give each job more items, or let jobs add jobs with "
    f"ctx.then(...)"
)


def _length(given: object) -> int:
    """Return the length of what has one; of other iterables 0."""
    try:
        return length_hint(given)
    except OverflowError:  # a range may be longer than any list
        return sys.maxsize


def _title(value: str, what: str) -> str:
    """Check a text that people read in lists."""
    if not check_text(value, what).strip():
        message = f"{what} must not be empty"
        raise InvalidArgument(message)
    return value


def _part_name(value: str, what: str) -> str:
    if _title(value, what) in _RESERVED:
        message = f"{what} cannot be {value!r}, which every flow uses itself: choose another one"
        raise InvalidArgument(message)
    return value


def _check_many(given: object, takes: str) -> None:
    if not isinstance(given, Iterable):
        message = f"{takes}, got {shown(given)}"
        raise InvalidArgument(message)


def _with_priority(calls: Sequence[Call[R]], priority: int) -> list[Call[R]]:
    """Return calls with a priority, if they have none. Alike options stay one object, which is
    cheaper to store.
    """
    made: dict[int, JobOptions] = {}
    changed = []
    for call in calls:
        options = call.options
        if options.priority is None:
            options = made.get(id(options)) or msgspec.structs.replace(options, priority=priority)
            made[id(call.options)] = options
        changed.append(msgspec.structs.replace(call, options=options))
    return changed
