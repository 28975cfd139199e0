"""Just enough of both protocols to tell requests apart and to see when one is answered."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Protocol

import hiredis

_NO_PROTOCOL = {80877103: "ssl", 80877104: "gss", 80877102: "cancel"}
"""What a PostgreSQL client may say in place of its startup."""


class Wire(Protocol):
    """One connection, as somebody in the middle hears it."""

    def asked(self, heard: bytes) -> Sequence[str]:
        """The requests that are complete now, each of which will get one answer."""
        ...

    def answered(self, heard: bytes) -> int:
        """How many requests have been answered completely by this."""
        ...


class RedisWire:
    """Every command is a request, every reply an answer. A request's text is its first words."""

    def __init__(self) -> None:
        # Commands are written as replies are: arrays of strings.
        self._requests = hiredis.Reader()
        self._replies = hiredis.Reader()

    def asked(self, heard: bytes) -> Sequence[str]:
        self._requests.feed(heard)
        found = []
        while (command := self._requests.gets()) is not False:
            found.append(b" ".join(command[:2]).decode("latin-1").upper())
        return found

    def answered(self, heard: bytes) -> int:
        self._replies.feed(heard)
        count = 0
        while self._replies.gets() is not False:
            count += 1
        return count


class PostgresWire:
    """A request ends with Sync or is a simple query; "ready for query" answers it.

    The server says that only after the commit, so an answer that was heard was executed. A
    request's text is the SQL it executes, and empty if it only prepares something.
    """

    def __init__(self) -> None:
        self._started = False
        self._requests = b""
        self._replies = b""
        self._single_bytes = 0
        self._statements: dict[bytes, str] = {}
        self._bound = ""
        self._executed = ""

    def asked(self, heard: bytes) -> Sequence[str]:
        self._requests += heard
        found: list[str] = []
        while True:
            text = self._next() if self._started else self._first()
            if text is None:
                return found
            if text is not _PART:
                found.append(text)

    def _first(self) -> str | None:
        if len(self._requests) < 8:
            return None
        length, code = struct.unpack("!II", self._requests[:8])
        if len(self._requests) < length:
            return None
        self._requests = self._requests[length:]
        if code in _NO_PROTOCOL:
            self._single_bytes += 1
            return _PART
        self._started = True
        return "startup"

    def _next(self) -> str | None:
        if len(self._requests) < 5:
            return None
        kind, length = struct.unpack("!cI", self._requests[:5])
        if len(self._requests) < 1 + length:
            return None
        body = self._requests[5 : 1 + length]
        self._requests = self._requests[1 + length :]
        match kind:
            case b"P":
                name, sql, _ = body.split(b"\0", 2)
                self._statements[name] = sql.decode()
            case b"B":
                _, name, _ = body.split(b"\0", 2)
                self._bound = self._statements.get(name, "")
            case b"E":
                self._executed = self._bound
            case b"Q":
                return body.rstrip(b"\0").decode()
            case b"S":
                text, self._executed = self._executed, ""
                return text
            case _:
                pass
        return _PART

    def answered(self, heard: bytes) -> int:
        self._replies += heard
        count = 0
        if self._single_bytes and self._replies:
            self._single_bytes -= 1
            self._replies = self._replies[1:]
        while len(self._replies) >= 5:
            kind, length = struct.unpack("!cI", self._replies[:5])
            if len(self._replies) < 1 + length:
                break
            self._replies = self._replies[1 + length :]
            count += kind == b"Z"
        return count


_PART = "\0"
"""A message that is no whole request."""
