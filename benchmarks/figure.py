"""One figure: what was measured, against what, and what it was meant to be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

__all__ = ["Figure", "Target", "Unit", "percentile"]

Unit = Literal["jobs/s", "ms", "µs", "MB", "% of a core", "% of plain", "deadlocks", "place"]


class Target(msgspec.Struct, frozen=True):
    """What a figure is meant to be. ``of``: the measured value, or its ratio to the yardstick."""

    bound: Literal["at least", "at most", "under"]
    value: float
    of: Literal["measured", "ratio"] = "measured"

    def met_by(self, value: float) -> bool:
        """Whether ``value`` is as it is meant to be."""
        match self.bound:
            case "at least":
                return value >= self.value
            case "at most":
                return value <= self.value
            case "under":
                return value < self.value


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A measured value. One without a target is there to explain its neighbours."""

    name: str
    title: str
    measured: float
    unit: Unit
    yardstick: float | None = None
    yardstick_name: str = ""
    target: Target | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """The measured value as a share of the yardstick."""
        return self.measured / self.yardstick if self.yardstick else None

    @property
    def met(self) -> bool | None:
        """None where nothing is asked."""
        if self.target is None:
            return None
        value = self.ratio if self.target.of == "ratio" else self.measured
        return value is not None and self.target.met_by(value)


def percentile(samples: Sequence[float], share: float) -> float:
    """Return the smallest sample that at least this share of them does not exceed."""
    ordered = sorted(samples)
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]
