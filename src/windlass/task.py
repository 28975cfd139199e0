"""Tasks: registered functions, the options of their jobs, and the calls made of them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeVar,
    overload,
)

import msgspec

from windlass.context import Context
from windlass.core.backoff import Backoff
from windlass.core.function import check_function, importable, is_coroutine, where
from windlass.core.instant import aware, duration
from windlass.core.job import LimitUse
from windlass.core.limit import LimitSpec
from windlass.core.payload import Codec, signature_shape
from windlass.core.text import check_name
from windlass.errors import DefinitionError, DuplicateTask, UnknownTask
from windlass.limits import Costs, Draw, check_costs
from windlass.options import JobOptions, RunIn, TaskOptions, some_time, tag_names, window
from windlass.storage.protocol import UserConnection

if TYPE_CHECKING:
    from windlass.handle import Job

__all__ = [
    "BoundTask",
    "Call",
    "Decorator",
    "Enqueuer",
    "JobOptions",
    "RunIn",
    "Task",
    "TaskOptions",
    "TaskRegistry",
    "check_name",
    "tag_names",
]

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Call(msgspec.Struct, frozen=True):
    """A task, its options and encoded arguments: ready to be enqueued, by itself or in bulk."""

    task: Task[..., Any]
    payload: bytes
    arguments: Mapping[str, object] | None
    """Given only where a task reads them: identity (see `core.identity`), or keys of limits."""
    options: JobOptions
    limits: tuple[LimitUse, ...] = ()


class Enqueuer(Protocol):
    """What a task needs from its app."""

    async def enqueue_call(self, call: Call) -> Job[Any]:
        """Store one call."""
        ...

    def enqueue_call_sync(self, call: Call) -> Job[Any]:
        """Store one call from code without an event loop."""
        ...

    @property
    def payload_limit(self) -> int:
        """Largest payload in bytes."""
        ...


_PLAIN = JobOptions()
_IDENTITY = frozenset({"principal_id", "principal", "user_id", "correlation_id", "request_id"})


class Task(Generic[P, R_co]):
    """A registered function. Calling it runs the plain function, here and now."""

    def __init__(
        self, function: Callable[..., Any], options: TaskOptions, enqueuer: Enqueuer
    ) -> None:
        """Refuses what can be refused at definition time."""
        check_function(function)
        self.function = function
        self.settings = options = msgspec.structs.replace(options, name=importable(options.name))
        self._enqueuer = enqueuer
        self.takes_context = _wants_context(function)
        self.in_process = options.run_in == "process"
        self.is_async = inspect.iscoroutinefunction(function) or (
            # A decorator may run the coroutine itself; then run_in="thread" says so.
            options.run_in != "thread" and is_coroutine(function)
        )
        shape = signature_shape(function, skip_first=self.takes_context)
        names = [p.name for p in shape]
        self._has_identity = not _IDENTITY.isdisjoint(names)
        self._draws = tuple(Draw(limit, names, options.name) for limit in options.limits)
        self._defaults = {p.name: p.default for p in shape if p.default is not p.empty}
        if options.run_in == "loop" and not self.is_async:
            message = (
                f"task {options.name!r} is a plain function and would block the event loop; "
                f"make it `async def`, or leave run_in out to run it on a thread"
            )
            raise DefinitionError(message)
        if options.run_in == "thread" and self.is_async:
            message = f"task {options.name!r} is a coroutine function: it runs on the loop"
            raise DefinitionError(message)
        functools.update_wrapper(self, function)

    @property
    def name(self) -> str:
        """The stored name that leads a job back to this function."""
        return self.settings.name

    @functools.cached_property
    def codec(self) -> Codec:
        """Made at first use, when every type the annotations name exists."""
        return Codec(self.function, skip_first=self.takes_context)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the plain function, as if it had never been decorated."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Task {self.name!r}>"

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R_co]:
        """Store a job that runs this function with these arguments."""
        return await self._enqueuer.enqueue_call(self._make(args, kwargs, _PLAIN))

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> Job[R_co]:
        """The same, from code without an event loop."""
        return self._enqueuer.enqueue_call_sync(self._make(args, kwargs, _PLAIN))

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call:
        """A call to give to ``app.enqueue_many`` or ``ctx.enqueue``."""
        return self._make(args, kwargs, _PLAIN)

    def options(
        self,
        *,
        delay: timedelta | float | None = None,
        at: datetime | None = None,
        priority: int | None = None,
        key: str | None = None,
        unique: Literal["until_started", "until_finished"] = "until_finished",
        unique_for: timedelta | float | None = None,
        queue: str | None = None,
        max_attempts: int | None = None,
        timeout: timedelta | float | None = None,
        backoff: Backoff | None = None,
        tags: Sequence[str] | None = None,
        expires: timedelta | float | None = None,
        correlation_id: str | None = None,
        principal: str | None = None,
        tenant: str | None = None,
        connection: UserConnection | None = None,
        wake: Literal["commit"] | None = None,
        cost: Costs | None = None,
    ) -> BoundTask[P, R_co]:
        """This task with other options for the calls made through the answer.

        ``connection``: yours, with a transaction open on it. The job is part of that transaction.
        """
        options = JobOptions(
            delay=None if delay is None else duration(delay, "delay"),
            at=None if at is None else aware(at, "at"),
            priority=priority,
            key=key,
            window=window(unique, unique_for),
            unique_for=some_time(unique_for, "unique_for"),
            queue=queue,
            max_attempts=max_attempts,
            timeout=some_time(timeout, "timeout"),
            backoff=backoff,
            tags=None if tags is None else tag_names(tags),
            expires=some_time(expires, "expires"),
            correlation_id=correlation_id,
            principal=principal,
            tenant=tenant,
            connection=connection,
            wake=wake,
            cost=check_costs(cost, self._draws, self.name),
        )
        return BoundTask(self, options)

    def _make(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: JobOptions) -> Call:
        codec = self.codec
        payload = codec.encode(args, kwargs, limit=self._enqueuer.payload_limit)
        if not self._has_identity and not self._draws:
            return Call(self, payload, None, options)
        named = dict(zip(codec.names, args, strict=False))
        named.update(kwargs)
        return Call(self, payload, named, options, self._uses(payload, options))

    def call_of(self, payload: bytes, options: JobOptions) -> Call:
        """A call whose arguments were encoded elsewhere."""
        uses = self._uses(payload, options)
        return Call(self, payload, msgspec.json.decode(payload), options, uses)

    def _uses(self, payload: bytes, options: JobOptions) -> tuple[LimitUse, ...]:
        """What the call takes of its limits, by the arguments as its handler will get them."""
        if not self._draws:
            return ()
        args, kwargs = self.codec.decode(payload)
        given = {**self._defaults, **dict(zip(self.codec.names, args, strict=False)), **kwargs}
        return tuple(draw.use(given, options.cost) for draw in self._draws)


class BoundTask(Generic[P, R_co]):
    """A task with options for its next calls."""

    __slots__ = ("_options", "_task")

    def __init__(self, task: Task[P, R_co], options: JobOptions) -> None:
        """Made by `Task.options`."""
        self._task = task
        self._options = options

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R_co]:
        """Store a job with these options."""
        return await self._task._enqueuer.enqueue_call(self.call(*args, **kwargs))  # noqa: SLF001

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> Job[R_co]:
        """The same, from code without an event loop."""
        return self._task._enqueuer.enqueue_call_sync(self.call(*args, **kwargs))  # noqa: SLF001

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call:
        """A call with these options, for ``app.enqueue_many``."""
        return self._task._make(args, kwargs, self._options)


class Decorator:
    """``@app.task(...)``, typed."""

    def __init__(
        self,
        register: Callable[[Callable[..., Any], Mapping[str, Any]], Task[..., Any]],
        options: Mapping[str, Any],
    ) -> None:
        """Made by ``app.task``."""
        self._register = register
        self._options = options

    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]]
    ) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]]) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R]) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> Task[P, R]: ...
    def __call__(self, function: Callable[..., Any]) -> Task[..., Any]:
        """Register ``function``."""
        return self._register(function, self._options)


class TaskRegistry:
    """Every task of an app by name: the only way from a stored name to a function."""

    def __init__(self) -> None:
        """Start empty."""
        self._tasks: dict[str, Task[..., Any]] = {}
        self._limits: dict[str, tuple[LimitSpec, str]] = {}

    def add(self, task: Task[..., Any]) -> None:
        """Register; a name that is taken is refused."""
        other = self._tasks.get(task.name)
        if other is not None:
            raise DuplicateTask(task.name, where(other.function), where(task.function))
        for limit in task.settings.limits:
            self._check_limit(limit.spec, task.name)
        for limit in task.settings.limits:
            self._limits[limit.name] = (limit.spec, task.name)
        self._tasks[task.name] = task

    def _check_limit(self, spec: LimitSpec, task: str) -> None:
        other, owner = self._limits.get(spec.name, (spec, task))
        if other != spec:
            message = (
                f"limit {spec.name!r} has other numbers in task {task!r} than in {owner!r}. Make "
                f"one Limit and give it to both, or two with names of their own."
            )
            raise DefinitionError(message)

    def find(self, name: str) -> Task[..., Any] | None:
        """The task, or None."""
        return self._tasks.get(name)

    def __getitem__(self, name: str) -> Task[..., Any]:
        """The task, or UnknownTask with what was probably meant."""
        task = self._tasks.get(name)
        if task is None:
            raise UnknownTask(name, self._tasks)
        return task

    def __iter__(self) -> Iterator[Task[..., Any]]:
        return iter(self._tasks.values())

    def __len__(self) -> int:
        return len(self._tasks)

    @property
    def names(self) -> Sequence[str]:
        """Sorted."""
        return sorted(self._tasks)


def _wants_context(function: Callable[..., Awaitable[Any] | Any]) -> bool:
    """Whether the first parameter is annotated as a Context, also as a string."""
    first = next(iter(inspect.signature(function).parameters.values()), None)
    if first is None or first.kind not in (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD):
        return False
    annotation = first.annotation
    if not isinstance(annotation, str):
        return annotation is Context
    path = annotation.strip("'\" ").split(".")
    if path[-1] != "Context":
        return False
    # The name may be imported for type checkers only; then its last part has to do.
    found: Any = getattr(function, "__globals__", {}).get(path[0])
    for part in path[1:]:
        found = getattr(found, part, None)
    return found is None or found is Context
