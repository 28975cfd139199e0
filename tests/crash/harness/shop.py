"""The app that is killed: handlers that leave effects, and settings that notice death soon."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

from tests.crash.harness.effects import END, START, Effects
from windlass import Backoff, Context, Flow, Success, Windlass, ended
from windlass._tasks.task import Call, Task

SETTINGS = {
    "WINDLASS_HEARTBEAT": "300ms",
    "WINDLASS_LEASE": "1s",
    "WINDLASS_REAP_EVERY": "200ms",
    "WINDLASS_POLL": "100ms",
    "WINDLASS_MAX_ATTEMPTS": "25",
}
EFFECTS = "CRASH_EFFECTS"
"""The variable that names the file of effects."""


def halfway() -> None:
    """Where every handler comes past between its first and its last effect."""


class Shop:
    """An app with its tasks. Built anew in every process, from its environment."""

    def __init__(self, effects: str, url: str | None = None, **settings: Any) -> None:
        """Without a URL it is the environment that says where jobs live."""
        self.app = Windlass(url, **settings)
        self.effects = Effects(effects)
        self.tasks: dict[str, Task[..., object]] = {}
        for name, handler in (
            ("work", self._work),
            ("grind", self._grind),
            ("flaky", self._flaky),
            ("hold", self._hold),
            ("stand", self._stand),
            ("noop", self._noop),
            ("carry", self._carry),
            ("quit", self._quit),
        ):
            task = self.app.task(name=f"crash.{name}", backoff=Backoff.none())(handler)
            self.tasks[name] = task
        thank = self.app.task(name="crash.thank", backoff=Backoff.none())(self._thank)
        self.tasks["pay"] = self.app.task(
            name="crash.pay", backoff=Backoff.none(), on_success=thank
        )(self._pay)

    def call(
        self, name: str, *arguments: object, queue: str = "default", key: str | None = None
    ) -> Call[Any]:
        return self.tasks[name].options(queue=queue, key=key).call(*arguments)

    def flow(self, rows: int, failing: int = 0) -> Flow:
        """Draw a flow: rows, a sum of them, what runs however that ends, and a callback.

        Of the rows ``failing`` fail for good at their first run, and succeed at the second.
        """
        flow = Flow("storm", on_ended=self.call("work", 0.0))
        once = self.tasks["flaky"].options(max_attempts=1)
        group = flow.map_calls(
            [once.call(0.0) if n < failing else self.call("work", 0.001) for n in range(rows)],
            name="rows",
        )
        total = flow.add(self.call("work", 0.0), after=group, name="sum")
        flow.add(self.call("work", 0.0), after=ended(total), name="report")
        return flow

    async def _work(self, context: Context, seconds: float) -> int:
        """A coroutine that takes its time."""
        self.effects.write(START, context)
        await asyncio.sleep(seconds)
        halfway()
        self.effects.write(END, context)
        return context.claimed.claim.number

    async def _pay(self, context: Context, seconds: float) -> int:
        """The same, and a job follows its success."""
        return await self._work(context, seconds)

    async def _thank(self, context: Context, success: Success) -> int:
        """Hears of a success."""
        return await self._work(context, 0.0)

    def _grind(self, context: Context, seconds: float) -> int:
        """The same on a thread."""
        self.effects.write(START, context)
        time.sleep(seconds)
        halfway()
        self.effects.write(END, context)
        return context.claimed.claim.number

    async def _flaky(self, context: Context, seconds: float) -> int:
        """Fails as often as it succeeds."""
        self.effects.write(START, context)
        await asyncio.sleep(seconds)
        if context.claimed.claim.number % 2:
            self.effects.write(END, context)
            message = "this time not"
            raise ValueError(message)
        self.effects.write(END, context)
        return context.claimed.claim.number

    async def _hold(self, context: Context, gate: str) -> int:
        """Runs until somebody makes the file ``gate``."""
        self.effects.write(START, context)
        while not Path(gate).exists():  # noqa: ASYNC110 -- another process makes it
            await asyncio.sleep(0.01)
        halfway()
        self.effects.write(END, context)
        return context.claimed.claim.number

    def _stand(self, context: Context, gate: str) -> int:
        """The same on a thread, which nobody can interrupt."""
        self.effects.write(START, context)
        while not Path(gate).exists():
            time.sleep(0.01)
        halfway()
        self.effects.write(END, context)
        return context.claimed.claim.number

    async def _noop(self) -> None:
        """Nothing at all, as fast as possible."""

    async def _carry(self, context: Context, load: str) -> int:
        """Arguments that take room."""
        self.effects.write(START, context)
        self.effects.write(END, context)
        return context.claimed.claim.number

    async def _quit(self, context: Context, how: str, gate: str) -> int:
        """Ends the event loop of its worker once ``gate`` is there."""
        self.effects.write(START, context)
        while not Path(gate).exists():  # noqa: ASYNC110 -- another process makes it
            await asyncio.sleep(0.01)
        await WAYS_TO_QUIT[how]()
        self.effects.write(END, context)
        return context.claimed.claim.number


async def _exit_soon(code: int = 3) -> None:
    await asyncio.sleep(0.01)
    sys.exit(code)


async def _interrupt_soon() -> None:
    await asyncio.sleep(0.01)
    raise KeyboardInterrupt


async def _by_gather() -> None:
    await asyncio.gather(_exit_soon(0), asyncio.sleep(60))


async def _by_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(_interrupt_soon())


async def _by_wait_for() -> None:
    await asyncio.wait_for(_exit_soon(), 60)


async def _by_a_task_nobody_keeps() -> None:
    asyncio.create_task(_exit_soon())  # noqa: RUF006 -- that is the case
    await asyncio.sleep(60)


async def _by_callback() -> None:
    asyncio.get_running_loop().call_soon(sys.exit, 0)
    await asyncio.sleep(1)


async def _by_stop() -> None:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0.05)


async def _by_cancelling_all() -> None:
    for task in asyncio.all_tasks():
        task.cancel()
    await asyncio.sleep(60)


WAYS_TO_QUIT = {
    "gather": _by_gather,
    "group": _by_group,
    "wait_for": _by_wait_for,
    "unkept task": _by_a_task_nobody_keeps,
    "callback": _by_callback,
    "stop": _by_stop,
    "cancel all": _by_cancelling_all,
}


def from_environment() -> Shop:
    """The shop of this process."""
    return Shop(os.environ[EFFECTS])
