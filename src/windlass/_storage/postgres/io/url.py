"""Parts of a PostgreSQL URL, and its visible form: never the password."""

from __future__ import annotations

from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import msgspec

from windlass.errors import ConfigError

__all__ = ["PostgresAddress", "PostgresHost", "parse_url"]

_TRUE, _FALSE = {"true", "1", "on", "yes"}, {"false", "0", "off", "no"}
_UNUSED = {
    *("keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count"),
    *("channel_binding", "fallback_application_name", "gssdelegation", "gssencmode"),
    *("load_balance_hosts", "max_protocol_version", "min_protocol_version", "sslcertmode"),
    *("sslcompression", "sslsni"),
}
"""Options of libpq that change nothing here. Passed on, the server would refuse them."""
_DEMANDS = {
    ("channel_binding", "require"),
    ("gssencmode", "require"),
    ("sslcertmode", "require"),
}
"""Of these, the ones that the driver cannot keep. They are refused: no connection is to be less
safe than the URL demands.
"""
_USE = "Use for example postgresql://user:password@host:5432/database"


class PostgresHost(msgspec.Struct, frozen=True):
    """One server of the URL."""

    name: str
    port: int


class PostgresAddress(msgspec.Struct, frozen=True):
    """Where the database is. ``dsn`` holds the password: it is for the driver only."""

    dsn: str
    shown: str
    hosts: tuple[PostgresHost, ...]
    """More than one: tried in turn until one takes writes. None: the driver's own defaults."""
    pooled: bool | None
    """Whether a pooler is between; None: to be found out."""
    connect_seconds: float | None
    named: bool
    """Whether the URL names the connections."""

    def __repr__(self) -> str:
        return f"Address({self.shown})"


def parse_url(url: str) -> PostgresAddress:
    """Read a URL, or say what is wrong with it without repeating it: it may hold a password."""
    try:
        parts = urlsplit(url)
        pairs = parse_qsl(parts.query, strict_parsing=bool(parts.query), keep_blank_values=True)
    except ValueError:
        raise ConfigError(f"The PostgreSQL URL cannot be read. {_USE}") from None
    if parts.scheme not in {"postgresql", "postgres"} or parts.fragment:
        raise ConfigError(
            f"The PostgreSQL URL has a wrong scheme or a '#' in it. {_USE}; special characters "
            f"in the password are written in percent form, for example %23 for #."
        )
    options = dict(pairs)
    pooled = _pooled(options)
    connect_seconds = _seconds(options.pop("connect_timeout", None))
    hosts = () if "host" in options else _hosts(parts.netloc)
    for name, value in _DEMANDS & options.items():
        raise ConfigError(
            f"{name}={value} in the PostgreSQL URL is more than the driver, asyncpg, can promise. "
            f"Leave it out; sslmode=verify-full makes sure who the server is."
        )
    for name in _UNUSED & options.keys():
        del options[name]
    return PostgresAddress(
        dsn=urlunsplit(parts._replace(query=urlencode(options))),
        shown=_shown(hosts, options, unquote(parts.path.lstrip("/"))),
        hosts=hosts,
        pooled=pooled,
        connect_seconds=connect_seconds,
        named="application_name" in options,
    )


def _pooled(options: dict[str, str]) -> bool | None:
    """``pgbouncer=true`` and ``statement_cache_size=0`` are what users of other libraries write."""
    said = options.pop("pgbouncer", None)
    cache = options.pop("statement_cache_size", None)
    if said is not None:
        if said.lower() not in _TRUE | _FALSE:
            raise ConfigError(f"pgbouncer in the PostgreSQL URL is true or false, got {said!r}.")
        return said.lower() in _TRUE
    return True if cache == "0" else None


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1
    if seconds < 0:
        raise ConfigError(f"connect_timeout in the PostgreSQL URL is in seconds, got {text!r}.")
    return seconds or None


def _hosts(netloc: str) -> tuple[PostgresHost, ...]:
    """Return the hosts of ``user:password@a:5432,b:5433``; a socket's folder is percent-encoded."""
    spec = netloc.rpartition("@")[2]
    if netloc.count("@") > 1:
        raise ConfigError(
            f"The PostgreSQL URL has more than one '@'. In a password it is written %40. {_USE}"
        )
    if not spec:
        return ()
    return tuple(_host(part) for part in spec.split(","))


def _host(text: str) -> PostgresHost:
    if text.startswith("["):
        name, _, port = text[1:].partition("]")
        port = port.removeprefix(":")
    else:
        name, _, port = text.partition(":")
    if port and not port.isdecimal():
        raise ConfigError(f"A port in the PostgreSQL URL is no number. {_USE}")
    return PostgresHost(unquote(name) or "localhost", int(port or 5432))


def _shown(hosts: tuple[PostgresHost, ...], options: dict[str, str], database: str) -> str:
    where = ",".join(f"{host.name}:{host.port}" for host in hosts) or options.get("host", "")
    name = database or options.get("dbname") or options.get("database") or ""
    return f"{where or 'the default host'}/{name}"
