"""Exceptions to a rule: named one by one, each with its reason, and only while they are needed."""

from __future__ import annotations

from collections.abc import Collection, Mapping


def check(violations: Mapping[str, str] | Collection[str], allowed: Mapping[str, str]) -> None:
    """Fail on what is not excused, and on an excuse that nothing needs any more."""
    unexcused = [
        f"{name}: {violations[name]}" if isinstance(violations, Mapping) else name
        for name in sorted(set(violations) - set(allowed))
    ]
    assert not unexcused, "\n".join(["not allowed:", *unexcused])

    stale = sorted(set(allowed) - set(violations))
    assert not stale, "\n".join(["no longer needed, remove the exception:", *stale])
