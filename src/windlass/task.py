"""Tasks: registered functions, the options of their jobs, and the calls made of them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, Protocol, TypeVar

import msgspec

from windlass.context import Context
from windlass.core.backoff import Backoff
from windlass.core.function import check_function, importable, is_coroutine, where
from windlass.core.instant import aware, duration
from windlass.core.payload import Codec, signature_shape
from windlass.core.text import check_name, check_text, shown
from windlass.core.unique import Window
from windlass.errors import DefinitionError, DuplicateTask, InvalidArgument, UnknownTask

if TYPE_CHECKING:
    from windlass.handle import Job

__all__ = [
    "BoundTask",
    "Call",
    "Enqueuer",
    "JobOptions",
    "Task",
    "TaskOptions",
    "TaskRegistry",
    "check_name",
]

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
RunIn = Literal["auto", "loop", "thread"]

_PRIORITIES = range(-(2**15), 2**15)
_MOST_ATTEMPTS = 1_000_000


class TaskOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a task's jobs run unless a call says otherwise."""

    name: str
    queue: str | None = None
    max_attempts: int | None = None
    timeout: timedelta | None = None
    backoff: Backoff | None = None
    priority: int = 0
    run_in: RunIn = "auto"
    tags: tuple[str, ...] = ()
    expires: timedelta | None = None
    on_crash: Literal["fail", "retry"] = "fail"

    def __post_init__(self) -> None:
        check_name(self.name, "a task's name")
        if "/" in self.name:
            # It stands between a task and its unique keys, which must not meet another task's.
            message = f"a task's name must not contain '/', got {self.name!r}"
            raise InvalidArgument(message)
        _check_shared(self.queue, self.max_attempts, self.priority, self.backoff)
        _some_time(self.timeout, "timeout")
        _some_time(self.expires, "expires")
        if self.run_in not in ("auto", "loop", "thread"):
            message = f"run_in must be 'auto', 'loop' or 'thread', got {shown(self.run_in)}"
            raise InvalidArgument(message)
        if self.on_crash not in ("fail", "retry"):
            message = f"on_crash must be 'fail' or 'retry', got {shown(self.on_crash)}"
            raise InvalidArgument(message)


class JobOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What one call asks for beyond its task's options. None follows the task."""

    delay: timedelta | None = None
    at: datetime | None = None
    priority: int | None = None
    key: str | None = None
    window: Window = Window.UNTIL_FINISHED
    unique_for: timedelta | None = None
    queue: str | None = None
    max_attempts: int | None = None
    timeout: timedelta | None = None
    backoff: Backoff | None = None
    tags: tuple[str, ...] | None = None
    expires: timedelta | None = None
    correlation_id: str | None = None
    principal: str | None = None
    tenant: str | None = None
    parent: str | None = None

    def __post_init__(self) -> None:
        _check_shared(self.queue, self.max_attempts, self.priority, self.backoff)
        for name in ("correlation_id", "principal", "tenant"):
            text = getattr(self, name)
            if text is not None:
                check_text(text, name)
        if self.delay is not None and self.at is not None:
            message = "give delay= or at=, not both"
            raise InvalidArgument(message)
        self._check_key()

    def _check_key(self) -> None:
        if self.key is None and self.window is not Window.UNTIL_FINISHED:
            message = "unique= and unique_for= say how long a key holds: give key=, too"
            raise InvalidArgument(message)
        if self.key is not None and check_text(self.key, "key") == "":
            message = "key must be text, and not empty; leave it out for a job without one"
            raise InvalidArgument(message)


def _check_shared(
    queue: str | None, max_attempts: int | None, priority: int | None, backoff: Backoff | None
) -> None:
    if queue is not None:
        check_name(queue, "a queue's name")
    if max_attempts is not None and not _whole(max_attempts, range(1, _MOST_ATTEMPTS + 1)):
        message = (
            f"max_attempts counts executions: a whole number, at least 1 and at most "
            f"{_MOST_ATTEMPTS:,}, got {shown(max_attempts)}"
        )
        raise InvalidArgument(message)
    if priority is not None and not _whole(priority, _PRIORITIES):
        message = (
            f"priority must be a whole number that fits 16 bits (lower runs first), "
            f"got {shown(priority)}"
        )
        raise InvalidArgument(message)
    curve: object = backoff
    if curve is not None and not isinstance(curve, Backoff):
        wait = curve if isinstance(curve, (int, float)) and not isinstance(curve, bool) else 5
        message = f"backoff must be a Backoff such as Backoff.fixed({wait!r}), got {shown(curve)}"
        raise InvalidArgument(message)


