"""Simulated processes: how they live, stop and die."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.simulation.fixtures import simulate
from tests.simulation.framework.loop import (
    PROCESS,
    Deadlock,
    ProcessState,
    SimLoop,
)

# --- kill ------------------------------------------------------------------------------------


def test_a_killed_process_runs_no_finally_and_no_except() -> None:
    last_words: list[str] = []

    @contextlib.asynccontextmanager
    async def claim() -> AsyncIterator[None]:
        try:
            yield
        finally:
            last_words.append("async with")

    @contextlib.contextmanager
    def lock() -> Any:
        try:
            yield
        finally:
            last_words.append("with")

    async def beat() -> None:
        try:
            for _ in range(1000):
                await asyncio.sleep(1)
        except BaseException:
            last_words.append("except")
            raise

    async def work() -> None:
        async with asyncio.TaskGroup() as group, claim():
            with lock():
                group.create_task(beat())
                group.create_task(beat())
                try:
                    await asyncio.sleep(100)
                finally:
                    last_words.append("finally")

    async def main(loop: SimLoop) -> list[str]:
        process = loop.spawn_process("worker", work)
        await asyncio.sleep(10)
        process.kill()
        process.kill()
        assert (process.alive, process.state) == (False, ProcessState.KILLED)
        await process.join()
        await asyncio.sleep(500)
        gc.collect()
        return list(last_words)

    assert simulate(main).value == []


def test_a_killed_process_is_silent_also_when_nothing_else_refers_to_it() -> None:
    last_words: list[str] = []

    async def deep(event: asyncio.Event) -> AsyncIterator[int]:
        try:
            yield 1
            await event.wait()
            yield 2
        finally:
            last_words.append("async generator")

    async def work() -> None:
        event = asyncio.Event()  # known here alone: task, event and generator are one cycle
        try:
            async for _ in deep(event):
                pass
        finally:
            last_words.append("finally")
            await asyncio.sleep(0)

    async def main(loop: SimLoop) -> list[str]:
        process = loop.spawn_process("worker", work)
        await asyncio.sleep(1)
        process.kill()
        loop.processes.clear()
        del process
        gc.collect()
        await asyncio.sleep(1)
        gc.collect()
        return list(last_words)

    assert simulate(main).value == []


def test_what_only_a_dropped_callback_refers_to_is_silent_too() -> None:
    last_words: list[str] = []

    def numbers() -> Iterator[int]:
        try:
            yield 1
            yield 2
        finally:
            last_words.append("finally")

    def begun(generator: Iterator[int]) -> Iterator[int]:
        next(generator)
        return generator

    async def main(loop: SimLoop) -> list[str]:
        async def work() -> None:
            for delay in (5, 50):
                loop.call_later(delay, next, begun(numbers()))
            await asyncio.sleep(100)

        process = loop.spawn_process("worker", work)
        await asyncio.sleep(1)
        process.pause()
        await asyncio.sleep(10)
        process.kill()
        await asyncio.sleep(100)
        gc.collect()
        return list(last_words)

    assert simulate(main).value == []


@pytest.mark.parametrize("moment", ["during the run", "after the run"])
def test_an_async_generator_of_a_killed_process_is_never_finished_by_others(moment: str) -> None:
    last_words: list[str] = []
    shared: list[AsyncIterator[int]] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            last_words.append("finally")

    async def work() -> None:
        shared.append(numbers())
        await anext(shared[0])
        await asyncio.sleep(100)

    async def main(loop: SimLoop) -> None:
        process = loop.spawn_process("worker", work)
        await asyncio.sleep(1)
        process.kill()
        if moment == "during the run":
            shared.clear()
            gc.collect()
            await asyncio.sleep(1)

    simulate(main)
    shared.clear()
    gc.collect()
    assert last_words == []


def test_callbacks_and_timers_of_a_killed_process_are_dropped() -> None:
    async def main(loop: SimLoop) -> list[str]:
        seen: list[str] = []
        reply = loop.create_future()

        async def work() -> None:
            loop.call_later(5, seen.append, "timer")
            reply.add_done_callback(lambda _: seen.append("done callback"))
            await reply
            seen.append("went on")

        process = loop.spawn_process("worker", work)
        await asyncio.sleep(1)
        loop.call_as(process, seen.append, "queued before the kill")
        process.kill()
        loop.call_as(process, seen.append, "queued after the kill")
        reply.set_result(None)
        await asyncio.sleep(100)
        return seen

    assert simulate(main).value == []


def test_timers_of_a_killed_process_do_not_keep_the_world_going() -> None:
    async def main(loop: SimLoop) -> None:
        process = loop.spawn_process("worker", lambda: asyncio.sleep(100))
        await asyncio.sleep(1)
        process.kill()
        await asyncio.Event().wait()

    with pytest.raises(Deadlock) as caught:
        simulate(main)
    assert "virtual second 1.0" in caught.value.__notes__[0]


def test_what_a_killed_process_has_sent_still_arrives() -> None:
    async def main(loop: SimLoop) -> list[str]:
        arrived: list[str] = []

        async def work() -> None:
            loop.call_as(None, loop.call_later, 5, arrived.append, "sent")
            await asyncio.sleep(100)

        process = loop.spawn_process("worker", work)
        await asyncio.sleep(1)
        process.kill()
        await asyncio.sleep(10)
        return arrived

    assert simulate(main).value == ["sent"]


def test_a_process_can_crash_at_an_exact_point() -> None:
    seen: list[str] = []

    async def work() -> None:
        process = PROCESS.get()
        assert process is not None
        try:
            with pytest.raises(RuntimeError, match="await crash"):
                process.kill()
            seen.append("before")
            await process.crash()
        finally:
            seen.append("after")

    async def main(loop: SimLoop) -> list[str]:
        process = loop.spawn_process("worker", work)
        await process.join()
        gc.collect()
        assert process.state is ProcessState.KILLED
        with pytest.raises(RuntimeError, match="outside it is kill"):
            await process.crash()
        return list(seen)

    assert simulate(main).value == ["before"]


def test_the_world_is_told_when_a_process_is_gone() -> None:
    async def main(loop: SimLoop) -> list[tuple[str, object]]:
        gone: list[tuple[str, object]] = []

        async def forever() -> None:
            await asyncio.Event().wait()

        async def crash() -> None:
            process = PROCESS.get()
            assert process is not None
            await process.crash()

        async def end() -> None: ...

        def note(name: str) -> None:
            gone.append((name, PROCESS.get()))

        for name, body in {"killed": forever, "crashed": crash, "ended": end}.items():
            loop.spawn_process(name, body).at_end(functools.partial(note, name))
        await asyncio.sleep(1)
        loop.processes[0].kill()
        return gone

    assert simulate(main).value == [("crashed", None), ("ended", None), ("killed", None)]


# --- pause -----------------------------------------------------------------------------------


def test_a_paused_process_is_held_and_continues_in_order() -> None:
    async def main(loop: SimLoop) -> None:
        seen: list[tuple[float, str]] = []

        def note(name: str) -> None:
            seen.append((loop.time(), name))

        async def work() -> None:
            for name, delay in [("late", 30.0), ("early", 20.0), ("soon", 2.0), ("after", 200.0)]:
                loop.call_later(delay, note, name)
            await asyncio.sleep(1000)

        process = loop.spawn_process("worker", work)
        await asyncio.sleep(10)
        process.pause()
        process.pause()
        assert (process.alive, process.paused) == (True, True)
        loop.call_as(process, note, "queued")
        await asyncio.sleep(90)
        assert seen == [(2, "soon")]
        process.resume()
        process.resume()
        assert (process.alive, process.paused) == (True, False)
        await asyncio.sleep(0)
        assert seen == [(2, "soon"), (100, "queued"), (100, "early"), (100, "late")]
        await asyncio.sleep(150)
        assert seen[-1] == (200, "after")

    simulate(main)


def test_a_pause_and_resume_within_one_instant_keep_the_order() -> None:
    async def main(loop: SimLoop) -> list[str]:
        seen: list[str] = []
        process = loop.spawn_process("worker", lambda: asyncio.sleep(1))
        process.pause()
        loop.call_as(process, seen.append, "first")
        loop.call_as(process, seen.append, "second")
        loop.call_as(None, process.resume)
        loop.call_as(process, seen.append, "third")
        await process.join()
        return seen

    assert simulate(main).value == ["first", "second", "third"]


def test_a_timeout_that_ran_out_during_a_pause_is_found_at_resume() -> None:
    async def main(loop: SimLoop) -> None:
        async def work() -> None:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(5):
                    await asyncio.sleep(7)
            assert loop.time() == 50

        process = loop.spawn_process("worker", work)
        await asyncio.sleep(1)
        process.pause()
        await asyncio.sleep(49)
        process.resume()
        await process.join()

    simulate(main)


def test_a_paused_process_can_be_killed_and_stays_dead() -> None:
    async def main(loop: SimLoop) -> None:
        async def work() -> None:
            await asyncio.sleep(5)
            raise AssertionError("ran after its death")

        process = loop.spawn_process("worker", work)
        await asyncio.sleep(1)
        process.pause()
        await asyncio.sleep(9)
        process.kill()
        process.resume()
        await asyncio.sleep(10)
        assert process.state is ProcessState.KILLED

    simulate(main)


# --- processes -------------------------------------------------------------------------------


def test_every_task_and_callback_of_a_process_knows_it() -> None:
    async def main(loop: SimLoop) -> set[str]:
        names: list[str] = []

        def note(*_: object) -> None:
            process = PROCESS.get()
            names.append(process.name if process else "world")

        async def child() -> None:
            note()
            loop.call_soon(note)
            loop.call_later(1, note)
            asyncio.current_task().add_done_callback(note)  # type: ignore[union-attr]

        async def work() -> None:
            await asyncio.gather(child(), child())
            await asyncio.sleep(2)

        await loop.spawn_process("worker", work).join()
        assert len(names) == 8
        return set(names)

    assert simulate(main).value == {"worker"}


def test_a_process_that_ends_cancels_the_tasks_it_left() -> None:
    async def main(loop: SimLoop) -> list[str]:
        seen: list[str] = []

        async def background(name: str) -> None:
            try:
                await asyncio.sleep(100)
            finally:
                await asyncio.sleep(1)
                seen.append(name)

        async def work() -> None:
            tasks = [asyncio.create_task(background(name)) for name in "abc"]
            await asyncio.sleep(1)
            assert not any(task.done() for task in tasks)

        process = loop.spawn_process("worker", work)
        await process.join()
        assert (process.state, loop.time()) == (ProcessState.EXITED, 2)
        return seen

    assert simulate(main).value == ["a", "b", "c"]


def test_sys_exit_ends_its_process_and_no_other() -> None:
    async def main(loop: SimLoop) -> None:
        async def leave(code: int) -> None:
            asyncio.create_task(asyncio.sleep(9))  # noqa: RUF006 -- it shall go down with the rest
            sys.exit(code)

        good = loop.spawn_process("good", lambda: leave(0))
        bad = loop.spawn_process("bad", lambda: leave(3))
        await good.join()
        with pytest.raises(SystemExit):
            await bad.join()
        assert good.state is bad.state is ProcessState.EXITED

    simulate(main)


def test_a_process_inherits_the_context_of_its_parent() -> None:
    async def main(loop: SimLoop) -> list[str]:
        async def grandchild() -> None:
            loop.trace("here")

        async def child() -> None:
            await loop.spawn_process("grandchild", grandchild).join()

        await loop.spawn_process("child", child).join()
        return [f"{entry.process}: {entry.line}" for entry in loop.log]

    assert simulate(main).value == [
        "world: spawn child",
        "child: spawn grandchild",
        "grandchild: here",
        "grandchild: exit",
        "child: exit",
    ]
