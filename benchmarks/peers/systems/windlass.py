"""Windlass, on any of its storages. At least once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from benchmarks.peers import probe
from benchmarks.peers.protocol import Call, Command, Load
from windlass import Windlass

app = Windlass(probe.url())


@app.task(name="noop")
async def noop(recipient: str, subject: str, template_name: str, user: int) -> None:  # noqa: ARG001
    probe.ran(user)


@app.task(name="nap")
async def nap(seconds: float, number: int) -> None:
    probe.ran(number)
    await asyncio.sleep(seconds)


@app.task(name="pick_up")
async def pick_up(asked_at: float) -> None:
    probe.ran(asked_at)


_TASKS: dict[str, Any] = {"noop": noop, "nap": nap, "pick_up": pick_up}


class Client:
    """Implements `benchmarks.peers.protocol.Client`."""

    async def open(self) -> None:
        await app.__aenter__()

    async def enqueue(self, call: Call) -> None:
        await _TASKS[call.task].enqueue(**call.arguments)

    async def enqueue_many(self, calls: Sequence[Call]) -> None:
        await app.enqueue_many([_TASKS[call.task].call(**call.arguments) for call in calls])

    async def is_drained(self) -> bool:
        return not any(queue.ready or queue.running for queue in await app.admin.queues.counts())

    async def close(self) -> None:
        await app.close()


def worker(load: Load, number: int) -> Command:  # noqa: ARG001 -- workers name themselves
    slots = 200 if load == "noops" else 100
    words = ["windlass", "worker", f"{__name__}:app", "--slots", str(slots)]
    return Command([*words, "--log-level", "warning", "--no-summary"], slots)
