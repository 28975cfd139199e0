"""Long chores in short transactions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

__all__ = ["BITE", "in_bites"]

BITE = 500


async def in_bites(bite: Callable[[int], Awaitable[int]]) -> int:
    """Go on until a bite comes back short: no single transaction holds the store for long."""
    total = 0
    while True:
        done = await bite(BITE)
        total += done
        if done < BITE:
            return total
