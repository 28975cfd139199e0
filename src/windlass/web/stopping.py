"""Whether the server that serves us has been told to stop."""

from __future__ import annotations

import signal

__all__ = ["server_stops"]


def server_stops() -> bool:
    """Whether uvicorn is about to leave.

    It tells no application so, and waits for every answer to end: a process with a page open
    somewhere would outlive its SIGTERM by minutes, and be killed before it could leave in order.
    But it is known who hears of that signal, and what became of it.
    """
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return getattr(server, "should_exit", False) is True
