"""``memory://?max_jobs=1024&full=wait&max_ended=1000``: the bounds of a storage in memory."""

from __future__ import annotations

from typing import Literal, cast
from urllib.parse import parse_qsl, urlsplit

import msgspec

from windlass.errors import ConfigError, suggestion

__all__ = ["MemoryBounds", "memory_bounds"]

_OPTIONS = ("max_jobs", "full", "max_ended")


class MemoryBounds(msgspec.Struct, frozen=True, kw_only=True):
    """The number of jobs that a storage in memory holds. None: no bound."""

    max_jobs: int | None = None
    """Jobs that wait or run."""
    full: Literal["wait", "refuse"] = "wait"
    """The answer to an enqueue beyond ``max_jobs``."""
    max_ended: int | None = None
    """Jobs that have ended; the oldest are deleted first."""


def memory_bounds(url: str) -> MemoryBounds:
    """Read the options of a URL; ConfigError for one that is unknown or out of range."""
    given: dict[str, str] = {}
    for name, value in parse_qsl(urlsplit(url).query, keep_blank_values=True):
        if name not in _OPTIONS:
            near = suggestion(name, _OPTIONS)
            message = f"memory:// has no option {name!r}, there are {', '.join(_OPTIONS)}.{near}"
            raise ConfigError(message)
        if name in given:
            message = f"memory:// names the option {name} twice"
            raise ConfigError(message)
        given[name] = value
    full = given.get("full", "wait")
    if full not in ("wait", "refuse"):
        message = f"full of memory:// is wait or refuse, got {full!r}"
        raise ConfigError(message)
    if "full" in given and "max_jobs" not in given:
        message = "full of memory:// needs a bound: memory://?max_jobs=1024&full=refuse"
        raise ConfigError(message)
    return MemoryBounds(
        max_jobs=_number("max_jobs", given.get("max_jobs")),
        full=cast('Literal["wait", "refuse"]', full),
        max_ended=_number("max_ended", given.get("max_ended")),
    )


def _number(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        message = f"{name} of memory:// is a whole number from 1, got {text!r}"
        raise ConfigError(message)
    return int(text)
