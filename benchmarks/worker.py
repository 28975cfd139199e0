"""The app under measurement, and the worker process that users run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from benchmarks.child import answer, requests
from windlass import Windlass
from windlass._app.parts import parts_of
from windlass._tasks.task import Call, Task
from windlass._worker.worker import Worker

if TYPE_CHECKING:  # its drivers and servers must not be in the memory of what is measured
    from benchmarks.place import Place

__all__ = ["App", "drained", "fill", "make_calls", "serve"]

CHUNK = 1_000
"""Calls per ``enqueue_many``, as the yardstick's insert has rows per transaction."""
_LOOK = 0.005
_STILL = 0.2


class App:
    """An app with three tasks. Its arguments are as large as the yardstick's payload."""

    def __init__(self, url: str) -> None:
        self.windlass = Windlass(url)
        self.picked_up: list[float] = []

        @self.windlass.task(name="noop")
        async def noop(recipient: str, subject: str, template_name: str, user: int) -> None:
            """Do nothing."""

        @self.windlass.task(name="nap")
        async def nap(seconds: float) -> None:
            await asyncio.sleep(seconds)

        @self.windlass.task(name="pick_up")
        async def pick_up(asked_at: float) -> None:
            self.picked_up.append(time.monotonic() - asked_at)

        self.noop, self.nap, self.pick_up = noop, nap, pick_up


def make_calls(task: Task[..., Any], count: int) -> list[Call[Any]]:
    """Make calls as different from each other as real ones."""
    return [
        task.call(f"{number}@example.com", "Your order is on its way", "shipped", number)
        for number in range(count)
    ]


async def fill(place: Place, url: str, calls_of: Calls) -> None:
    """Store calls where there are none yet and leave it as small and quiet as the yardstick's."""
    app = App(url)
    async with app.windlass:
        await store(app.windlass, calls_of(app))
    place.settle(url)


class Calls(Protocol):
    """What to fill a place with."""

    def __call__(self, app: App) -> Sequence[Call[Any]]: ...


async def store(app: Windlass, calls: Sequence[Call[Any]]) -> None:
    """``enqueue_many``, a thousand at a time."""
    for start in range(0, len(calls), CHUNK):
        await app.enqueue_many(calls[start : start + CHUNK])


async def serve(url: str, slots: int) -> None:
    """Serve as a worker with default settings except the slots, by requests.

    ``"start"`` begins to work and answers with the instant before that; ``"drained"`` answers when
    nothing is left to do, with the instant of the last stored finish and the number of finishes;
    ``{"finished": n}`` answers when that many are stored, with the instant; ``"picked up"`` answers
    with the seconds that `App.pick_up` took to be started.

    Instants are on the machine's monotonic clock, which all of its processes share.
    """
    app = App(url)
    storage = await parts_of(app.windlass).storage()
    asked = requests()
    answer("ready")
    async for request in asked:
        assert request == "start"  # noqa: S101
        began = time.monotonic()
        async with app.windlass.worker(slots=slots) as worker:
            answer(began)
            async for question in asked:
                match question:
                    case "drained":
                        answer(await drained(worker, storage))
                    case {"finished": count}:
                        await _finished(worker, count)
                        answer(time.monotonic())
                    case "picked up":
                        answer(app.picked_up)
    await app.windlass.close()


async def drained(worker: Worker, storage: Any) -> tuple[float, int]:
    """Wait for the last finish. The finisher counts a success when it is committed, so reading
    there costs next to nothing.
    """
    counts = worker.engine.finisher.counts
    done, changed = counts["succeed"], time.monotonic()
    while True:
        await asyncio.sleep(_LOOK)
        now = time.monotonic()
        if counts["succeed"] != done:
            done, changed = counts["succeed"], now
        elif now - changed > _STILL:
            queues = await storage.admin.counts()
            if not any(queue.ready or queue.running for queue in queues):
                return changed, done


async def _finished(worker: Worker, count: int) -> None:
    while worker.engine.finisher.counts["succeed"] < count:  # noqa: ASYNC110 -- nobody tells
        await asyncio.sleep(_LOOK)
