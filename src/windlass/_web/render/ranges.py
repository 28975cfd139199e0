"""The time ranges that charts can show."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from windlass._web.request import PageRequest

__all__ = ["ChartRange", "chart_range"]

_RANGES = {
    "5m": (timedelta(minutes=5), "5 min", "the last 5 minutes"),
    "15m": (timedelta(minutes=15), "15 min", "the last 15 minutes"),
    "1h": (timedelta(hours=1), "1 h", "the last hour"),
    "6h": (timedelta(hours=6), "6 h", "the last 6 hours"),
    "24h": (timedelta(hours=24), "24 h", "the last 24 hours"),
    "7d": (timedelta(days=7), "7 days", "the last 7 days"),
    "30d": (timedelta(days=30), "30 days", "the last 30 days"),
}
_USUAL = "1h"


class ChartRange(msgspec.Struct, frozen=True):
    """The range that is shown, and links to the others."""

    span: timedelta
    words: str
    """Such as "the last hour"."""
    links: list[tuple[str, str, bool]]
    """Title, address, and whether it is the one that is shown."""


def chart_range(visit: PageRequest) -> ChartRange:
    """Return the range that the address asks for; an hour, if it asks for none that exists."""
    asked = visit.asked("range", _USUAL)
    chosen = asked if asked in _RANGES else _USUAL
    span, _, words = _RANGES[chosen]
    links = [
        (title, visit.changed(range=name, part=None), name == chosen)
        for name, (_, title, _) in _RANGES.items()
    ]
    return ChartRange(span, words, links)
