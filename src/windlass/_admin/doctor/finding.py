"""The result of a check, and a fix for the operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from windlass._admin.explain.cause import plural

__all__ = ["Finding", "Level", "bad", "count_by_level", "format_bytes", "ok", "warn"]

Level = Literal["ok", "warn", "bad"]
"""``warn``: it works now and may fail later. ``bad``: jobs are lost, stuck or late, or will be."""


class Finding(msgspec.Struct, frozen=True):
    """The result of one check."""

    name: str
    """Never changes from release to release."""
    level: Level
    text: str
    fix: str = ""
    """The advice; empty for ``ok``."""


def ok(name: str, text: str) -> Finding:
    """Report that a check found no problem."""
    return Finding(name, "ok", text)


def warn(name: str, text: str, fix: str) -> Finding:
    """Report a risk: it works now, and may fail later."""
    return Finding(name, "warn", text, fix)


def bad(name: str, text: str, fix: str) -> Finding:
    """Report a problem: jobs are lost, stuck or late."""
    return Finding(name, "bad", text, fix)


def count_by_level(found: Sequence[Finding]) -> str:
    """Count findings by level: ``5 ok, 1 warning, 2 problems``."""
    words: dict[Level, str] = {"warn": "warning", "bad": "problem"}
    counts = {level: sum(one.level == level for one in found) for level in ("ok", *words)}
    parts = [plural(counts[level], word) for level, word in words.items()]
    return ", ".join([f"{counts['ok']:,} ok", *parts])


def format_bytes(size: float) -> str:
    """Format a size as people read it: 512 B, 1.5 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.1f}".removesuffix(".0") + f" {unit}"
        size /= 1024
    return f"{size:.1f}".removesuffix(".0") + " TiB"
