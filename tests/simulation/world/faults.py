"""What goes wrong in a simulated world, and when.

Each seed enables a random subset of the faults with random rates ("swarm"), so that rare
combinations get their turn: a world with every fault at once mostly stands still.
"""

from __future__ import annotations

import bisect
import math
import random
from enum import Enum
from typing import NamedTuple

import msgspec

from tests.simulation.framework.process import SimProcess

__all__ = ["HEARTBEAT", "LEASE", "Cut", "Fate", "FaultPlan", "Faults", "Health", "Verdict"]

# Short, so that a minute holds many of them.
HEARTBEAT, LEASE = 1.0, 4.0

# What rests on something that was looked up before: the longer it takes, the more may have changed.
_STALE = frozenset({"workers.bury", "workers.bury_overdue", "reaping"})

_QUICK = 0.002
_SLOWEST = 0.25


class Verdict(Enum):
    """What becomes of one call."""

    FINE = "fine"
    REFUSED = "refused"
    """Not executed, and the caller is told so."""
    LOST = "lost"
    """Executed, but the caller is told that it failed."""
    LATE = "late"
    """The caller gives up, and then it is executed."""
    TWICE = "twice"
    """Executed, answered, and executed once more."""


class Fate(NamedTuple):
    """What becomes of one call, and how long it takes there, back and until the echo."""

    verdict: Verdict
    there: float
    back: float
    echo: float = 0.0


class Cut(msgspec.Struct, frozen=True):
    """A time without the store: for everybody, or for one process."""

    start: float
    end: float
    hangs: bool
    """True: calls wait for the end of it; False: they fail at once."""
    victim: str = ""
    """The name a process starts with; empty: everybody."""


class FaultPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The faults of one seed. A rate is per call, an interval the mean time between two; 0: off."""

    chaos: float
    """Virtual seconds until everything is healed."""
    latency: float = _QUICK
    refused: float = 0.0
    lost: float = 0.0
    late: float = 0.0
    twice: float = 0.0
    stalled: float = 0.0
    deaf: float = 0.0
    """How many of the wake-ups get lost."""
    cuts: tuple[Cut, ...] = ()
    killed_every: float = 0.0
    paused_every: float = 0.0
    longest_pause: float = 0.0
    restarted_every: float = 0.0
    stepped_every: float = 0.0
    """The wall clock of the store is set to something else."""

    @property
    def calm(self) -> bool:
        """Whether nothing goes wrong at all: calls take their time, and that is all."""
        rates = (self.refused, self.lost, self.late, self.twice, self.stalled, self.killed_every)
        return not any((*rates, self.paused_every, self.restarted_every, self.cuts))

    @classmethod
    def draw(cls, chance: random.Random, names: list[str]) -> FaultPlan:
        """A random subset of the faults, with random rates. One seed in ten has none."""
        chaos = chance.uniform(10, 22)
        latency = chance.choice([_QUICK, 0.01, 0.05])
        calm = chance.random() < 0.1

        def now_and_then(low: float, high: float, share: float = 0.4) -> float:
            drawn = chance.uniform(low, high)
            return drawn if chance.random() < share and not calm else 0.0

        return cls(
            chaos=chaos,
            latency=latency,
            refused=now_and_then(0.005, 0.1),
            lost=now_and_then(0.005, 0.15, 0.5),
            late=now_and_then(0.005, 0.08),
            twice=now_and_then(0.005, 0.05),
            stalled=now_and_then(0.001, 0.01),
            deaf=now_and_then(0.1, 1.0),
            cuts=() if calm else _draw_cuts(chance, chaos, names),
            killed_every=now_and_then(3, 20, 0.6),
            paused_every=now_and_then(3, 15, 0.5),
            longest_pause=chance.choice([LEASE * 0.8, LEASE * 2, LEASE * 3]),
            restarted_every=now_and_then(5, 20),
            stepped_every=now_and_then(4, 15, 0.2),
        )


def _draw_cuts(chance: random.Random, chaos: float, names: list[str]) -> tuple[Cut, ...]:
    cuts: list[Cut] = []
    for victims, share in (([""], 0.4), (names, 0.3)):
        if chance.random() >= share:
            continue
        for _ in range(chance.randint(1, 3)):
            start = chance.uniform(0, chaos)
            length = chance.choice([chance.uniform(0.1, LEASE), chance.uniform(LEASE, LEASE * 3)])
            end = min(start + length, chaos)
            cuts.append(Cut(start, end, chance.random() < 0.5, chance.choice(victims)))
    return tuple(sorted(cuts, key=lambda cut: cut.start))


class Faults:
    """The plan at work."""

    def __init__(self, plan: FaultPlan, chance: random.Random) -> None:
        self.plan = plan
        self.healed = False
        self._chance = chance
        self._any = plan.refused + plan.lost + plan.late + plan.twice + plan.stalled
        self._stale = 0.4 if plan.stalled or plan.late or plan.paused_every else 0.0

    def fate(self, op: str, *, may_echo: bool) -> Fate:
        """What becomes of the next call. ``may_echo``: it may be executed after its answer."""
        chance, plan = self._chance, self.plan
        if self.healed:
            return Fate(Verdict.FINE, _QUICK, 0.0)
        there = min(plan.latency * chance.expovariate(1.0), _SLOWEST)
        roll = chance.random()
        # Half of the answers take no time: a step less to simulate, and nothing less to find.
        back = there * roll * 4 if roll < 0.5 else 0.0
        roll = chance.random()
        if op in _STALE and roll < self._stale:
            return Fate(Verdict.FINE, chance.uniform(0.2, LEASE * 2), back)
        if roll >= self._any:
            return Fate(Verdict.FINE, there, back)
        if roll < plan.refused:
            return Fate(Verdict.REFUSED, there, back)
        roll -= plan.refused
        if roll < plan.lost:
            return Fate(Verdict.LOST, there, back)
        roll -= plan.lost
        if roll < plan.late + plan.twice:
            echo = chance.uniform(0.01, LEASE * chance.choice([0.2, 2]))
            if not may_echo:
                return Fate(Verdict.LOST, there, back)
            return Fate(Verdict.LATE if roll < plan.late else Verdict.TWICE, there, back, echo)
        return Fate(Verdict.FINE, chance.uniform(LEASE * 0.5, LEASE * 2.5), back)

    def cut(self, process: str, now: float) -> Cut | None:
        """The cut this process suffers from right now; one for everybody comes first."""
        if self.healed:
            return None
        private = None
        for cut in self.plan.cuts:
            if cut.start <= now < cut.end and process.startswith(cut.victim):
                if not cut.victim:
                    return cut
                private = cut
        return private

    def quick_read(self, process: str, now: float) -> bool:
        """Whether a read takes no time. Most do: they are two calls in three, and slow ones are
        needed only to be overtaken now and then.
        """
        return self._chance.random() < 0.75 and self.cut(process, now) is None

    def outage(self, since: float, until: float) -> bool:
        """Whether the store was away for everybody at some time in between."""
        return any(
            not cut.victim and cut.start <= until and cut.end >= since for cut in self.plan.cuts
        )

    def hears(self) -> bool:
        """Whether a wake-up arrives."""
        return self.healed or not self.plan.deaf or self._chance.random() >= self.plan.deaf

    def hint_delay(self) -> float:
        return _QUICK if self.healed else self.plan.latency * self._chance.random()


class Health:
    """When each process had reasons of its own to be slow, so that it may be judged fairly."""

    def __init__(self) -> None:
        self._since: dict[SimProcess, list[float]] = {}
        self._until: dict[SimProcess, list[float]] = {}
        self.born: dict[SimProcess, float] = {}
        self.died: dict[SimProcess, float] = {}

    def impair(self, process: SimProcess, since: float, until: float = math.inf) -> None:
        """It is hindered from one instant to another."""
        starts = self._since.setdefault(process, [])
        ends = self._until.setdefault(process, [])
        place = bisect.bisect(starts, since)
        starts.insert(place, since)
        ends.insert(place, until)

    def recover(self, process: SimProcess, now: float) -> None:
        """What had no end yet ends now."""
        ends = self._until.get(process, [])
        ends[:] = [now if end == math.inf else end for end in ends]

    def hindered(self, process: SimProcess, since: float, until: float) -> bool:
        """Whether something was wrong with it at some time in between."""
        starts, ends = self._since.get(process, []), self._until.get(process, [])
        return any(start <= until and end >= since for start, end in zip(starts, ends, strict=True))

    def well(self, process: SimProcess, since: float, until: float) -> bool:
        """Whether it lived through all of it, and nothing was wrong."""
        return (
            self.born.get(process, math.inf) <= since
            and self.died.get(process, math.inf) >= until
            and not self.hindered(process, since, until)
        )
