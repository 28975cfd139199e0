"""Lua files as scripts: one file per atomic operation, with the shared functions it names in front.

A file says in its first comments what the loader must know::

    -- use: jobs lanes          lua/shared/jobs.lua and lua/shared/lanes.lua go in front (each once,
                                and what they use in turn before them)
    -- reads only               nothing is written: no replica needs to confirm it
    -- unconfirmed              what is written need not be on a replica

Every script begins with ``lua/shared/start.lua``. It takes the first two arguments away: the epoch,
which must be the stored one, and the test instant. What follows finds in ``prefix`` what every key
starts with, in ``now`` the instant of the operation in microseconds, and in ``ARGV`` the arguments
that were given to `RedisDatabase.run`.

Keys are built in Lua from the prefix and from stored names (queues, lanes). They all carry the
prefix's hash tag: on Cluster they live in the slot of KEYS[1], and an ACL needs one pattern.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from functools import cache
from importlib import resources

import msgspec

__all__ = ["Script", "script"]

_PACKAGE = "windlass._storage.redis"
_USE = re.compile(r"^-- use:[ \t]*(.*)$", re.MULTILINE)
_READS_ONLY = re.compile(r"^-- reads only\b", re.MULTILINE)
_UNCONFIRMED = re.compile(r"^-- unconfirmed\b", re.MULTILINE)
_ENCLOSING = frozenset(("start", "jobs"))
"""After these parts, the rest of a script is wrapped in a function that is called at once. A script
makes all its functions anew at every call, and Lua finds the names they use faster in an enclosing
function than among locals of the same one: a short script takes a tenth less time. A function can
use 60 names of enclosing ones."""


class Script(msgspec.Struct, frozen=True):
    """One operation as the server gets it."""

    name: str
    text: str
    sha: str
    writes: bool
    confirmed: bool
    """Whether replicas must confirm it, where the storage asks for that."""


@cache
def script(name: str) -> Script:
    """``lua/<name>.lua`` with its shared parts. Bound at import: a missing file fails early."""
    body = _read(f"{name}.lua")
    parts: dict[str, str] = {}
    _gather("start", parts)
    for part in _used(body):
        _gather(part, parts)
    text = _nested([*parts.items(), ("", f"-- {name}\n{body}")])
    sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
    writes = _READS_ONLY.search(body) is None
    confirmed = writes and _UNCONFIRMED.search(body) is None
    return Script(name, text, sha, writes=writes, confirmed=confirmed)


def _nested(parts: Sequence[tuple[str, str]]) -> str:
    """Join the parts of a script, each in reach of those after it."""
    lines: list[str] = []
    ends = 0
    for name, text in parts:
        lines.append(text)
        if name in _ENCLOSING:
            lines.append("return (function()")
            ends += 1
    return "\n".join((*lines, "end)()" * ends))


def _gather(name: str, parts: dict[str, str]) -> None:
    """Put a shared part behind everything it uses."""
    if name in parts:
        return
    text = _read(f"shared/{name}.lua")
    for other in _used(text):
        _gather(other, parts)
    parts[name] = text


def _used(text: str) -> list[str]:
    return [name for line in _USE.findall(text) for name in line.split()]


def _read(path: str) -> str:
    return (resources.files(_PACKAGE) / "lua" / path).read_text(encoding="utf-8")
