"""The files for TLS that a PostgreSQL URL, or the environment, names."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from windlass._storage.postgres.io.url import PostgresAddress
from windlass.errors import ConfigError

__all__ = ["check_files"]

_OFF = "disable"
_VERIFIED = {"require", "verify-ca", "verify-full"}
"""Of the modes of TLS, those in which the driver reads what the server is checked against."""


def check_files(address: PostgresAddress) -> PostgresAddress:
    """Refuse files for TLS that cannot be used: no server and no waiting cures that."""
    options = dict(parse_qsl(urlsplit(address.dsn).query))

    def given(name: str) -> str:
        return options.get(name) or os.environ.get(f"PG{name.upper()}", "")

    mode = given("sslmode") or "prefer"
    if mode == _OFF:
        return address
    for name in ("sslcert", "sslkey", "sslrootcert", "sslcrl"):
        authority = name in {"sslrootcert", "sslcrl"}
        path = given(name)
        if not path or (authority and mode not in _VERIFIED):
            continue
        try:
            Path(path).read_bytes()
            if authority:
                ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=path)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            where = "the PostgreSQL URL" if options.get(name) else "the environment"
            said = name if options.get(name) else f"PG{name.upper()}"
            raise ConfigError(
                f"The file that {said} names in {where} cannot be used: {why}. Name a PEM file "
                f"that this process can read."
            ) from None
    return address