def _whole(value: object, allowed: range) -> bool:
    """True and 1.0 would pass for 1, and come back from the store as something else."""
    return isinstance(value, int) and not isinstance(value, bool) and value in allowed


def tag_names(tags: Sequence[str]) -> tuple[str, ...]:
    """Tags as they are stored. A single text is refused: its letters are hardly what was meant."""
    given: object = tags
    texts = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (None,)
    if not all(isinstance(tag, str) for tag in texts):
        message = f"tags must be a list of texts such as tags=['vip'], got {shown(tags)}"
        raise InvalidArgument(message)
    return tuple(check_text(tag, "a tag") for tag in texts if isinstance(tag, str))


def _some_time(value: timedelta | float | None, what: str) -> timedelta | None:
    """A duration that is not nothing: a job that may take no time at all cannot run."""
    if value is None:
        return None
    span = duration(value, what)
    if span == timedelta(0):
        message = f"{what} must be longer than nothing; leave it out for the default"
        raise InvalidArgument(message)
    return span


def _window(unique: str, unique_for: timedelta | float | None) -> Window:
    if unique not in (Window.UNTIL_STARTED, Window.UNTIL_FINISHED):
        message = (
            f"unique must be 'until_started' or 'until_finished', got {unique!r}; for a key that "
            f"holds for a time, give unique_for="
        )
        raise InvalidArgument(message)
    return Window(unique) if unique_for is None else Window.FOR_A_TIME


class Call(msgspec.Struct, frozen=True):
    """A task, its options and encoded arguments: ready to be enqueued, by itself or in bulk."""

    task: Task[..., Any]
    payload: bytes
    arguments: Mapping[str, object] | None
    """Given only where a task's argument names carry identity; see `core.identity`."""
    options: JobOptions


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
        self.is_async = inspect.iscoroutinefunction(function) or (
            # A decorator may run the coroutine itself; then run_in="thread" says so.
            options.run_in != "thread" and is_coroutine(function)
        )
        names = {p.name for p in signature_shape(function, skip_first=self.takes_context)}
        self._has_identity = bool(names & _IDENTITY)
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
    ) -> BoundTask[P, R_co]:
        """This task with other options for the calls made through the answer."""
        options = JobOptions(
            delay=None if delay is None else duration(delay, "delay"),
            at=None if at is None else aware(at, "at"),
            priority=priority,
            key=key,
            window=_window(unique, unique_for),
            unique_for=_some_time(unique_for, "unique_for"),
            queue=queue,
            max_attempts=max_attempts,
            timeout=_some_time(timeout, "timeout"),
            backoff=backoff,
            tags=None if tags is None else tag_names(tags),
            expires=_some_time(expires, "expires"),
            correlation_id=correlation_id,
            principal=principal,
            tenant=tenant,
        )
        return BoundTask(self, options)

    def _make(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: JobOptions) -> Call:
        codec = self.codec
        payload = codec.encode(args, kwargs, limit=self._enqueuer.payload_limit)
        if not self._has_identity:
            return Call(self, payload, None, options)
        named = dict(zip(codec.names, args, strict=False))
        named.update(kwargs)
        return Call(self, payload, named, options)


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


class TaskRegistry:
    """Every task of an app by name: the only way from a stored name to a function."""

    def __init__(self) -> None:
        """Start empty."""
        self._tasks: dict[str, Task[..., Any]] = {}

    def add(self, task: Task[..., Any]) -> None:
        """Register; a name that is taken is refused."""
        other = self._tasks.get(task.name)
        if other is not None:
            raise DuplicateTask(task.name, where(other.function), where(task.function))
        self._tasks[task.name] = task

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
