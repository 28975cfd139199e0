"""How large a simulated world is, and how it is set up."""

from __future__ import annotations

import random
from typing import Literal

import msgspec

from tests.simulation.world.workload import QUEUES
from windlass._settings.settings import WorkerSettings

__all__ = ["Shape"]


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """How large a world is, and how it is set up."""

    workers: int
    slots: int
    own_pools: bool
    """Slots for each queue, or one pool for all."""
    weighted: bool
    producers: int
    jobs: int
    poison: float
    operator: float
    """Mean time between two orders of the operator; 0: there is none."""
    keep: bool
    """False: what succeeded is deleted at once."""
    cooling: float
    """How many of those who are throttled send their whole queue to rest."""
    mourning: bool
    """Whether fussy jobs that fail for good are followed up."""
    max_running: int | None
    """Jobs of the second queue that run at once in the beginning."""
    on_isolation: Literal["continue", "cancel"]
    max_jobs: int | None
    old: float
    """How many of the workers run a release that does not know every task."""
    probed: bool
    """Whether all slots are tried in the end."""

    @classmethod
    def draw(cls, chance: random.Random) -> Shape:
        """A random one."""
        max_jobs = chance.choice([None, None, None, 15])
        return cls(
            workers=chance.choice([2, 2, 3, 3, 4]),
            slots=chance.randint(1, 4),
            own_pools=chance.random() < 0.3,
            weighted=chance.random() < 0.3,
            producers=chance.randint(1, 2),
            jobs=chance.randint(20, 45),
            poison=chance.choice([0.0, 0.0, 0.03]),
            operator=chance.choice([0.0, 0.5, 2.0]),
            keep=chance.random() < 0.9,
            cooling=chance.choice([0.0, 0.5, 1.0]),
            mourning=chance.random() < 0.7,
            max_running=chance.choice([None, None, 1, 3]),
            on_isolation=chance.choice(["continue", "continue", "cancel"]),
            max_jobs=max_jobs,
            old=chance.choice([0.0] * 8 + [0.4]),
            # Workers that end after so many jobs would end in the middle of it.
            probed=max_jobs is None and chance.random() < 0.5,
        )

    def worker_settings(self) -> WorkerSettings:
        """What each worker is told."""
        return WorkerSettings(
            queues=dict.fromkeys(QUEUES, self.slots) if self.own_pools else None,
            shared=QUEUES,
            slots=self.slots,
            order="weighted" if self.weighted else "strict",
            max_jobs=self.max_jobs,
        )
