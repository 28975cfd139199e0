"""uvicorn as the dashboard wants it: strict with requests, quiet, and quick to stop."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import uvicorn

from windlass.web.dashboard import Dashboard

__all__ = ["Server"]

_LARGEST_HEAD = 16 * 1024
_GRACE = 3


class Server(uvicorn.Server):
    """Serves one dashboard until SIGINT or SIGTERM."""

    def __init__(self, dashboard: Dashboard, *, root_path: str, proxies: Sequence[str]) -> None:
        """``proxies``: whose forwarded headers are believed; none by default."""
        super().__init__(
            uvicorn.Config(
                dashboard.asgi(),
                root_path=root_path,
                lifespan="off",
                log_config=None,
                access_log=False,  # addresses of pages may hold the link that lets somebody in
                server_header=False,
                proxy_headers=bool(proxies),
                forwarded_allow_ips=list(proxies) or None,
                h11_max_incomplete_event_size=_LARGEST_HEAD,
                http="h11",  # it refuses what is not quite HTTP, where the faster one guesses
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
        """As uvicorn's own, without raising the signal again when all is done: the storage is
        closed after this, in order.
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
