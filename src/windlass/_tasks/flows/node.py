"""The nodes and groups of a flow: others wait for them, and take their results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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

from windlass._core.flows.pending import Pending, pending_parts
from windlass._core.flows.results import Results
from windlass._core.job.job import JobId
from windlass._core.values.names import shown
from windlass._core.values.payload import decode_any
from windlass._tasks.call import Call
from windlass._tasks.flows.plan import check_task
from windlass.errors import InvalidArgument

if TYPE_CHECKING:
    from windlass._tasks.flows.flow import Flow
    from windlass._tasks.task import BoundTask, Task

__all__ = ["After", "AnyEnd", "FlowWhen", "Group", "Node", "Upstream", "ended", "upstreams_of"]

P = ParamSpec("P")
A = TypeVar("A")
R_co = TypeVar("R_co", covariant=True)
S = TypeVar("S")

FlowWhen = Literal["succeeded", "ended", "failed"]


class Node(Generic[R_co]):
    """A job of a flow. Made by `Flow.add`."""

    def __init__(self, flow: Flow, part: int, job: JobId, name: str, returns: Any = Any) -> None:
        """Made by `Flow.add`. ``returns``: the annotation of its result."""
        self._flow: Flow = flow
        self.part: int = part
        """The number of its part."""
        self.name: str = name
        self.id: JobId = job
        """The id that its job will have."""
        self.returns: Any = returns
        """The annotation of its result."""

    def __repr__(self) -> str:
        return f"<Node {self.name!r} of {self._flow!r}>"

    @property
    def flow(self) -> Flow:
        """The flow that it belongs to."""
        return self._flow

    @property
    def parts(self) -> tuple[int, ...]:
        """The numbers of the parts that its jobs are in."""
        return (self.part,)

    @property
    def awaited(self) -> tuple[int, ...]:
        """The parts that a flow waits for if ``run.add(flow, after=…)`` names this node."""
        return self.parts

    @property
    def result(self) -> R_co:
        """Its result, as an argument for a call in the same flow. That call waits for it."""
        return cast("R_co", Pending("job", self.id, self.name, self.returns))

    def then(
        self,
        task: Task[Concatenate[R_co, P], S] | BoundTask[Concatenate[R_co, P], S],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Node[S]:
        """Add a job that takes this result as its first argument."""
        check_task(task, "node.then")
        return self._flow.add(task.call(self.result, *args, **kwargs))


class Group(Generic[R_co]):
    """Many jobs that others can wait for as one. Made by `Flow.map` and `Flow.group`."""

    def __init__(
        self,
        flow: Flow,
        name: str,
        part: int | None = None,
        decode: Callable[[bytes | None], R_co] = decode_any,
        returns: Any = Any,
    ) -> None:
        """``part``: of its jobs; None: it is drawn job by job. ``returns``: the annotation of the
        results.
        """
        self._flow: Flow = flow
        self.name: str = name
        self._part: int | None = part
        self._members: list[Upstream] | None = [] if part is None else None
        self.decode: Callable[[bytes | None], R_co] = decode
        """Decodes a stored result of its jobs."""
        self.returns: Any = returns
        """The annotation of the results."""

    def __repr__(self) -> str:
        return f"<Group {self.name!r} of {self._flow!r}>"

    @property
    def flow(self) -> Flow:
        """The flow that it belongs to."""
        return self._flow

    @property
    def part(self) -> int:
        """The part that others wait for. A drawn group is closed at its first use."""
        if self._part is None:
            self._part = self._flow._join(self.name, self._members or ())  # noqa: SLF001
        return self._part

    @property
    def parts(self) -> tuple[int, ...]:
        """The numbers of the parts that its jobs are in."""
        if self._members is None:
            return (self.part,)
        return tuple(part for member in self._members for part in member.parts)

    @property
    def awaited(self) -> tuple[int, ...]:
        """The parts that a flow waits for if ``run.add(flow, after=…)`` names this group.

        Those of its members, if nothing waited for the group at the start.
        """
        return self.parts if self._part is None else (self._part,)

    @property
    def ids(self) -> list[JobId]:
        """The ids that its jobs will have, in the order in which they were added."""
        return self._flow._ids_in(self.parts)  # noqa: SLF001

    @property
    def results(self) -> Results[R_co]:
        """Its results, as an argument for a call in the same flow. That call waits for all."""
        pending = pending_parts(self._flow.id, self.part, self.parts, self.name, self.returns)
        return cast("Results[R_co]", pending)

    def add(
        self,
        call: Call[S],
        *,
        after: After = (),
        when: FlowWhen = "succeeded",
        name: str | None = None,
    ) -> Node[S]:
        """Add a job to the flow and to this group."""
        members = self._open()
        after = upstreams_of(after)  # once: it may be a generator
        self._check_circle(after)
        node = self._flow.add(call, after=after, when=when, name=name)
        members.append(node)
        return node

    def map(
        self,
        task: Task[Concatenate[A, P], S] | BoundTask[Concatenate[A, P], S],
        items: Iterable[A],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Group[S]:
        """Add one job per item to the flow and to this group."""
        members = self._open()
        group = self._flow.map(task, items, *args, **kwargs)
        members.append(group)
        return group

    def group(self, name: str) -> Group[Any]:
        """Make an empty group inside this one. What waits for this one waits for both."""
        members = self._open()
        group = self._flow.group(name)
        members.append(group)
        return group

    def _holds(self, other: object) -> bool:
        """Return whether a group is this one, or inside this one."""
        inside = [member for member in self._members or () if isinstance(member, Group)]
        return other is self or any(group._holds(other) for group in inside)  # noqa: SLF001

    def _check_circle(self, after: Sequence[Upstream | AnyEnd]) -> None:
        for one in after:
            upstream = one.upstream if isinstance(one, AnyEnd) else one
            if isinstance(upstream, Group) and upstream._holds(self):  # noqa: SLF001
                message = (
                    f"a job of group {self.name!r} cannot wait for group {upstream.name!r}, which "
                    f"it is part of: leave that group out of after="
                )
                raise InvalidArgument(message)

    def _open(self) -> list[Upstream]:
        """Return its members, to add one."""
        if self._members is None:
            message = (
                f"group {self.name!r} was made by map, with all of its jobs: make one with "
                f"flow.group(name) to add jobs and groups to it"
            )
            raise InvalidArgument(message)
        if self._part is not None:
            message = (
                f"group {self.name!r} is complete: another job waits for it already. Add all of "
                f"its jobs before you use it in after= or as results"
            )
            raise InvalidArgument(message)
        return self._members


Upstream = Node[Any] | Group[Any]


class AnyEnd:
    """A node or group of which only the end matters."""

    def __init__(self, upstream: Upstream) -> None:
        self.upstream: Upstream = upstream


def ended(upstream: Upstream) -> AnyEnd:
    """Wait for the end of a node or group, however it ends: ``after=ended(node)``."""
    given: object = upstream
    if not isinstance(given, Node | Group):
        message = f"ended takes a node or a group of a flow, got {shown(given)}"
        raise InvalidArgument(message)
    return AnyEnd(upstream)


After = Upstream | AnyEnd | Iterable[Upstream | AnyEnd]


def upstreams_of(after: After) -> Sequence[Upstream | AnyEnd]:
    """Return what ``after=`` names, unchecked."""
    if isinstance(after, Node | Group | AnyEnd):
        return (after,)
    given: object = after
    if isinstance(given, Iterable) and not isinstance(given, str | bytes | Pending):
        return tuple(after)
    return (cast("Upstream", given),)
