"""How much of everything is measured. Every step ends after some seconds, done or not."""

from __future__ import annotations

import msgspec

__all__ = ["FULL", "QUICK", "TINY", "PeerSizes"]


class PeerSizes(msgspec.Struct, frozen=True, kw_only=True):
    """The number of jobs, rounds and seconds of a run."""

    name: str
    rounds: int
    singles: int
    jobs: int
    naps: int
    latencies: int
    seconds: float
    """The longest that one step may take: a step that is cut off counts with what it did."""


FULL = PeerSizes(
    name="full", rounds=3, singles=2_000, jobs=40_000, naps=10_000, latencies=300, seconds=15.0
)
QUICK = PeerSizes(
    name="quick", rounds=2, singles=500, jobs=10_000, naps=3_000, latencies=60, seconds=5.0
)
TINY = PeerSizes(name="tiny", rounds=1, singles=10, jobs=200, naps=100, latencies=3, seconds=30.0)
