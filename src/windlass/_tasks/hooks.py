"""Middleware, listeners, lifespans, services and state that an application adds to its jobs."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar

from windlass._core.job.event import Event
from windlass._core.values.handler import can_call_with, check_middleware, source_of
from windlass._core.values.names import shown
from windlass._observe.bus import Bus
from windlass._tasks.call import Call, EnqueueHook
from windlass._tasks.context import CallNext, Context, Middleware
from windlass._tasks.services import AttachedServices
from windlass.errors import DefinitionError, InvalidArgument

__all__ = ["CallNext", "Hooks", "Middleware", "call_through_middleware"]

L = TypeVar("L", bound=Callable[..., Any])
R = TypeVar("R")
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
    """The code and the objects that an application adds to its jobs."""

    def __init__(self, app: object) -> None:
        """Start without hooks. ``app``: the argument of lifespans."""
        self._app = app
        self.bus: Bus = Bus()
        self.services: AttachedServices = AttachedServices()
        """The services that the application lends to handlers."""
        self.layers: list[Middleware] = []
        """The middleware, outermost first."""
        self.tenant_of: Callable[[], str | None] | None = None
        """Returns the tenant of a call that is made now."""
        self.enqueue_hooks: list[EnqueueHook] = []
        """The functions that see every call before it is enqueued, in order."""
        self.state: Any = None
        """The application's object."""
        self._lifespans: list[Callable[[Any], AbstractAsyncContextManager[Any]]] = []

    def set_state(self, state: Any) -> None:
        """Give handlers another object as ``ctx.state``."""
        self.state = state

    def middleware(self, layer: Middleware) -> Middleware:
        """Run ``layer`` around every job, inside the layers added before."""
        check_middleware(layer)
        self.layers.append(layer)
        return layer

    def on_transition(self, listener: Callable[[Event], None]) -> Callable[[Event], None]:
        """Call ``listener`` with every event of this process."""
        if inspect.iscoroutinefunction(listener):
            message = (
                f"a listener is called and not awaited: write {_name(listener)} with `def`. If it "
                f"has to wait for something, let it enqueue a job or start an asyncio task"
            )
            raise DefinitionError(message)
        self.bus.subscribe(listener)
        return listener

    def lifespan(self, around: L) -> L:
        """Surround the life of every worker with ``around``."""
        if inspect.iscoroutinefunction(around) or not can_call_with(around, 1):
            message = (
                f"a lifespan is `async def name(app)` with one `yield`, or a function that returns "
                f"an async context manager; {_name(around)} is neither"
            )
            raise DefinitionError(message)
        generates = inspect.isasyncgenfunction(around)
        self._lifespans.append(asynccontextmanager(around) if generates else around)
        return around

    @property
    def has_lifespans(self) -> bool:
        """Whether the application has code around its workers."""
        return bool(self._lifespans)

    def current_tenant(self, function: H) -> H:
        """Call ``function`` for the tenant of every call."""
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

    def before_enqueue(self, hook: EnqueueHook) -> EnqueueHook:
        """Call ``def hook(call)`` with every call that your code enqueues, before it is stored.

        It returns ``call.with_options(…)`` to change the options, or None to leave the call as it
        is. An exception that it raises refuses the call. It runs where the call is enqueued, in its
        thread and with its context variables.
        """
        if inspect.iscoroutinefunction(hook) or not can_call_with(hook, 1):
            message = (
                f"a function before enqueue is `def name(call)`, which is not awaited and returns "
                f"a call or None; {_name(hook)} is not such a function"
            )
            raise DefinitionError(message)
        self.enqueue_hooks.append(hook)
        return hook

    def changed_call(self, call: Call[R]) -> Call[R]:
        """Return the call to enqueue instead of ``call``, after all functions have seen it."""
        for hook in self.enqueue_hooks:
            answer: object = hook(call)
            if isinstance(answer, Call):
                call = answer
            elif answer is not None:
                message = (
                    f"{_name(hook)} returned {shown(answer)}: return the call, one made with "
                    f"call.with_options(…), or None to leave it as it is"
                )
                raise InvalidArgument(message)
        return call

    @asynccontextmanager
    async def living(self) -> AsyncIterator[None]:
        """Stay inside every lifespan for as long as the block lasts."""
        async with AsyncExitStack() as stack:
            for make in self._lifespans:
                await stack.enter_async_context(make(self._app))
            yield


def _name(function: object) -> str:
    return source_of(function) if inspect.isfunction(function) else repr(function)
