"""Why workers end."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["StopReason"]


class StopReason(StrEnum):
    """Why a worker ended."""

    ASKED = "asked"
    ORDERED = "ordered"
    """Somebody ordered it through the store: ``windlass workers stop``, the dashboard."""
    EMPTY = "empty"
    WORN_OUT = "worn out"
    STORAGE_LOST = "storage lost"
    OUTDATED = "outdated"
    """A newer Windlass has changed the store. What ran could end."""
