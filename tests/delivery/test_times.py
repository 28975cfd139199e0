"""What is to start at a time starts then: delays, retries, schedules, in one idle worker."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.delivery.fixtures import World, enqueue, simulate, speaker, times, working
from windlass import Backoff, Context, Cron, Every, Snooze
from windlass.testing._clock import START

STORES = ["memory", "sqlite"]

pytestmark = pytest.mark.parametrize("store", STORES)


def test_jobs_for_later_start_when_they_are_due(store: str) -> None:
    async def scenario(world: World) -> None:
        speak = speaker(world)
        dues = [round(7 * number % 60 + 0.1 * number, 2) for number in range(1, 60)]
        for due in dues[::2]:
            await speak.options(delay=due).enqueue(str(due))
        for due in dues[1::2]:
            await speak.options(at=START + timedelta(seconds=due)).enqueue(str(due))
        async with working(world.app):
            await world.until(100)
        assert [(at, word) for at, word in world.seen] == [(due, str(due)) for due in sorted(dues)]

    simulate(store, scenario)


def test_overdue_jobs_of_a_paused_queue_delay_no_others(store: str) -> None:
    async def scenario(world: World) -> None:
        held, speak = speaker(world, queue="held"), speaker(world, queue="default")
        await held.options(delay=1).enqueue("held")
        await world.app.admin.queues.pause("held")
        async with working(world.app, queues=["held", "default"], slots=2):
            await world.until(5)
            await speak.options(delay=10).enqueue("later")
            await world.until(30)
        assert world.seen == [(15.0, "later")]

    simulate(store, scenario)


def test_thousands_that_fall_due_together_start_together(store: str) -> None:
    async def scenario(world: World) -> None:
        speak = speaker(world)
        await world.app.enqueue_many([speak.options(delay=10).call(str(n)) for n in range(3000)])
        async with working(world.app, slots=20):
            await world.until(20)
        starts = times(world)
        assert len(starts) == 3000
        assert (starts[0], starts[-1]) == (10.0, 10.0)

    simulate(store, scenario)


def test_a_retry_waits_for_its_backoff_and_no_longer(store: str) -> None:
    async def scenario(world: World) -> None:
        @world.app.task(name="flaky", backoff=Backoff.fixed(2.5), max_attempts=5)
        async def flaky(ctx: Context) -> None:
            world.say(str(ctx.attempt))
            raise ValueError("again")

        async with working(world.app):
            await flaky.enqueue()
            await world.until(20)
        assert [at for at, _ in world.seen] == [0.0, 2.5, 5.0, 7.5, 10.0]

    simulate(store, scenario)


def test_a_job_that_snoozes_is_back_in_time(store: str) -> None:
    async def scenario(world: World) -> None:
        @world.app.task(name="dozes")
        async def dozes() -> None:
            world.say("awake")
            if len(world.seen) < 4:
                raise Snooze(7)

        async with working(world.app):
            await dozes.enqueue()
            await world.until(60)
        assert times(world, "awake") == [0.0, 7.0, 14.0, 21.0]

    simulate(store, scenario)


def test_every_slot_of_a_period_is_fired_in_time(store: str) -> None:
    async def scenario(world: World) -> None:
        @world.app.schedule(Every(2))
        @world.app.task(name="tick")
        async def tick() -> None:
            world.say("tick")

        async with working(world.app):
            await world.until(301)
        starts = times(world, "tick")
        assert len(starts) == 150
        assert max(at % 2 for at in starts) <= 0.1

    simulate(store, scenario)


def test_every_minute_of_a_cron_is_fired_in_time(store: str) -> None:
    async def scenario(world: World) -> None:
        @world.app.schedule(Cron("* * * * *"))
        @world.app.task(name="tick")
        async def tick() -> None:
            world.say("tick")

        async with working(world.app):
            await world.until(3601)
        starts = times(world, "tick")
        assert len(starts) in (60, 61)  # the first minute is now
        assert max(at % 60 for at in starts) <= 0.1

    simulate(store, scenario)


def test_a_hundred_schedules_with_one_slot_in_common_are_all_fired_in_it(store: str) -> None:
    async def scenario(world: World) -> None:
        speak = speaker(world)
        for number in range(100):
            world.app.schedule(Every(60), name=f"s{number}")(speak.call(str(number)))
        async with working(world.app, slots=20):
            await world.until(61)
        starts = times(world)
        assert len(starts) == 100
        assert max(starts) <= 60.5

    simulate(store, scenario)


def test_an_idle_worker_starts_what_is_enqueued_at_once(store: str) -> None:
    async def scenario(world: World) -> None:
        speak = speaker(world)
        async with working(world.app):
            for second in range(10, 100, 10):
                await world.until(second)
                await speak.enqueue(str(second))
            await world.until(200)
        assert world.seen == [(float(second), str(second)) for second in range(10, 100, 10)]

    simulate(store, scenario)


def test_slots_of_each_queue_are_used_all_the_time(store: str) -> None:
    async def scenario(world: World) -> None:
        a, b = (speaker(world, seconds=1.0, queue=queue) for queue in "ab")
        await enqueue(world, a, 20, "a")
        await enqueue(world, b, 10, "b")
        async with working(world.app, queues={"a": 2, "b": 1}):
            await world.until(30)
        assert [times(world, "a")[-1], times(world, "b")[-1]] == [9.0, 9.0]

    simulate(store, scenario)


@pytest.mark.parametrize("order", ["strict", "weighted"])
def test_queues_that_share_slots_leave_none_of_them_idle(store: str, order: str) -> None:
    async def scenario(world: World) -> None:
        a, b = (speaker(world, seconds=1.0, queue=queue) for queue in "ab")
        await enqueue(world, a, 40, "a")
        await enqueue(world, b, 40, "b")
        async with working(world.app, queues=["a", "b"], order=order, slots=4):
            await world.until(10.5)
            first = len(times(world, "a")), len(times(world, "b"))
            await world.until(60)
        assert sum(first) == 44
        if order == "weighted":
            assert abs(first[0] - first[1]) <= 1
        assert len(world.seen) == 80
        assert world.seen[-1][0] == 19.0

    simulate(store, scenario)
