"""``@app.task(...)``, typed: a task knows its arguments, its result and how it is called."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from windlass.context import Context
from windlass.task import Task

__all__ = [
    "AsyncContextTask",
    "AsyncTask",
    "AwaitableContextTask",
    "AwaitableTask",
    "SyncContextTask",
    "SyncTask",
    "TaskDecorator",
]

P = ParamSpec("P")
R = TypeVar("R")

AsyncTask = Task[P, R, P, Coroutine[Any, Any, R]]
"""Of an ``async def``."""
AsyncContextTask = Task[P, R, Concatenate[Context, P], Coroutine[Any, Any, R]]
"""Of one that takes its `Context` first; the same below."""
AwaitableTask = Task[P, R, P, Awaitable[R]]
"""Of a function that gives back something else to await, such as a decorated one."""
AwaitableContextTask = Task[P, R, Concatenate[Context, P], Awaitable[R]]
SyncTask = Task[P, R, P, R]
"""Of a plain function."""
SyncContextTask = Task[P, R, Concatenate[Context, P], R]


class TaskDecorator:
    """``@app.task(...)`` and a plugin's ``@registrar.task(...)``, once they have their options."""

    def __init__(
        self,
        register: Callable[[Callable[..., Any], Mapping[str, Any]], Task[..., Any]],
        options: Mapping[str, Any],
    ) -> None:
        self._register = register
        self._options = options

    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> AsyncContextTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], Awaitable[R]], /
    ) -> AwaitableContextTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Awaitable[R]], /) -> AwaitableTask[P, R]: ...
    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], R], /
    ) -> SyncContextTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> SyncTask[P, R]: ...
    def __call__(self, function: Callable[..., Any], /) -> Task[..., Any]:
        """Register ``function``."""
        return self._register(function, self._options)
