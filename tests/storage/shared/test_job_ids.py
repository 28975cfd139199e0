"""Ids by their ends: a look is bounded, and the next one goes on where it ended."""

from __future__ import annotations

import pytest

from windlass._core.job.job import JobId
from windlass._storage.memory.admin.admin import MemoryAdmin
from windlass._storage.postgres.admin import admin as postgres
from windlass._storage.protocol.storage import Storage
from windlass._storage.redis.admin import admin as redis
from windlass._storage.sqlite.admin import admin as sqlite
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.admin.ids import every_named, made_at
from windlass.testing.conformance.steps import HOUR, a_job, add


async def test_looks_at_ids_are_bounded_and_together_meet_each_once(
    storage: Storage, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for where, name in (
        (MemoryAdmin, "look"),
        (postgres, "_LOOK"),
        (redis, "IDS_PER_SCAN"),
        (sqlite, "IDS_PER_SCAN"),
    ):
        monkeypatch.setattr(where, name, 3)
    await add(storage, *(a_job(id=made_at(clock, f"{n}aaaaaa")) for n in range(5)))
    clock.advance(HOUR)
    jobs = [made_at(clock, f"{n}bbbbbb") for n in range(7)]
    await add(storage, *(a_job(id=job) for job in jobs))
    clock.advance(HOUR)
    late = [JobId(job[:8] + f"{n:0>18}" + "bbbbbb") for n, job in enumerate(jobs)]
    await add(storage, *(a_job(id=job) for job in late))
    assert (await storage.admin.named(jobs[0][:8], "bbbbbb")).looked <= 3
    found = await every_named(storage, jobs[0][:8], "bbbbbb")
    assert sorted(found) == sorted([*jobs, *late])
    assert (await storage.admin.named("", "bbbbbb")).looked == 3
    assert await every_named(storage, "", "bbbbbb") == [*late[::-1], *jobs[::-1]]
