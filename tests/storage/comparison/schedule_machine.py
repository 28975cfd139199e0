"""The machine that compares two stores, with schedules among the jobs."""

from __future__ import annotations

import random
from datetime import timedelta

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from tests.storage.comparison.limit_machine import FlowMachine
from tests.storage.comparison.machine import PLAIN, SEEDS
from windlass._core.job.job import NewJob
from windlass._storage.protocol.schedules import ScheduleWrite
from windlass._storage.protocol.storage import Storage

NAMES = ("s1", "s2", "s3")
BODIES = (None, b"a", b"a", b"b", b"c")
LATER = (None, -5, 0, 3, 60)


class ScheduleMachine(FlowMachine):
    """Schedules are written, fired and deleted while jobs are worked on."""

    def a_job(self, chance: random.Random) -> NewJob:
        """Without an expiry: which claim meets an expired job is not what this is about."""
        return PLAIN(super().a_job(chance), expires=None)

    @rule(seed=SEEDS)
    def write_schedules(self, seed: int) -> None:
        chance = random.Random(seed)
        rows = self.run(self.stores[0].schedules.rows())
        revisions = {row.name: row.revision for row in rows}
        writes = [self.a_write(chance, revisions) for _ in range(chance.randint(1, 4))]

        async def ask(store: Storage, _: int) -> object:
            return list(await store.schedules.write(writes))

        self.agree(ask)

    def a_write(self, chance: random.Random, revisions: dict[str, int]) -> ScheduleWrite:
        """Mostly by the right revision, as far as an earlier one of the call did not change it."""
        name, later = chance.choice(NAMES), chance.choice(LATER)
        revision = revisions.get(name, 0)
        revisions[name] = revision + 1
        if chance.random() < 0.2:
            revision = max(0, revision + chance.choice([-2, -1, 1]))
        return ScheduleWrite(
            name=name,
            revision=revision,
            body=chance.choice(BODIES),
            next_at=None if later is None else self.clock.now() + timedelta(seconds=later),
            jobs=tuple(self.a_job(chance) for _ in range(chance.randint(0, 2))),
            active=tuple(chance.sample(self.ids[-12:], min(3, len(self.ids)))),
            most_active=chance.choice([None, None, 1, 2]),
        )

    @rule(names=st.lists(st.sampled_from([*NAMES, "nobody"]), max_size=3))
    def declare_schedules(self, names: list[str]) -> None:
        self.agree(lambda store, _: store.schedules.declare(names))

    @invariant()
    def every_schedule_is_the_same(self) -> None:
        if self.stores:
            self.agree(self._schedules)

    async def _schedules(self, store: Storage, _: int) -> object:
        due = await store.schedules.due(2)
        return list(await store.schedules.rows()), due.at, list(due.rows), due.next_at
