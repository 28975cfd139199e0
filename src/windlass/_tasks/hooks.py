"""What an application hangs around its jobs: middleware, listeners, lifespans, state."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar

from windlass._core.job.event import Event
from windlass._core.values.handler import can_call_with, check_middleware, source_of
from windlass._observe.bus import Bus
from windlass._tasks.app_location import AppLocation, app_location_of
from windlass._tasks.context import CallNext, Context, Middleware
from windlass._tasks.services import AttachedServices
from windlass._tasks.task import TaskRegistry
from windlass.errors import DefinitionError

__all__ = ["CallNext", "Hooks", "Middleware", "call_through_middleware"]

L = TypeVar("L", bound=Callable[..., Any])
H = TypeVar("H", bound=Callable[[], str | None])


async def call_through_middleware(
    layers: Sequence[Middleware], context: Context, inner: CallNext
) -> Any:
    """Call ``inner`` inside ``layers``, the first one outermost."""
    call = inner
    for layer in reversed(layers):
        call = functools.partial(layer, context, call)
    return await call()


class Hooks:
    """The part of an app that its users hang their own code on."""

    def __init__(self) -> None:
        """Nothing hangs there yet."""
        self.bus: Bus = Bus()
        self.tasks: TaskRegistry = TaskRegistry()
        self.target: str | None = None
        """``module:variable``, if it was loaded by that name."""
        self.state: Any = None
        """Anything your handlers need: ``ctx.state``."""
        self.services: AttachedServices = AttachedServices()
        """What you lend to handlers, those of plugins among them: ``ctx.services``."""
        self.more_queues: set[str] = set()
        """Queues that calls may name though no task does: workers serve them, too."""
        self.layers: list[Middleware] = []
        """The middleware, outermost first."""
        self.tenant_of: Callable[[], str | None] | None = None
        """Says whose calls are made here and now."""
        self.lifespans: list[Callable[[Any], AbstractAsyncContextManager[Any]]] = []
        """What surrounds a worker's life, outermost first."""

    def middleware(self, layer: Middleware) -> Middleware:
        """Run ``async def layer(ctx, call_next)`` around every job; the first one is outermost.

        What it returns is the job's result, what it raises is the job's error, whether or not it
        has called ``await call_next()``.
        """
        check_middleware(layer)
        self.layers.append(layer)
        return layer

    def on_transition(self, listener: Callable[[Event], None]) -> Callable[[Event], None]:
        """Call ``listener`` with every event of this process, after it is committed.

        It runs on the event loop and must not block; what must happen exactly once is a job.
        """
        if inspect.iscoroutinefunction(listener):
            message = (
                f"a listener is called and not awaited: write {_name(listener)} with `def`. If it "
                f"has to wait for something, let it enqueue a job or start an asyncio task"
            )
            raise DefinitionError(message)
        self.bus.subscribe(listener)
        return listener

    def lifespan(self, around: L) -> L:
        """Surround the life of every worker with ``async def around(app)``, which yields once.

        What stands before the ``yield`` has ended before the first job is claimed, what stands
        after it begins when the last one is stored. Child processes have one of their own.
        """
        if inspect.iscoroutinefunction(around) or not can_call_with(around, 1):
            message = (
                f"a lifespan is `async def name(app)` with one `yield`, or a function that returns "
                f"an async context manager; {_name(around)} is neither"
            )
            raise DefinitionError(message)
        generates = inspect.isasyncgenfunction(around)
        self.lifespans.append(asynccontextmanager(around) if generates else around)
        return around

    def current_tenant(self, function: H) -> H:
        """Ask ``def function() -> str | None`` for the tenant of every call, when it is made.

        A tenant that the call itself gives wins; None: it has the one of the job it is made in,
        if any. Called where the call is made, in its thread and with its context variables.
        """
        if self.tenant_of is not None:
            message = (
                f"{_name(self.tenant_of)} already returns the current tenant, and an app has one "
                f"such function: call {_name(function)} from it"
            )
            raise DefinitionError(message)
        if inspect.iscoroutinefunction(function) or not can_call_with(function, 0):
            message = (
                f"the current tenant comes from `def name()` without arguments, which returns a "
                f"str or None and is not awaited; {_name(function)} is not such a function"
            )
            raise DefinitionError(message)
        self.tenant_of = function
        return function

    def locate(self) -> AppLocation:
        """Where a child process finds this app; ConfigError when it cannot."""
        return app_location_of(self, self.tasks, self.target)

    @asynccontextmanager
    async def living(self) -> AsyncIterator[None]:
        """Inside every lifespan, for as long as the block lasts."""
        async with AsyncExitStack() as stack:
            for make in self.lifespans:
                await stack.enter_async_context(make(self))
            yield


def _name(function: object) -> str:
    return source_of(function) if inspect.isfunction(function) else repr(function)
