"""The kinds of limited jobs that are measured against plain ones."""

from __future__ import annotations

from collections.abc import Sequence

from windlass import Limit, Rate

__all__ = ["LIMITED", "LIMITS", "SLOTS", "TENANTS"]

SLOTS, TENANTS = 200, 1_000
LIMITS: dict[str, Sequence[Limit]] = {
    "plain": [],
    "shared": [Limit("pool", concurrency=SLOTS)],
    "tenants": [Limit("tenant", concurrency=2, key="{user}")],
    "rate": [Limit("meter", rate=Rate(1_000_000, per=1, burst=1_000_000))],
}
LIMITED = {
    "shared": "one shared concurrency limit",
    "tenants": f"{TENANTS:,} tenants, two jobs each",
    "rate": "a rate that never closes",
}
"""Titles of the limited kinds, for tables."""
