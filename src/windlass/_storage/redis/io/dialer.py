"""Where the server is: finding it, connecting to it, and saying once when it is away."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakSet

import hiredis
from redis import connection as blocking
from redis.asyncio.connection import (
    AbstractConnection,
    Connection,
    SSLConnection,
    UnixDomainSocketConnection,
)
from redis.crc import key_slot
from redis.exceptions import RedisError, ResponseError

from windlass._storage.redis.io.errors import WrongScheme, outage_text
from windlass._storage.redis.io.url import RedisNode, RedisTopology, RedisUrl
from windlass._system.seams import monotonic
from windlass.errors import ConfigError, StorageUnavailable

__all__ = [
    "CONNECTION_ERRORS",
    "Argument",
    "BlockingConnection",
    "Dialer",
    "check_files",
    "disconnect",
    "pack_command",
]

log = logging.getLogger("windlass")

Argument = bytes | str | int

_ANSWER = 10.0
"""Seconds after which a connection without an answer counts as lost."""
_ANSWER_HERE = 5.0
"""The same for a blocking call, which is then made again on a background loop."""
_CONNECT = 3.0
_FILES = {"ssl_ca_certs", "ssl_certfile", "ssl_keyfile"}

_FAILURES = (RedisError, OSError, TimeoutError)
CONNECTION_ERRORS = (*_FAILURES, RuntimeError)
"""Errors of a connection that is gone; uvloop raises RuntimeError."""


def pack_command(command: Sequence[Argument]) -> bytes:
    """Return a command as the server reads it. hiredis wants a tuple, and says "of one" in its
    types.
    """
    whole: bytes = hiredis.pack_command(tuple(command))  # type: ignore[arg-type]
    return whole


class BlockingConnection(Protocol):
    """A connection of redis-py that blocks, whose own types say nothing."""

    def connect(self) -> None: ...

    def send_packed_command(self, command: list[bytes], *, check_health: bool) -> None: ...

    def read_response(self) -> Any: ...

    def disconnect(self) -> None: ...


class Dialer:
    """Finds the server that takes writes, and connects to it."""

    def __init__(self, url: RedisUrl, prefix: str) -> None:
        self._url, self._prefix = url, prefix
        self.place: str = str(url)
        self._turn = 0
        self._node = url.nodes[0] if url.place is RedisTopology.SERVER else None
        self._reached = False
        self._lost_to: WeakSet[object] = WeakSet()
        self._down_since: float | None = None

    async def connect(self, *, answer: float = _ANSWER) -> AbstractConnection:
        """Open a connection that is ready for commands; raises what redis-py raises."""
        connection = await self._find(answer)
        try:
            await _connect(connection)
        except BaseException:  # also a cancellation: no socket may stay open unused
            await disconnect(connection)
            raise
        return connection

    def connect_here(self) -> BlockingConnection | None:
        """Open a connection that blocks, to the server that was found last; None: none was."""
        kind: Any = blocking.Connection
        settings = self._settings(_ANSWER_HERE)
        if self._url.place is RedisTopology.SOCKET:
            kind, settings["path"] = blocking.UnixDomainSocketConnection, self._url.path
        elif self._node is None:
            return None
        else:
            settings |= _reaching(self._node)
        if self._url.tls is not None:
            kind = blocking.SSLConnection
            settings |= self._url.tls
        connection: BlockingConnection = kind(**settings)
        try:
            connection.connect()
        except BaseException:
            connection.disconnect()
            raise
        return connection

    # --- an outage is said once ---------------------------------------------------------------

    @property
    def is_away(self) -> bool:
        """Whether a connection was lost, and no answer came since."""
        return self._down_since is not None

    def note_lost(self, who: object, error: BaseException) -> None:
        """``who`` cannot reach the server. Said once per outage, however many find out."""
        if who in self._lost_to:
            return
        self._lost_to.add(who)
        if self._reached and self._down_since is None:
            self._down_since = monotonic()
            log.warning("%s", outage_text(error, self.place))

    def note_reached(self, who: object) -> None:
        """``who`` got an answer."""
        self._reached = True
        self._lost_to.discard(who)
        since, self._down_since = self._down_since, None
        if since is not None:
            log.warning("Redis at %s is back after %.1f s.", self.place, monotonic() - since)

    async def _find(self, answer: float) -> AbstractConnection:
        url = self._url
        match url.place:
            case RedisTopology.SOCKET:
                return UnixDomainSocketConnection(path=url.path, **self._settings(answer))
            case RedisTopology.SERVER:
                return self._to(url.nodes[0], **self._settings(answer))
            case RedisTopology.SENTINEL:
                self._node = await self._ask(self._primary)
                return self._to(self._node, **self._settings(answer))
            case RedisTopology.CLUSTER:
                self._node = await self._ask(self._owner)
                return self._to(self._node, **self._settings(answer))

    def _settings(self, answer: float) -> dict[str, Any]:
        url = self._url
        return {
            "username": url.username,
            "password": url.password,
            "db": url.database,
            "socket_timeout": answer,
            "socket_connect_timeout": _CONNECT,
            "protocol": 2,
        }

    def _to(self, node: RedisNode, **settings: Any) -> AbstractConnection:
        settings |= _reaching(node)
        if self._url.tls is None:
            return Connection(**settings)
        return SSLConnection(**(settings | dict(self._url.tls)))

    # --- whom to ask --------------------------------------------------------------------------

    async def _ask(self, question: Any) -> RedisNode:
        """Return the first answer of a Sentinel that knows; raise the last error if none does.

        Each call asks another Sentinel first: one that was cut off from the others still names a
        former primary.
        """
        trouble: Exception = StorageUnavailable(f"{self.place} names no server")
        nodes = self._url.nodes
        for _ in nodes:
            node = nodes[self._turn % len(nodes)]
            self._turn += 1
            try:
                found: RedisNode = await question(node)
            except _FAILURES as error:
                trouble = error
            else:
                return found
        raise trouble

    async def _primary(self, sentinel: RedisNode) -> RedisNode:
        settings = self._settings(_CONNECT) | {
            "username": self._url.sentinel_username,
            "password": self._url.sentinel_password,
            "db": 0,
        }
        ask = ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._url.service)
        try:
            found = await self._question(self._to(sentinel, **settings), ask)
        except ResponseError as error:
            if "unknown command" not in str(error).lower():
                raise
            message = f"{sentinel} is a server, not a Sentinel: use redis://, or its Sentinels"
            raise WrongScheme(message) from None
        if found is None:
            raise ConnectionError(f"{sentinel} knows no service {self._url.service!r}")
        return RedisNode(found[0].decode(), int(found[1]))

    async def _owner(self, node: RedisNode) -> RedisNode:
        """Return the node that serves the slot of all our keys."""
        ask = ("CLUSTER", "SLOTS")
        try:
            ranges = await self._question(self._to(node, **self._settings(_CONNECT)), ask)
        except ResponseError as error:
            if "cluster support disabled" not in str(error):
                raise
            raise WrongScheme(f"{node} is in no cluster: use redis://") from None
        slot = key_slot(self._prefix.encode())
        for first, last, primary, *_ in ranges:
            if first <= slot <= last:
                # An empty host means: the one you asked.
                return RedisNode(primary[0].decode() or node.host, primary[1])
        raise ConnectionError(f"{node} says that no node serves slot {slot}")

    async def _question(self, connection: AbstractConnection, command: Sequence[str]) -> Any:
        try:
            await _connect(connection)
            await connection.send_packed_command(pack_command(command))
            return await connection.read_response()
        finally:
            await disconnect(connection)


def _reaching(node: RedisNode) -> dict[str, Any]:
    """Return the settings of a connection to ``node``."""
    # Five probes of two seconds after ten quiet ones: a peer that vanished is noticed in twenty,
    # also on a connection that only waits.
    options = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 5}
    return {
        "host": node.host,
        "port": node.port,
        "socket_keepalive": True,
        "socket_keepalive_options": {
            getattr(socket, name): value for name, value in options.items() if hasattr(socket, name)
        },
    }


async def _connect(connection: AbstractConnection) -> None:
    await connection.connect()  # type: ignore[no-untyped-call]


async def disconnect(connection: AbstractConnection) -> None:
    """Close a connection that may already be broken, or whose event loop has ended."""
    writer = connection._writer  # noqa: SLF001 -- after the call it is gone
    try:
        await connection.disconnect(nowait=True)
    except _FAILURES:
        pass
    except RuntimeError:
        if writer is not None:
            _abandon(writer.transport)


def _abandon(transport: asyncio.BaseTransport) -> None:
    """Close the socket of a transport whose loop is closed, which cannot do it any more."""
    sock = getattr(transport.get_extra_info("socket"), "_sock", None)
    if sock is not None:
        sock.close()
    if getattr(transport, "_sock", None) is sock:
        transport._sock = None  # type: ignore[attr-defined]  # noqa: SLF001 -- or it complains


def check_files(url: RedisUrl) -> RedisUrl:
    """Refuse files for TLS that cannot be read: no server and no waiting cures that."""
    for name, value in (url.tls or {}).items():
        if name not in _FILES:
            continue
        path = str(value)
        try:
            Path(path).read_bytes()
            if name == "ssl_ca_certs":
                ssl.create_default_context(cafile=path)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise ConfigError(
                f"The file that {name} names in the Redis URL cannot be used: {why}. Name a PEM "
                f"file that this process can read."
            ) from None
    return url
