"""Huey on SQLite or Redis.

At most once: "Huey does not guarantee at-least-once delivery of messages, and does not do
acknowledgement of completed tasks" (Page consumer, "Consumer shutdown").
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from huey import RedisHuey, SqliteHuey

from benchmarks.peers import probe
from benchmarks.peers.protocol import Call, Command, Load

_FILE = "sqlite:///"

if probe.url().startswith(_FILE):
    # WAL by default, and SQLite's own default syncs every commit.
    huey = SqliteHuey("peers", filename=probe.url().removeprefix(_FILE))
else:
    huey = RedisHuey("peers", url=probe.url())


@huey.task(name="noop")
def noop(recipient: str, subject: str, template_name: str, user: int) -> None:  # noqa: ARG001
    probe.ran(user)


@huey.task(name="nap")
def nap(seconds: float, number: int) -> None:
    probe.ran(number)
    time.sleep(seconds)


@huey.task(name="pick_up")
def pick_up(asked_at: float) -> None:
    probe.ran(asked_at)


_TASKS = {"noop": noop, "nap": nap, "pick_up": pick_up}


class Client:
    """Implements `benchmarks.peers.protocol.Client`."""

    async def open(self) -> None:
        len(huey)

    async def enqueue(self, call: Call) -> None:
        _TASKS[call.task](**call.arguments)

    async def enqueue_many(self, calls: Sequence[Call]) -> None:
        # There is no call that stores many at once.
        for call in calls:
            _TASKS[call.task](**call.arguments)

    async def is_drained(self) -> bool:
        # A job leaves the queue when its run begins, so running jobs cannot be seen.
        return not len(huey)

    async def close(self) -> None:
        huey.storage.close()


def worker(load: Load, number: int) -> Command:  # noqa: ARG001 -- workers have no names
    # Page consumer, "Worker types": threads when in doubt, greenlets for waiting; threads were the
    # faster ones. Of 1, 2, 4 and 8 for jobs that do nothing, 4 were the fastest.
    threads = 4 if load == "noops" else 100
    # Page deployment: more than one consumer run with --no-periodic.
    words = ["huey_consumer", f"{__name__}.huey", "--quiet", "--no-periodic"]
    return Command([*words, "--worker-type", "thread", "--workers", str(threads)], threads)
