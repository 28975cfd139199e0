"""Lua files as scripts: one file per atomic operation, with the shared functions it names in front.

A file says in its first comments what the loader must know::

    -- use: jobs lanes          lua/shared/jobs.lua and lua/shared/lanes.lua go in front (each once,
                                and what they use in turn before them)
    -- reads only               nothing is written: no replica needs to confirm it
    -- unconfirmed              what is written need not be on a replica
    -- runs when memory is full a server without memory takes its writes, too

What is above a line ``-- --- run ---`` is made once where the server keeps the code: functions and
constants. What a call finds out is set below that line.

Scripts reach the server in one of two forms. Servers with functions (Redis 7, Valkey) load all of
them once, as the functions of one `Library`. Other servers get each script as a text for EVAL,
which makes its shared functions anew at every call.

Both forms begin with ``lua/shared/start.lua``, whose ``begin`` takes the last two arguments away:
the epoch, which must be the stored one, and the test instant. A script finds in ``prefix`` what
every key starts with, in ``now`` the instant of the operation in microseconds, and in ``ARGV`` the
arguments that were given to `RedisDatabase.run`.

Keys are built in Lua from the prefix and from stored names (queues, lanes). They all carry the
prefix's hash tag: on Cluster they live in the slot of KEYS[1], and an ACL needs one pattern.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from functools import cache
from importlib import resources

import msgspec

__all__ = ["LIBRARY_PREFIX", "EvalForm", "Library", "Script", "eval_form", "library", "script"]

LIBRARY_PREFIX = "windlass_"
"""The start of the name of every library, and of every function."""

_LUA = resources.files("windlass._storage.redis") / "lua"
_USE = re.compile(r"^-- use:[ \t]*(.*)$", re.MULTILINE)
_READS_ONLY = re.compile(r"^-- reads only\b", re.MULTILINE)
_UNCONFIRMED = re.compile(r"^-- unconfirmed\b", re.MULTILINE)
_WHEN_FULL = re.compile(r"^-- runs when memory is full\b", re.MULTILINE)
_RUN = "-- --- run ---\n"
_ENCLOSING = frozenset(("start", "jobs"))
"""After these parts, the rest is wrapped in a function that is called at once. A Lua function has
room for 200 local names and can use 60 of enclosing ones: all parts together have more. By EVAL it
also saves a tenth of the time of a short script: Lua makes functions faster whose names are in an
enclosing function than among locals of the same one."""
_HASH = 16


class Script(msgspec.Struct, frozen=True):
    """One operation."""

    name: str
    body: str
    writes: bool
    confirmed: bool
    """Whether replicas must confirm it, where the storage asks for that."""
    when_full: bool
    """Whether a server without memory runs it."""


class EvalForm(msgspec.Struct, frozen=True):
    """A script as a text for EVAL, and its name for EVALSHA."""

    text: str
    sha: str


class Library(msgspec.Struct, frozen=True):
    """All scripts as functions, for FUNCTION LOAD.

    The name contains a hash of the content: processes of several versions share a server, and each
    loads its own library beside the others'.
    """

    name: str
    text: str

    def function_of(self, script: Script) -> str:
        """Name the function that runs ``script``: names of functions are unique on a server."""
        return f"{self.name}_{script.name}"


@cache
def script(name: str) -> Script:
    """``lua/<name>.lua``. Bound at import: a missing file fails early."""
    body = _read(f"{name}.lua")
    writes = _READS_ONLY.search(body) is None
    return Script(
        name,
        body,
        writes=writes,
        confirmed=writes and _UNCONFIRMED.search(body) is None,
        when_full=_WHEN_FULL.search(body) is not None,
    )


@cache
def eval_form(name: str) -> EvalForm:
    """Write the script ``lua/<name>.lua`` with its shared parts as a text for EVAL."""
    its = script(name)
    room = _read("shared/room.lua") if its.when_full else ""
    text = _nested(_parts([its]), f"return begin(KEYS, ARGV) or {_function(its, room)}(ARGV)")
    return EvalForm(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


@cache
def library() -> Library:
    """Write all scripts with their shared parts as one library."""
    names = sorted(file.name.removesuffix(".lua") for file in _LUA.iterdir() if file.is_file())
    scripts = [script(name) for name in names]
    registrations = (_registration(one) for one in scripts)
    end = "\n".join((_read("shared/library.lua"), *registrations))
    text = _nested(_parts(scripts), end)
    name = LIBRARY_PREFIX + hashlib.sha256(text.encode()).hexdigest()[:_HASH]
    return Library(name, f"#!lua name={name}\nlocal LIBRARY = '{name}'\n{text}")


def _registration(script: Script) -> str:
    flags = "'no-writes'" if not script.writes else "'allow-oom'" if script.when_full else ""
    return f"register(LIBRARY, '{script.name}', {{ {flags} }}, {_function(script)})"


def _function(script: Script, room: str = "") -> str:
    """Write a script as a Lua expression whose value is a function of ARGV."""
    above, line, below = script.body.rpartition(_RUN)
    run = f"function(ARGV)\n{room}{below}\nend"
    return f"(function() -- {script.name}\n{above}{line}return {run}\nend)()"


def _parts(scripts: Iterable[Script]) -> dict[str, str]:
    """Collect the shared parts that these scripts use, each behind everything it uses itself."""
    parts: dict[str, str] = {}
    _gather("start", parts)
    for one in scripts:
        for part in _used(one.body):
            _gather(part, parts)
    return parts


def _gather(name: str, parts: dict[str, str]) -> None:
    if name in parts:
        return
    text = _read(f"shared/{name}.lua")
    for other in _used(text):
        _gather(other, parts)
    parts[name] = text


def _used(text: str) -> list[str]:
    return [name for line in _USE.findall(text) for name in line.split()]


def _nested(parts: dict[str, str], end: str) -> str:
    """Join parts, each in reach of those after it, and ``end`` after all of them."""
    lines: list[str] = []
    ends = 0
    for name, text in parts.items():
        lines.append(text)
        if name in _ENCLOSING:
            lines.append("return (function()")
            ends += 1
    return "\n".join((*lines, end, "end)()" * ends))


def _read(path: str) -> str:
    return (_LUA / path).read_text(encoding="utf-8")
