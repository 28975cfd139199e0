"""One worker in virtual time, on the stores that can live in it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

from tests.worker.fixtures import World, working
from tests.worker.fixtures import simulate as simulated
from windlass._app.parts import parts_of
from windlass._storage.sqlite.io.connection import MemorySource
from windlass._storage.sqlite.storage import open_in_memory
from windlass._tasks.task import Task

NEVER = timedelta(days=1)
"""A poll that no scenario lives to see: what only a poll would find is not delivered."""

Scenario = Callable[[World], Coroutine[Any, Any, None]]


def simulate(store: str, scenario: Scenario, **settings: Any) -> None:
    """Play a scenario with one app on ``memory`` or ``sqlite``."""

    async def play(world: World) -> None:
        if store == "sqlite":
            source = MemorySource()

            async def opened() -> Any:
                return await open_in_memory(source, clock=world.clock)

            parts_of(world.app).connections.opener.open = opened  # type: ignore[method-assign]
        await scenario(world)

    simulated(play, **{"poll": NEVER, **settings})


def speaker(world: World, *, seconds: float = 0.0, **options: Any) -> Task[[str], None]:
    """A task that notes its word when it starts, and takes some time."""

    @world.app.task(name=f"speak-{len(world.app.tasks)}", **options)
    async def speak(word: str) -> None:
        world.say(word)
        await asyncio.sleep(seconds)

    return speak


async def enqueue(world: World, task: Task[[str], None], count: int, word: str = "") -> None:
    """Enqueue a task with ``word`` and a number, so many times."""
    await world.app.enqueue_many([task.call(f"{word}{number}") for number in range(count)])


def times(world: World, word: str = "") -> list[float]:
    """When the starts of a word were."""
    return [at for at, said in world.seen if re.fullmatch(rf"{word}\d*", said)]


__all__ = ["NEVER", "Scenario", "World", "enqueue", "simulate", "speaker", "times", "working"]
