"""Celery on Redis.

At least once, as configured here. A worker that was killed gives its jobs back after the visibility
timeout, an hour by default.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from celery import Celery, group

from benchmarks.peers import probe
from benchmarks.peers.protocol import Call, Command, Load

app = Celery("peers", broker=probe.url())
app.conf.update(
    # userguide/optimizing, "Reserve one task at a time": a job whose worker dies runs again.
    task_acks_late=True,
    # userguide/tasks: without it, a job whose child process was killed counts as done.
    task_reject_on_worker_lost=True,
    # userguide/optimizing, "Prefetch Limits": 64 or 128 where tasks are short and many.
    worker_prefetch_multiplier=128,
    # userguide/tasks, "Ignore results you don't want".
    task_ignore_result=True,
    broker_connection_retry_on_startup=True,
)


@app.task(name="noop")
def noop(recipient: str, subject: str, template_name: str, user: int) -> None:  # noqa: ARG001
    probe.ran(user)


@app.task(name="nap")
def nap(seconds: float, number: int) -> None:
    probe.ran(number)
    time.sleep(seconds)


@app.task(name="pick_up")
def pick_up(asked_at: float) -> None:
    probe.ran(asked_at)


_TASKS = {"noop": noop, "nap": nap, "pick_up": pick_up}


class Client:
    """Implements `benchmarks.peers.protocol.Client`."""

    async def open(self) -> None:
        self._connection = app.connection_for_write()
        self._redis = self._connection.channel().client

    async def enqueue(self, call: Call) -> None:
        _TASKS[call.task].apply_async(kwargs=call.arguments)

    async def enqueue_many(self, calls: Sequence[Call]) -> None:
        # userguide/calling, "Connections": many calls are "much better expressed as a group". It
        # keeps one connection and sends them one by one.
        group(_TASKS[call.task].s(**call.arguments) for call in calls).apply_async()

    async def is_drained(self) -> bool:
        return not self._redis.llen("celery") and not self._redis.hlen("unacked")

    async def close(self) -> None:
        self._connection.close()


def worker(load: Load, number: int) -> Command:
    # userguide/concurrency: prefork is "recommended for most users". For waiting it names greenlets
    # and threads; threads were the faster ones.
    pool, slots = ("prefork", 1) if load == "noops" else ("threads", 100)
    words = ["celery", "-A", __name__, "worker", "--hostname", f"bench{number}@%h"]
    return Command([*words, "--pool", pool, "--concurrency", str(slots)], slots)
