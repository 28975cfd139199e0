"""Redis URLs: one server, a unix socket, Sentinel or Cluster. Pure parsing."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import msgspec

from windlass.errors import ConfigError, suggestion

__all__ = ["SCHEMES", "RedisNode", "RedisTopology", "RedisUrl", "parse_url"]

_PORT = 6379
_SENTINEL_PORT = 26379


class RedisTopology(StrEnum):
    """How the server is found."""

    SERVER = "server"
    SOCKET = "socket"
    SENTINEL = "sentinel"
    CLUSTER = "cluster"


SCHEMES: Mapping[str, tuple[RedisTopology, bool]] = {
    "redis": (RedisTopology.SERVER, False),
    "rediss": (RedisTopology.SERVER, True),
    "unix": (RedisTopology.SOCKET, False),
    "redis+sentinel": (RedisTopology.SENTINEL, False),
    "rediss+sentinel": (RedisTopology.SENTINEL, True),
    "redis+cluster": (RedisTopology.CLUSTER, False),
    "rediss+cluster": (RedisTopology.CLUSTER, True),
}
"""Scheme → how the server is found, and whether by TLS."""

_EXAMPLES = {
    RedisTopology.SERVER: "redis://localhost:6379/0",
    RedisTopology.SOCKET: "unix:///run/valkey/valkey.sock?db=0",
    RedisTopology.SENTINEL: "redis+sentinel://host1:26379,host2:26379/mymaster/0",
    RedisTopology.CLUSTER: "redis+cluster://host1:6379,host2:6379",
}
_TLS_OPTIONS = frozenset(
    {"ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname"}
)
_SENTINEL_OPTIONS = frozenset({"sentinel_username", "sentinel_password"})


class RedisNode(msgspec.Struct, frozen=True):
    """One address."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class RedisUrl(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed URL. What is printed of it has no secrets."""

    place: RedisTopology
    nodes: tuple[RedisNode, ...] = ()
    """The server, or those to ask for it."""
    path: str = ""
    service: str = ""
    """The name of the primary in Sentinel."""
    database: int = 0
    tls: Mapping[str, str | bool] | None = None
    functions: bool = True
    """False: scripts are sent by EVAL, also to a server that could keep them as functions."""
    username: str | None = None
    password: str | None = None
    sentinel_username: str | None = None
    sentinel_password: str | None = None

    def __str__(self) -> str:
        where = self.path or ",".join(map(str, self.nodes))
        if self.service:
            where += f"/{self.service}"
        if self.database:
            where += f", database {self.database}"
        match self.place:
            case RedisTopology.SENTINEL:
                where = f"Sentinel {where}"
            case RedisTopology.CLUSTER:
                where = f"Cluster {where}"
        return f"{where} (TLS)" if self.tls is not None else where

    def __repr__(self) -> str:
        return f"<{self}>"


def parse_url(url: str) -> RedisUrl:
    """Parse a URL; a bad one is refused with an example, and without its password."""
    scheme, separator, _ = url.partition("://")
    if not separator or scheme not in SCHEMES:
        hint = suggestion(scheme, SCHEMES) if separator else ""
        raise ConfigError(
            f"This is no Redis URL: it does not begin with one of its schemes.{hint} Use for "
            f"example {_EXAMPLES[RedisTopology.SERVER]}; the schemes are {', '.join(SCHEMES)}."
        )
    place, tls = SCHEMES[scheme]
    reader = _UrlParser(place, url)
    options = reader.options(tls=tls)
    username, password = reader.credentials()
    service, database = reader.path()
    return RedisUrl(
        place=place,
        nodes=reader.nodes(),
        path=service if place is RedisTopology.SOCKET else "",
        service=service if place is RedisTopology.SENTINEL else "",
        database=reader.database(options.pop("db", "") or database),
        tls=_tls(options, reader) if tls else None,
        functions=reader.functions(options),
        username=username,
        password=password,
        sentinel_username=options.get("sentinel_username"),
        sentinel_password=options.get("sentinel_password"),
    )


