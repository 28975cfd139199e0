"""Virtual time, order, and asyncio on top of them."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest

from tests.simulation.fixtures import simulate
from tests.simulation.framework import loop as loop_module
from tests.simulation.framework.loop import (
    PROCESS,
    Deadlock,
    Livelock,
    NotSimulated,
    Overrun,
    SimLoop,
)

# --- time ------------------------------------------------------------------------------------


def test_an_hour_of_sleep_takes_no_time() -> None:
    async def main(loop: SimLoop) -> None:
        await asyncio.sleep(3600)

    started = time.perf_counter()
    assert simulate(main).seconds == 3600
    assert time.perf_counter() - started < 1


def test_time_stands_still_while_something_is_ready() -> None:
    async def main(loop: SimLoop) -> None:
        for _ in range(1000):
            await asyncio.sleep(0)
        assert loop.time() == 0

    simulate(main)


def test_callbacks_run_first_in_first_out() -> None:
    async def main(loop: SimLoop) -> list[int]:
        seen: list[int] = []
        for number in range(100):
            loop.call_soon(seen.append, number)
        loop.call_soon_threadsafe(seen.append, 100)
        await asyncio.sleep(0)
        return seen

    assert simulate(main).value == list(range(101))


def test_timers_of_one_instant_fire_in_the_order_in_which_they_were_set() -> None:
    async def main(loop: SimLoop) -> list[int]:
        seen: list[int] = []
        for number in range(100):
            loop.call_later(5, seen.append, number)
        loop.call_at(1, seen.append, -1)
        await asyncio.sleep(6)
        return seen

    assert simulate(main).value == [-1, *range(100)]


def test_a_cancelled_timer_does_not_move_time() -> None:
    async def main(loop: SimLoop) -> None:
        loop.call_later(50, print).cancel()
        await asyncio.Event().wait()

    with pytest.raises(Deadlock) as caught:
        simulate(main)
    assert "virtual second 0.0" in caught.value.__notes__[0]


def test_a_world_that_waits_for_nothing_is_a_deadlock_and_says_who_waits_where() -> None:
    async def stuck() -> None:
        await asyncio.Event().wait()

    async def main(loop: SimLoop) -> None:
        loop.spawn_process("worker", stuck)
        await asyncio.sleep(1)
        loop.spawn_process("gone", stuck).kill()
        await stuck()

    with pytest.raises(Deadlock, match="worker running") as caught:
        simulate(main, seed=77)
    assert "stuck (test_loop.py:" in str(caught.value)
    assert "> Event.wait (locks.py:" in str(caught.value)
    assert "gone" not in str(caught.value)
    assert "seed 77" in caught.value.__notes__[0]
    assert "world: spawn worker" in caught.value.__notes__[0]


def test_a_paused_process_that_nobody_resumes_is_a_deadlock() -> None:
    async def main(loop: SimLoop) -> None:
        process = loop.spawn_process("worker", lambda: asyncio.sleep(5))
        process.pause()
        await process.join()

    with pytest.raises(Deadlock, match=r"worker paused \(1 held\)"):
        simulate(main)


def test_what_spins_without_letting_time_pass_is_a_livelock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop_module, "PATIENCE", 1000)

    async def main(loop: SimLoop) -> None:
        for _ in range(2000):
            await asyncio.sleep(0)

    with pytest.raises(Livelock):
        simulate(main)


def test_a_long_run_in_which_time_passes_is_no_livelock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "PATIENCE", 100)

    async def main(loop: SimLoop) -> None:
        for _ in range(1000):
            await asyncio.sleep(1)

    simulate(main)


def test_a_main_that_does_not_end_in_time_is_an_overrun() -> None:
    async def main(loop: SimLoop) -> None:
        for _ in range(100):
            await asyncio.sleep(7)

    with pytest.raises(Overrun, match="after 30 s"):
        simulate(main, limit=30)


def test_a_main_that_ends_exactly_at_the_limit_is_in_time() -> None:
    async def main(loop: SimLoop) -> None:
        await asyncio.sleep(30)

    assert simulate(main, limit=30).seconds == 30


# --- asyncio works in it ---------------------------------------------------------------------


def test_timeouts_work() -> None:
    async def main(loop: SimLoop) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10):
                await asyncio.Event().wait()
        assert loop.time() == 10
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 5)
        assert loop.time() == 15
        async with asyncio.timeout(10):
            await asyncio.sleep(1)
        assert loop.time() == 16

    simulate(main)


def test_events_locks_conditions_and_queues_work() -> None:
    async def main(loop: SimLoop) -> list[str]:
        seen: list[str] = []
        event, lock, condition = asyncio.Event(), asyncio.Lock(), asyncio.Condition()
        queue: asyncio.Queue[str] = asyncio.Queue(maxsize=1)

        async def first() -> None:
            async with lock:
                await asyncio.sleep(1)
                event.set()
                seen.append("first")
            await queue.put("a")
            await queue.put("b")
            async with condition:
                condition.notify_all()

        async def second() -> None:
            await event.wait()
            async with lock:
                seen.append("second")
            seen.extend([await queue.get(), await queue.get()])

        async def third() -> None:
            async with condition:
                await condition.wait()
            seen.append("third")

        await asyncio.gather(first(), second(), third())
        return seen

    assert simulate(main).value == ["first", "second", "a", "b", "third"]


def test_a_task_group_cancels_its_tasks_in_the_order_of_their_making() -> None:
    async def main(loop: SimLoop) -> list[int]:
        ended: list[int] = []

        async def member(number: int) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(number)

        async def fail() -> None:
            await asyncio.sleep(1)
            raise ValueError("one of them failed")

        async def group_of_fifty() -> None:
            async with asyncio.TaskGroup() as group:
                for number in range(50):
                    group.create_task(member(number))
                group.create_task(fail())

        with pytest.raises(ExceptionGroup):
            await group_of_fifty()
        return ended

    assert simulate(main).value == list(range(50))


def test_a_shield_keeps_what_it_shields() -> None:
    async def main(loop: SimLoop) -> None:
        inner = asyncio.create_task(asyncio.sleep(5, "kept"))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(inner), 1)
        assert await inner == "kept"
        assert loop.time() == 5

    simulate(main)


def test_waiting_for_the_first_and_in_the_order_of_completion_works() -> None:
    async def main(loop: SimLoop) -> None:
        tasks = [asyncio.create_task(asyncio.sleep(n, n)) for n in (3, 1, 2)]
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        assert (done, pending) == ({tasks[1]}, {tasks[0], tasks[2]})
        assert [await next_one for next_one in asyncio.as_completed(tasks)] == [1, 2, 3]

    simulate(main)


def test_an_abandoned_async_generator_is_closed_by_its_own_process() -> None:
    closed: list[str] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            while True:
                yield 1
        finally:
            process = PROCESS.get()
            closed.append(process.name if process else "world")

    async def take_one() -> None:
        generator = numbers()
        await anext(generator)
        del generator
        await asyncio.sleep(1)

    async def main(loop: SimLoop) -> None:
        await loop.spawn_process("worker", take_one).join()
        await take_one()

    simulate(main)
    assert closed == ["worker", "world"]


def test_async_generators_of_the_world_that_are_still_open_are_closed_at_the_end() -> None:
    closed: list[int] = []

    async def numbers(number: int) -> AsyncIterator[int]:
        try:
            yield number
        finally:
            await asyncio.sleep(number)
            closed.append(number)

    generators = [numbers(number) for number in range(3)]

    async def main(loop: SimLoop) -> None:
        for generator in generators:
            await anext(generator)

    simulate(main)
    assert closed == [0, 1, 2]


# --- the world outside -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "reach",
    [
        lambda: asyncio.to_thread(print),
        lambda: asyncio.open_connection("localhost", 80),
        lambda: asyncio.create_subprocess_exec("true"),
        lambda: asyncio.start_server(print, "localhost", 0),
    ],
    ids=["thread", "socket", "subprocess", "server"],
)
def test_reaching_outside_is_refused_even_when_the_refusal_is_swallowed(
    reach: Callable[[], Coroutine[Any, Any, Any]],
) -> None:
    async def main(loop: SimLoop) -> None:
        with contextlib.suppress(Exception):
            await reach()

    with pytest.raises(ExceptionGroup) as caught:
        simulate(main)
    assert caught.group_contains(NotSimulated, match="behind a seam")


async def test_a_simulation_inside_a_running_loop_is_refused() -> None:
    async def main(loop: SimLoop) -> None: ...

    with pytest.raises(RuntimeError, match="inside a running event loop"):
        simulate(main)


def test_a_callback_from_another_thread_is_refused() -> None:
    async def main(loop: SimLoop) -> list[str]:
        errors: list[str] = []

        def call() -> None:
            try:
                loop.call_soon_threadsafe(print)
            except RuntimeError as error:
                errors.append(str(error))

        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        return errors

    assert len(simulate(main).value) == 1
