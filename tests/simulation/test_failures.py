"""A failure anywhere in the simulated world surfaces, and nothing else stays behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import sys
import weakref
from collections.abc import Coroutine
from typing import Any

import pytest

from tests.simulation.fixtures import simulate
from tests.simulation.framework.loop import (
    Deadlock,
    Overrun,
    SimLoop,
)

# --- failures surface ------------------------------------------------------------------------


def failing() -> Coroutine[Any, Any, None]:
    async def fail() -> None:
        await asyncio.sleep(1)
        raise ValueError("broken")

    return fail()


def test_an_error_of_main_comes_out_of_run() -> None:
    with pytest.raises(ValueError, match="broken") as caught:
        simulate(lambda loop: failing(), seed=5)
    assert "seed 5, virtual second 1.0" in caught.value.__notes__[0]


def test_an_error_in_a_process_is_kept_and_surfaces_at_the_end() -> None:
    async def main(loop: SimLoop) -> None:
        process = loop.spawn_process("worker", failing)
        await asyncio.sleep(10)
        assert isinstance(process.error, ValueError)
        assert not process.alive

    with pytest.raises(ExceptionGroup) as caught:
        simulate(main)
    assert caught.group_contains(ValueError, match="broken")
    assert "worker: exit: ValueError('broken')" in caught.value.__notes__[0]


def test_an_error_that_join_has_raised_does_not_surface_again() -> None:
    async def main(loop: SimLoop) -> None:
        with pytest.raises(ValueError, match="broken"):
            await loop.spawn_process("worker", failing).join()

    simulate(main)


def test_an_error_in_a_process_is_told_beside_the_deadlock_it_led_to() -> None:
    async def main(loop: SimLoop) -> None:
        loop.spawn_process("worker", failing)
        await asyncio.Event().wait()

    with pytest.raises(Deadlock) as caught:
        simulate(main)
    assert "ValueError: broken" in caught.value.__notes__[1]


@pytest.mark.parametrize("place", ["callback", "task", "at_end"])
def test_an_error_that_nobody_sees_surfaces(place: str) -> None:
    def fail() -> None:
        raise ValueError("broken")

    async def main(loop: SimLoop) -> None:
        async def work() -> None:
            if place == "callback":
                loop.call_soon(fail)
            if place == "task":
                asyncio.create_task(failing())  # noqa: RUF006 -- nobody shall know it
            await asyncio.sleep(5)

        process = loop.spawn_process("worker", work)
        if place == "at_end":
            process.at_end(fail)
        await process.join()

    with pytest.raises(ExceptionGroup) as caught:
        simulate(main)
    assert caught.group_contains(ValueError, match="broken")


def test_an_error_in_the_cleanup_of_the_world_surfaces() -> None:
    async def main(loop: SimLoop) -> None:
        async def linger() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await failing()

        task = asyncio.create_task(linger())
        await asyncio.sleep(0)
        assert not task.done()

    with pytest.raises(ExceptionGroup) as caught:
        simulate(main)
    assert caught.group_contains(ValueError, match="broken")


def test_a_task_that_failed_long_ago_and_that_nobody_asked_surfaces() -> None:
    async def main(loop: SimLoop) -> None:
        async def knot() -> None:
            me = asyncio.current_task()
            try:
                await failing()
            except ValueError as error:
                error.args = ("broken", me)  # a cycle: no reference count will find it
                raise

        asyncio.create_task(knot())  # noqa: RUF006 -- nobody shall know it
        for _ in range(5000):
            await asyncio.create_task(asyncio.sleep(1))

    with pytest.raises(ExceptionGroup) as caught:
        simulate(main)
    assert caught.group_contains(ValueError, match="broken")


def test_an_error_nobody_fetched_in_a_killed_process_is_nobodys_business() -> None:
    async def main(loop: SimLoop) -> None:
        requests: list[asyncio.Future[None]] = []

        async def work() -> None:
            asyncio.create_task(failing())  # noqa: RUF006 -- nobody shall know it
            await asyncio.sleep(5)

        async def request() -> None:
            requests.append(loop.create_future())
            await asyncio.sleep(5)

        for body in (work, request):
            process = loop.spawn_process("worker", body)
            loop.call_later(2, process.kill)
        await asyncio.sleep(10)
        requests.pop().set_exception(ValueError("nobody reads this answer"))

    simulate(main)


def test_an_error_nobody_fetched_in_a_living_process_surfaces() -> None:
    async def main(loop: SimLoop) -> None:
        async def work() -> None:
            loop.create_future().set_exception(ValueError("broken"))

        await loop.spawn_process("worker", work).join()

    with pytest.raises(ExceptionGroup) as caught:
        simulate(main)
    assert caught.group_contains(ValueError, match="broken")


# --- nothing is left -------------------------------------------------------------------------


class Belonging:
    """Something a process owns."""


def test_nothing_of_a_run_is_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="asyncio")
    belongings: weakref.WeakSet[Belonging] = weakref.WeakSet()
    loops: weakref.WeakSet[SimLoop] = weakref.WeakSet()

    async def stubborn() -> None:
        mine = Belonging()
        belongings.add(mine)
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(1)
            asyncio.create_task(asyncio.sleep(1))  # noqa: RUF006 -- fails: the loop is gone
            raise ValueError(mine)

    async def forgetful() -> None:
        knot: list[Any] = [asyncio.sleep(1)]
        knot.append(knot)
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: pytest.fail(str(context)))
        loop.call_later(500, print, asyncio.sleep(1))
        loop.call_later(500, print, knot)
        await asyncio.sleep(1000)

    async def main(loop: SimLoop) -> None:
        loops.add(loop)
        loop.call_later(2, loop.spawn_process("d", forgetful).kill)
        killed, paused, _ = (loop.spawn_process(name, stubborn) for name in "abc")
        task = asyncio.create_task(asyncio.sleep(1000))
        await asyncio.sleep(1)
        killed.kill()
        paused.pause()
        await asyncio.sleep(2000)
        assert task.done()
        assert len(belongings) == 3
        with pytest.raises(ValueError, match="Belonging"):
            await loop.processes[3].join()
        assert [process.error for process in loop.processes[:3]] == [None] * 3

    simulate(main)
    assert not belongings
    assert not loops
    assert caplog.records == []


def test_the_interpreter_is_left_as_it_was() -> None:
    async def main(loop: SimLoop) -> bool:
        loop.spawn_process("worker", lambda: asyncio.sleep(100))
        await asyncio.sleep(1)
        assert asyncio.get_running_loop() is loop
        return gc.isenabled()

    hooks = sys.get_asyncgen_hooks()
    unraisable = sys.unraisablehook
    assert simulate(main).value is False
    assert gc.isenabled()
    assert sys.get_asyncgen_hooks() == hooks
    assert sys.unraisablehook is unraisable
    with pytest.raises(RuntimeError, match="no running event loop"):
        asyncio.get_running_loop()


def test_a_task_of_the_world_that_will_not_end_is_reported_and_freed() -> None:
    async def main(loop: SimLoop) -> None:
        async def stubborn() -> None:
            while True:
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(10)

        task = asyncio.create_task(stubborn())
        await asyncio.sleep(1)
        assert not task.done()

    with pytest.raises(ExceptionGroup) as caught:
        simulate(main)
    assert caught.group_contains(Overrun)
