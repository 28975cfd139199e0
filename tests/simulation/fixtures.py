"""Worlds to simulate."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tests.simulation.framework.loop import Result, SimLoop, run

Main = Callable[[SimLoop], Coroutine[Any, Any, Any]]


def simulate(main: Main, *, seed: int = 1, limit: float = 10_000) -> Result[Any]:
    return run(main, seed=seed, limit=limit)


async def busy_world(loop: SimLoop) -> None:
    """Everything whose order could come from an address, a hash or a clock."""
    store: dict[str, int] = {}
    for _ in range(40):
        alive = [process for process in loop.processes if process.alive]
        match loop.chance.choice(["spawn", "kill", "pause", "resume"]):
            case "spawn":
                loop.spawn_process(f"worker-{len(loop.processes)}", lambda: work(loop, store))
            case "kill" if alive:
                loop.chance.choice(alive).kill()
            case "pause" if alive:
                loop.chance.choice(alive).pause()
            case "resume" if alive:
                loop.chance.choice(alive).resume()
            case _:
                pass
        await asyncio.sleep(loop.chance.random() * 5)


async def work(loop: SimLoop, store: dict[str, int]) -> None:
    while True:
        tasks: list[asyncio.Task[None]] = []
        try:
            async with asyncio.TaskGroup() as group:
                tasks += [group.create_task(member(loop, store, n)) for n in range(10)]
        except ExceptionGroup as errors:
            loop.trace(f"{len(errors.exceptions)} late")
        for task in set(tasks):
            loop.trace(f"{task.get_name()} {task.cancelled()}")
        await asyncio.sleep(loop.chance.random())


async def member(loop: SimLoop, store: dict[str, int], number: int) -> None:
    try:
        async with asyncio.timeout(loop.chance.random() * 3):
            count = await increment(loop, store, str(number % 5))
        loop.trace(f"member {number}: {count}")
    except TimeoutError:
        loop.trace(f"member {number} is late")
        raise


async def increment(loop: SimLoop, store: dict[str, int], key: str) -> int:
    """A call of a store that goes on when its caller dies."""
    reply: asyncio.Future[int] = loop.create_future()

    def execute() -> None:
        store[key] = store.get(key, 0) + 1
        loop.trace(f"store {key}={store[key]}")
        if not reply.done():
            reply.set_result(store[key])

    loop.call_as(None, loop.call_later, loop.chance.random(), execute)
    return await reply
