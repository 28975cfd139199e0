"""What schedulers cost when nothing is due, and what an outage of the store does to them."""

from __future__ import annotations

import asyncio
from datetime import datetime

from tests.worker.fixtures import World, simulate, working
from windlass import Every
from windlass._core.schedule.schedule import slot_of
from windlass._storage.protocol.lists.job_list import JobFilter


def test_an_idle_worker_looks_about_once_a_second_whether_it_leads_or_not() -> None:
    async def scenario(world: World) -> list[int]:
        @world.app.schedule(Every(3600))
        @world.app.task(name="rare")
        async def rare() -> None: ...

        stores = [await world.tampered(), await world.tampered()]
        async with working(world.app, store=stores[0]), working(world.app, store=stores[1]):
            await asyncio.sleep(5)
            for store in stores:
                store.calls.clear()
            await asyncio.sleep(100)
            return [store.calls["schedules.due"] for store in stores]

    looks = simulate(scenario)
    assert all(90 <= number <= 115 for number in looks), looks


def test_a_busy_schedule_costs_those_who_do_not_lead_no_more() -> None:
    async def scenario(world: World) -> tuple[int, int]:
        @world.app.schedule(Every(0.2), overlap="allow")
        @world.app.task(name="often")
        async def often() -> None: ...

        leading, other = await world.tampered(), await world.tampered()
        async with working(world.app, store=leading):
            await asyncio.sleep(1)
            async with working(world.app, store=other):
                await asyncio.sleep(5)
                other.calls.clear()
                await asyncio.sleep(100)
                return other.calls["schedules.due"], other.calls["schedules.write"]

    looks, writes = simulate(scenario)
    assert looks <= 115
    assert writes <= 5  # that its code still has the schedule is said without one


def test_after_an_outage_of_minutes_a_process_fires_at_once_what_it_has() -> None:
    async def scenario(world: World) -> list[datetime | None]:
        @world.app.schedule(Every(600))
        @world.app.task(name="rare")
        async def rare() -> None: ...

        store = await world.tampered()
        async with working(world.app, store=store):
            await asyncio.sleep(5)
            store.down = True
            await asyncio.sleep(900)
            store.down = False
            await asyncio.sleep(3)
            found = await world.app.admin.jobs.find(JobFilter(task="rare"), limit=10)
            return [slot_of(job.id) for job in found]

    assert len(simulate(scenario)) == 1