class _UrlParser:
    """Takes one URL apart. No message shows any of it: a stray / or ? in a password puts parts of
    the password where a host, a path or an option is looked for.
    """

    def __init__(self, place: RedisTopology, url: str) -> None:
        self._place = place
        try:
            self._parts: SplitResult = urlsplit(url)
        except ValueError:
            raise self.wrong("the host in brackets is no IPv6 address") from None
        self._login, _, self._hosts = self._parts.netloc.rpartition("@")

    def wrong(self, why: str) -> ConfigError:
        return ConfigError(
            f"This Redis URL cannot be used: {why}. An example is {_EXAMPLES[self._place]}; "
            f"in user and password write @ as %40, / as %2F, : as %3A, ? as %3F and # as %23."
        )

    def options(self, *, tls: bool) -> dict[str, str]:
        if self._parts.fragment:
            raise self.wrong("it has a #")
        known = {"db", "functions"}
        if tls:
            known |= _TLS_OPTIONS
        if self._place is RedisTopology.SENTINEL:
            known |= _SENTINEL_OPTIONS
        options = dict(parse_qsl(self._parts.query, keep_blank_values=True))
        for name in options:
            if name not in known:
                listed = ", ".join(sorted(known))
                raise self.wrong(f"after the ? it has an unknown option; there are {listed}")
        return options

    def functions(self, options: Mapping[str, str]) -> bool:
        chosen = options.get("functions", "on")
        if chosen not in {"on", "off"}:
            raise self.wrong("functions is on or off")
        return chosen == "on"

    def credentials(self) -> tuple[str | None, str | None]:
        user, _, password = self._login.partition(":")
        if user and not password:
            raise self.wrong("there is one word before the @; a password alone is :password@")
        return unquote(user) or None, unquote(password) or None

    def nodes(self) -> tuple[RedisNode, ...]:
        if self._place is RedisTopology.SOCKET:
            if self._hosts:
                raise self.wrong("a socket's path begins with a third slash")
            return ()
        hosts = self._hosts.split(",")
        if len(hosts) > 1 and self._place is RedisTopology.SERVER:
            raise self.wrong("it names several servers; that needs redis+sentinel or redis+cluster")
        return tuple(self._node(host) for host in hosts)

    def _node(self, text: str) -> RedisNode:
        port = ""
        if text.startswith("["):
            host, _, rest = text[1:].partition("]")
            if rest and not rest.startswith(":"):
                raise self.wrong("there is something between ] and :port")
            port = rest[1:]
        else:
            host, _, port = text.partition(":")
        if not host:
            raise self.wrong("a host is missing")
        default = _SENTINEL_PORT if self._place is RedisTopology.SENTINEL else _PORT
        if not port:
            return RedisNode(host, default)
        if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            raise self.wrong("a port is no number from 1 to 65535")
        return RedisNode(host, int(port))

    def path(self) -> tuple[str, str]:
        """Return the socket or the service, and the database."""
        path = unquote(self._parts.path)
        if self._place is RedisTopology.SOCKET:
            if path in {"", "/"}:
                raise self.wrong("it names no socket")
            return path, ""
        names = [name for name in path.split("/") if name]
        if self._place is RedisTopology.SENTINEL:
            if not names:
                raise self.wrong("after the hosts the name of the service is missing")
            service, *names = names
        else:
            service = ""
        if len(names) > 1:
            raise self.wrong("it has too many slashes")
        return service, names[0] if names else ""

    def database(self, text: str) -> int:
        if not text:
            return 0
        if not (text.isascii() and text.isdigit()):
            raise self.wrong("after the last slash there is no database number")
        if int(text) and self._place is RedisTopology.CLUSTER:
            raise self.wrong("a cluster has only database 0")
        return int(text)


def _tls(options: Mapping[str, str], reader: _UrlParser) -> dict[str, str | bool]:
    """Return the options for TLS by the names that redis-py gives them."""
    chosen: dict[str, str | bool] = {k: v for k, v in options.items() if k in _TLS_OPTIONS}
    needs = chosen.get("ssl_cert_reqs", "required")
    if needs not in {"required", "optional", "none"}:
        raise reader.wrong("ssl_cert_reqs is required, optional or none")
    if "ssl_check_hostname" in chosen:
        if chosen["ssl_check_hostname"] not in {"true", "false"}:
            raise reader.wrong("ssl_check_hostname is true or false")
        chosen["ssl_check_hostname"] = chosen["ssl_check_hostname"] == "true"
    elif needs == "none":
        # Without a certificate to check there is no name to compare it with.
        chosen["ssl_check_hostname"] = False
    return chosen
