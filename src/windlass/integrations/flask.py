"""Flask: connect an app to a Flask application, and run jobs inside its app context."""

from __future__ import annotations

import asyncio
import atexit
from typing import Any

from windlass._app.app import Windlass
from windlass._tasks.context import Context
from windlass._tasks.hooks import CallNext
from windlass.errors import BlockingCallOnLoop, ConfigError, MissingDependency

try:
    from flask import Flask, current_app
except ImportError as _missing:
    raise MissingDependency("windlass.integrations.flask", "flask") from _missing

__all__ = ["get_app", "init_app"]

_SLOT = "windlass"


def init_app(server: Flask, app: Windlass, *, context: bool = False) -> None:
    """Connect ``app`` to the Flask application ``server``. Views get it from ``get_app()``.

    It is closed when the program ends. ``context``: run jobs inside ``server.app_context()``, in
    workers that import the module of this call.
    """
    before = server.extensions.get(_SLOT)
    if before is app:
        return
    if before is not None:
        message = f"{server.name!r} has {before!r} already; one Flask application has one app"
        raise ConfigError(message)
    server.extensions[_SLOT] = app
    # Not with the first request's context: the opened storage is kept for later requests.
    atexit.register(app.blocking.close)
    if context:

        async def inside(_ctx: Context, call_next: CallNext) -> Any:
            with server.app_context():
                return await call_next()

        app.middleware(inside)


def get_app() -> Windlass:
    """Return the app of the current Flask application.

    Refused on an event loop: Flask's loop ends with its request, and each would open its own
    storage. Use ``enqueue_sync`` and ``app.blocking`` in views that block.
    """
    if _on_a_loop():
        raise BlockingCallOnLoop("windlass.integrations.flask.get_app()", "task.enqueue(...)")
    found = current_app.extensions.get(_SLOT)
    if not isinstance(found, Windlass):
        message = f"{current_app.name!r} has no Windlass app: call init_app(server, app) first"
        raise ConfigError(message)
    return found


def _on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
