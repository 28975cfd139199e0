"""uvicorn as the dashboard wants it: strict with requests, quiet, and quick to stop."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from windlass._web.app import Dashboard

__all__ = ["DashboardServer"]

_LARGEST_HEAD = 16 * 1024
_GRACE = 3
HEAD_WITHIN = 10.0
"""Seconds for the head of a request. A client that sends it slowly occupies a connection that
others need. The dashboard has its own bounds for the rest of a request.
"""
_UNREAD_LOOKS = 6
"""Half a minute: a client that reads nothing of its answer for so long is gone."""
_BACKLOG = 128
"""Connections that the event loop accepts in one go."""
CONNECTIONS = 4 * _BACKLOG
"""Connections at once. Enough for streams, pages and waiting clients."""


class _IdleTimeout(H11Protocol):
    """Closes connections by which no request comes."""

    _looks: asyncio.TimerHandle | None = None
    _owed = False
    """Whether a head was on its way at the last look already."""
    _unread = 0
    """Looks since the client last read some of its answer, while more waits to be read."""
    since = 0.0
    """When the connection, or the answer before, was made: seconds of the loop."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.since = self.loop.time()
        if len(self.connections) > CONNECTIONS:
            self._make_room()
        self._look_later()

    def _make_room(self) -> None:
        """Close the connection that has waited longest for the rest of a request, or else for its
        client to read an answer. Not the newest: clients that send half a request each, or read
        half an answer, would keep all others out.
        """
        others = self.connections - {self}
        known = [one for one in others if isinstance(one, _IdleTimeout)]
        waiting = [one for one in known if one.waits_for_request()]
        waiting = waiting or [one for one in known if one.flow.write_paused]
        oldest = min(waiting, key=lambda one: one.since, default=self)
        self.connections.discard(oldest)
        oldest.transport.abort()

    def waits_for_request(self) -> bool:
        """Return whether the client has to send something before there is anything to answer."""
        cycle: Any = self.cycle  # None before the first request
        return cycle is None or cycle.response_complete or cycle.more_body

    def on_response_complete(self) -> None:
        self.since = self.loop.time()
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY:
            self.transport.close()  # answered without reading all of it: no more is taken in

    def connection_lost(self, exc: Exception | None) -> None:
        if self._looks is not None:
            self._looks.cancel()
        super().connection_lost(exc)

    def _look_later(self) -> None:
        self._looks = self.loop.call_later(HEAD_WITHIN / 2, self._look)

    def resume_writing(self) -> None:
        self._unread = 0
        super().resume_writing()

    def _look(self) -> None:
        self._unread = self._unread + 1 if self.flow.write_paused else 0
        if self._unread > _UNREAD_LOOKS:
            self.transport.abort()  # closing would wait for what is not read
            return
        cycle: Any = self.cycle  # None before the first request
        if cycle is None:
            owes = True
        else:  # between two requests, letters that are not a whole head yet
            owes = cycle.response_complete and bool(self.conn.trailing_data[0])
        if owes and self._owed:
            self.transport.close()
            return
        self._owed = owes
        self._look_later()


class DashboardServer(uvicorn.Server):
    """Serves one dashboard until SIGINT or SIGTERM."""

    def __init__(self, dashboard: Dashboard, *, root_path: str, proxies: Sequence[str]) -> None:
        """``proxies``: whose forwarded headers are believed; none by default."""
        super().__init__(
            uvicorn.Config(
                dashboard.asgi(),
                root_path=root_path,
                lifespan="off",
                log_config=None,
                access_log=False,  # addresses of pages may hold a login link
                server_header=False,
                proxy_headers=bool(proxies),
                forwarded_allow_ips=list(proxies) or None,
                h11_max_incomplete_event_size=_LARGEST_HEAD,
                ws="none",
                http=_IdleTimeout,  # h11 refuses what is not quite HTTP; the faster one guesses
                backlog=_BACKLOG,
                timeout_graceful_shutdown=_GRACE,
            )
        )
        self._dashboard = dashboard

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Streams would stay open for as long as the pages do."""
        self._dashboard.live.close()
        await super().shutdown(sockets=sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture signals as uvicorn does, without raising the signal again at the end: the storage
        is closed after this, in order.
        """
        before = {
            number: signal.signal(number, self.handle_exit)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
