"""What a check found, in words for whoever has to do something about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

__all__ = ["Finding", "Level", "bad", "count_by_level", "format_bytes", "ok", "warn"]

Level = Literal["ok", "warn", "bad"]
"""``warn``: it works and will hurt. ``bad``: jobs are lost, stuck or late now or soon."""


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at."""

    name: str
    """Stays as it is from release to release."""
    level: Level
    text: str
    fix: str = ""
    """What to do about it; nothing, where it is in order."""


def ok(name: str, text: str) -> Finding:
    """In order."""
    return Finding(name, "ok", text)


def warn(name: str, text: str, fix: str) -> Finding:
    """It works, and will hurt."""
    return Finding(name, "warn", text, fix)


def bad(name: str, text: str, fix: str) -> Finding:
    """Jobs are lost, stuck or late."""
    return Finding(name, "bad", text, fix)


def count_by_level(found: Sequence[Finding]) -> str:
    """Count findings by level: ``5 in order, 1 to look at, 2 bad``."""
    words: dict[Level, str] = {"ok": "in order", "warn": "to look at", "bad": "bad"}
    counts = {level: sum(one.level == level for one in found) for level in words}
    return ", ".join(f"{counts[level]:,} {word}" for level, word in words.items())


def format_bytes(size: float) -> str:
    """A size as people read it: 512 B, 1.5 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.1f}".removesuffix(".0") + f" {unit}"
        size /= 1024
    return f"{size:.1f}".removesuffix(".0") + " TiB"
