"""A few seeds at a time, for the tests and for the command line."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from tests.simulation.world.schedules import simulate_schedules
from tests.simulation.world.world import StoreName, simulate

BITE = 10
STORES: tuple[StoreName, ...] = ("memory", "sqlite")


class Bite(NamedTuple):
    """What came of a few seeds."""

    store: StoreName
    seeds: int
    virtual: float
    jobs: int
    counts: Counter[str]
    failures: list[tuple[int, str]]
    flows: bool = False
    """Whether its worlds had flows."""


def reproduce(seed: int, store: str, *, schedules: bool = False, flows: bool = False) -> str:
    asked = f"python -m tests.simulation --store {store} --seed {seed}"
    asked = f"{asked} --flows" if flows else asked
    return f"{asked} --schedules" if schedules else asked


def run_flows(store: StoreName, first: int, last: int) -> Bite:
    """The same of worlds with flows."""
    return run_bite(store, first, last, flows=True)


def run_bite(store: StoreName, first: int, last: int, *, flows: bool = False) -> Bite:
    virtual, jobs, counts = 0.0, 0, Counter[str]()
    failures: list[tuple[int, str]] = []
    for seed in range(first, last):
        try:
            report = simulate(seed, store, flows=flows)
        except Exception as error:  # noqa: BLE001 -- every failure is shown, whatever it is
            failures.append((seed, f"{type(error).__name__}: {error}"))
            continue
        virtual += report.seconds
        jobs += report.jobs
        counts.update(report.counts)
    return Bite(store, last - first, virtual, jobs, counts, failures, flows)


def run_schedules(store: StoreName, first: int, last: int) -> Bite:
    """The same of worlds of schedulers; their jobs are slots."""
    virtual, slots, counts = 0.0, 0, Counter[str]()
    failures: list[tuple[int, str]] = []
    for seed in range(first, last):
        try:
            tale = simulate_schedules(seed, store)
        except Exception as error:  # noqa: BLE001 -- as above
            failures.append((seed, f"{type(error).__name__}: {error}"))
            continue
        virtual += tale.seconds
        slots += tale.slots
        counts.update(tale.counts)
    return Bite(store, last - first, virtual, slots, counts, failures)
