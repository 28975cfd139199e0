"""Names, roles and hashed secrets from the settings: nothing here can give a secret back.

A line is ``NAME:ROLE:HASH``. The hash is ``scrypt.…`` of a password, which people choose and others
can guess, or ``sha256.…`` of a generated token, which cannot be guessed. Neither holds a character
that a shell, a TOML file or an environment variable would change.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
from collections.abc import Iterable

import msgspec
from starlette.concurrency import run_in_threadpool

from windlass._system.seams import new_secret
from windlass._web.security.roles import Person, Role, parse_role
from windlass.errors import ConfigError

__all__ = ["Credential", "Credentials", "password_line", "read_line", "token_line"]

_MAKE = "make one with `windlass dashboard --new-user NAME` or `--new-token NAME`"
_NAME = re.compile(r"[^\s:,]{1,64}")
_SCRYPT = re.compile(r"scrypt\.(1[4-9]|20)\.[0-9a-f]{32,128}\.[0-9a-f]{64}")
_SHA256 = re.compile(r"sha256\.[0-9a-f]{64}")
_COST = 15
"""32 MiB and some 80 ms for each guess."""
_ROOM = (1 << 31) - 1
_AT_ONCE = 2
"""Passwords that are checked at the same time: each takes memory and a thread of the host's."""
_LONGEST = 1024
"""Characters of a secret that are read: a long one must not cost time."""


class Credential(msgspec.Struct, frozen=True):
    """One line of the settings, checked."""

    person: Person
    hashed: str

    @property
    def is_token(self) -> bool:
        """Whether its secret is a token of ours."""
        return self.hashed.startswith("sha256.")


def read_line(line: str) -> Credential:
    """``NAME:ROLE:HASH``; ConfigError says what is wrong without repeating what may be secret."""
    name, _, rest = line.strip().partition(":")
    role, _, hashed = rest.partition(":")
    if not _NAME.fullmatch(name) or not role or not hashed:
        message = f"dashboard_auth takes lines of NAME:ROLE:HASH; {_MAKE}"
        raise ConfigError(message)
    if not _SCRYPT.fullmatch(hashed) and not _SHA256.fullmatch(hashed):
        message = f"dashboard_auth: the text after {name}:{role}: is not a valid hash; {_MAKE}"
        raise ConfigError(message)
    return Credential(Person(name, parse_role(role)), hashed)


def password_line(name: str, role: Role, password: str) -> str:
    """Return the line of the settings for a person with a password."""
    salt = hashlib.sha256(new_secret().encode()).hexdigest()[:32]
    return f"{_checked(name)}:{role}:scrypt.{_COST}.{salt}.{_scrypt(password, salt, _COST)}"


def token_line(name: str, role: Role, token: str) -> str:
    """Return the line of the settings for a machine with a token made by `new_secret`."""
    return f"{_checked(name)}:{role}:{_sha256(token)}"


class Credentials:
    """Everybody the settings let in."""

    def __init__(self, lines: Iterable[str]) -> None:
        """Read the lines. A name that occurs twice is refused: it would be unclear which of the two
        holds.
        """
        known = [read_line(line) for line in lines]
        self._known = {one.person.name: one for one in known}
        if len(self._known) < len(known):
            message = "dashboard_auth has a name twice: keep one line for each name"
            raise ConfigError(message)
        self._has_passwords = any(not one.is_token for one in known)
        self._checking = asyncio.Semaphore(_AT_ONCE)

    def __bool__(self) -> bool:
        return bool(self._known)

    async def check(self, name: str, secret: str) -> Person | None:
        """Return the person with this name and secret. If any user has a password, every answer
        takes as long as a password check, so that time does not tell which names exist.
        """
        known = self._known.get(name)
        fits = False
        if self._has_passwords:
            one = _NOBODY if known is None or known.is_token else known
            _, cost, salt, key = one.hashed.split(".")
            async with self._checking:
                # On another thread: a server that hosts this page has other requests to answer.
                found = await run_in_threadpool(_scrypt, secret, salt, int(cost))
            fits = hmac.compare_digest(found, key)
        if known is not None and known.is_token:
            fits = hmac.compare_digest(_sha256(secret), known.hashed)
        return known.person if fits and known is not None else None

    def bearer(self, token: str) -> Person | None:
        """Return the owner of this token. Every token is compared, so that time tells nothing."""
        hashed = _sha256(token)
        found = None
        for one in self._known.values():
            if one.is_token and hmac.compare_digest(hashed, one.hashed):
                found = one.person
        return found


_NOBODY = Credential(Person("nobody", Role.VIEWER), f"scrypt.{_COST}.{'0' * 32}.{'0' * 64}")
"""Compared with for a name that has no password, so that a guess takes as long as for one."""


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        message = f"a name is 1 to 64 characters without spaces, commas and colons, got {name!r}"
        raise ConfigError(message)
    return name


def _secret_bytes(secret: str) -> bytes:
    return secret[:_LONGEST].encode(errors="replace")


def _sha256(secret: str) -> str:
    return f"sha256.{hashlib.sha256(_secret_bytes(secret)).hexdigest()}"


def _scrypt(password: str, salt: str, cost: int) -> str:
    key = hashlib.scrypt(
        _secret_bytes(password),
        salt=bytes.fromhex(salt),
        n=1 << cost,
        r=8,
        p=1,
        maxmem=_ROOM,
        dklen=32,
    )
    return key.hex()
