"""Dramatiq on Redis. At least once: a job is acknowledged when its actor has returned."""

from __future__ import annotations

import time
from collections.abc import Sequence

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from benchmarks.peers import probe
from benchmarks.peers.protocol import Call, Command, Load

# guide, "Redis Broker".
broker = RedisBroker(url=probe.url())
dramatiq.set_broker(broker)


@dramatiq.actor
def noop(recipient: str, subject: str, template_name: str, user: int) -> None:  # noqa: ARG001
    probe.ran(user)


@dramatiq.actor
def nap(seconds: float, number: int) -> None:
    probe.ran(number)
    time.sleep(seconds)


@dramatiq.actor
def pick_up(asked_at: float) -> None:
    probe.ran(asked_at)


_ACTORS = {"noop": noop, "nap": nap, "pick_up": pick_up}


class Client:
    """Implements `benchmarks.peers.protocol.Client`."""

    async def open(self) -> None:
        broker.client.ping()

    async def enqueue(self, call: Call) -> None:
        _ACTORS[call.task].send(**call.arguments)

    async def enqueue_many(self, calls: Sequence[Call]) -> None:
        # cookbook, "Composition": a group sends its messages one by one, as this does.
        for call in calls:
            _ACTORS[call.task].send(**call.arguments)

    async def is_drained(self) -> bool:
        # Messages stay in this hash until they are acknowledged.
        return not broker.client.hlen("dramatiq:default.msgs")

    async def close(self) -> None:
        broker.close()


def worker(load: Load, number: int) -> Command:  # noqa: ARG001 -- workers name themselves
    # guide, "Workers": eight threads per process by default. More of them fetch larger batches: 32
    # were twice as fast.
    threads = 32 if load == "noops" else 100
    words = ["dramatiq", __name__, "--processes", "1", "--threads", str(threads)]
    return Command(words, threads)
