"""Names as labels of metrics: what came after the last one there was room for is one name."""

from __future__ import annotations

__all__ = ["OTHER", "QUEUES", "TASKS", "LabelNames"]

OTHER = "other"
TASKS, QUEUES = 200, 50
_LONGEST = 200
"""Characters of a name."""


class LabelNames:
    """The first names up to a limit, and one name for all others."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: set[str] = set()

    def __call__(self, name: str) -> str:
        """Return the label of ``name``."""
        if name in self._kept:
            return name
        # A text that cannot be encoded would fail every scrape from here on.
        name = name[:_LONGEST].encode("utf-8", "replace").decode()
        if name not in self._kept and len(self._kept) >= self._most:
            return OTHER
        self._kept.add(name)
        return name
