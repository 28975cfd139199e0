"""What a measurement needs: how much, where, rounds that alternate, somebody to tell."""

from __future__ import annotations

import statistics
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, Protocol

from benchmarks.place import Place
from benchmarks.sizes import Sizes

__all__ = ["Listener", "Rounds", "Stage", "alternate"]


class Listener(Protocol):
    """Told before every step of a measurement."""

    def step(self, what: str) -> None: ...


class Stage(NamedTuple):
    """What every measurement is given."""

    sizes: Sizes
    place: Place
    listener: Listener


class Rounds:
    """What came out of alternating rounds, by name."""

    def __init__(self, samples: Mapping[str, list[float]]) -> None:
        self._samples = samples

    def __getitem__(self, name: str) -> float:
        """Return the median."""
        return statistics.median(self._samples[name])

    def spread(self, name: str) -> str:
        """How far the rounds lie apart: on a busy machine, how much to believe."""
        samples, middle = self._samples[name], self[name]
        if len(samples) == 1:
            return "one round"
        low, high = min(samples) / middle - 1, max(samples) / middle - 1
        return f"{len(samples)} rounds, {low:+.0%} to {high:+.0%}"


async def alternate(
    count: int, ways: Mapping[str, Callable[[], Awaitable[float]]], listener: Listener
) -> Rounds:
    """Measure every way in turn, ``count`` times: a slow minute falls on all of them."""
    samples: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(1, count + 1):
        for name, measure in ways.items():
            listener.step(f"{name}, round {number} of {count}")
            samples[name].append(await measure())
    return Rounds(samples)
