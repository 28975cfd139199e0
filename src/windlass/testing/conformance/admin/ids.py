"""`AdminStore.named`: ids by their first and last digits."""

from __future__ import annotations

from windlass._core.job.job import JobId
from windlass._storage.protocol.actions import Delete
from windlass._storage.protocol.storage import Storage
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import DAY, MINUTE, a_job, a_note, add

__all__ = ["ShortIdConformance", "every_named"]


async def every_named(storage: Storage, first: str, last: str) -> list[JobId]:
    """Return all ids that begin and end so."""
    found: list[JobId] = []
    after: str | None = None
    while True:
        named = await storage.admin.named(first, last, after=after)
        found += named.ids
        after = named.after
        if after is None:
            return found


def made_at(clock: VirtualClock, end: str) -> JobId:
    """Return an id as clients make them, that ends so."""
    stamp = f"{int(clock.now().timestamp() * 1000):012x}"
    return JobId(f"{stamp}7abc8{end:0>15}")


class ShortIdConformance:
    """A shortened id finds its job."""

    async def test_an_id_of_any_maker_and_time_is_found_by_both_its_ends(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        wanted = [JobId("f" * 26 + "9c4e07"), JobId("0" * 26 + "9c4e07")]  # of no time at all
        for number in range(12):
            wanted.append(made_at(clock, f"{number:x}9c4e07"))
            others = (made_at(clock, f"{number:x}9c4e08"), made_at(clock, f"{number:x}0c4e07"))
            await add(storage, *(a_job(id=job) for job in (wanted[-1], *others)))
            clock.advance(MINUTE / 2)
        await add(storage, *(a_job(id=job) for job in wanted[:2]))
        old = JobId(wanted[5][:8] + "0" * 17 + "55c4e07")  # made of a slot that lies in the past
        clock.advance(DAY)
        await add(storage, a_job(id=old))
        for job in wanted:
            alike = {one for one in wanted if one[:8] == job[:8]}
            assert {*await every_named(storage, job[:8], "9c4e07")} == alike, job
        assert await every_named(storage, old[:8], "55c4e07") == [old]
        for first, last in ((8, 7), (9, 6), (13, 11), (25, 6), (8, 23)):
            found = await every_named(storage, old[:first], old[-last:])
            assert found == [old], (first, last)

    async def test_an_id_that_fits_at_one_end_is_not_meant(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        (job,) = await add(storage, a_job(id=made_at(clock, "9c4e07")))
        assert await every_named(storage, job[:8], "9c4e07") == [job]
        assert await every_named(storage, job[:8], "9c4e06") == []
        assert await every_named(storage, f"{int(job[:8], 16) + 1:08x}", "9c4e07") == []
        assert await every_named(storage, "ffffffff", "9c4e07") == []

    async def test_by_its_end_alone_the_newest_comes_first(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        ends = ("2abcdef01", "1abcdef01", "abcdef02", "3abcdef01")
        jobs = await add(storage, *(a_job(id=made_at(clock, end)) for end in ends))
        found = await every_named(storage, "", "abcdef01")
        assert found == [jobs[3], jobs[1], jobs[0]]
        assert await every_named(storage, "", "1abcdef01") == [jobs[1]]
        assert (await storage.admin.named("", "abcdef01")).looked == len(jobs)

    async def test_a_job_that_is_gone_is_not_found_by_its_ends(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        odd = JobId("f" * 26 + "9c4e07")
        jobs = await add(storage, a_job(id=odd), a_job(id=made_at(clock, "9c4e07")))
        await storage.orders.order(Delete(), jobs, a_note())
        for job in jobs:
            assert await every_named(storage, job[:8], job[-6:]) == []
            assert await every_named(storage, "", job[-8:]) == []
