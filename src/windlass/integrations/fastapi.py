"""FastAPI and Starlette: open the app with the server, and run a worker inside it if you want."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

from windlass._app.app import Windlass
from windlass.admin import Admin
from windlass.errors import ConfigError, MissingDependency

try:
    from starlette.requests import HTTPConnection
except ImportError as _missing:
    raise MissingDependency("windlass.integrations.fastapi", "starlette") from _missing

__all__ = ["Lifespan", "get_admin", "get_app", "lifespan"]

Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]
"""The type of ``FastAPI(lifespan=…)`` and ``Starlette(lifespan=…)``."""

_SLOT = "windlass"


def lifespan(
    app: Windlass,
    *,
    worker: bool = False,
    inner: Lifespan | None = None,
    queues: Sequence[str] | Mapping[str, int] | None = None,
    **settings: Any,
) -> Lifespan:
    """Open ``app`` with the server and close it with the server:
    ``FastAPI(lifespan=lifespan(app))``.

    - ``worker``: run jobs in the server's process too.
    - ``queues``, ``settings``: as for ``app.worker(…)``.
    - ``inner``: your own lifespan. It runs inside this one, so it can enqueue until its end.
      Requests see the state that it yields.
    """
    if not worker and (queues is not None or settings):
        given = ", ".join(sorted({*settings, *(["queues"] if queues is not None else [])}))
        message = f"{given}: these are options of a worker; give worker=True, or leave them out"
        raise ConfigError(message)

    @asynccontextmanager
    async def around(server: Any) -> AsyncIterator[dict[str, Any]]:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(app)
            if worker:
                await stack.enter_async_context(app.worker(queues=queues, **settings))
            setattr(server.state, _SLOT, app)
            stack.callback(delattr, server.state, _SLOT)
            seen = None if inner is None else await stack.enter_async_context(inner(server))
            yield {**(seen or {}), _SLOT: app}

    return around


def get_app(connection: HTTPConnection) -> Windlass:
    """Return the app of the server that answers this request, for ``Depends(get_app)``.

    You can also call it with a request.
    """
    # A mounted application has no separate state, but the server's state reaches every request.
    found = getattr(connection.state, _SLOT, None) or getattr(connection.app.state, _SLOT, None)
    if not isinstance(found, Windlass):
        message = (
            "this server has no open Windlass app: give it one with "
            "FastAPI(lifespan=lifespan(app)), and start the server before this call"
        )
        raise ConfigError(message)
    return found


def get_admin(connection: HTTPConnection) -> Admin:
    """Return ``app.admin`` of the server that answers this request, for ``Depends(get_admin)``."""
    return get_app(connection).admin
