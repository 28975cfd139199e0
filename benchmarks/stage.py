"""Files to measure on, rounds that alternate, and somebody who is told how far things are."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

__all__ = ["Listener", "Rounds", "alternate", "scratch"]


class Listener(Protocol):
    """Told before every step of a measurement."""

    def step(self, what: str) -> None: ...


@contextmanager
def scratch() -> Iterator[str]:
    """The URL of a database that does not exist yet; TMPDIR chooses the disk."""
    with tempfile.TemporaryDirectory(prefix="windlass-bench-") as folder:
        yield f"sqlite:///{Path(folder) / 'jobs.db'}"


class Rounds:
    """What came out of alternating rounds, by name."""

    def __init__(self, samples: Mapping[str, list[float]]) -> None:
        self._samples = samples

    def __getitem__(self, name: str) -> float:
        """The median."""
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
