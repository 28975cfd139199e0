"""RQ on Redis.

At least once for jobs that ask for retries, as these do. A job whose worker was killed runs again
when the maintenance of another worker finds it, within ten minutes and a bit.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from redis import Redis
from rq import Queue, Retry, Worker

from benchmarks.peers import probe
from benchmarks.peers.protocol import Call, Command, Load

# Page exceptions, "Retrying Failed Jobs". An abandoned job without retries is filed as failed.
_RETRY = Retry(max=3)


def noop(recipient: str, subject: str, template_name: str, user: int) -> None:  # noqa: ARG001
    probe.ran(user)


def nap(seconds: float, number: int) -> None:
    probe.ran(number)
    time.sleep(seconds)


def pick_up(asked_at: float) -> None:
    probe.ran(asked_at)


class Client:
    """Implements `benchmarks.peers.protocol.Client`."""

    async def open(self) -> None:
        self._redis = Redis.from_url(probe.url())
        self._queue = Queue(connection=self._redis)

    async def enqueue(self, call: Call) -> None:
        self._queue.enqueue(_path(call), kwargs=call.arguments, retry=_RETRY)

    async def enqueue_many(self, calls: Sequence[Call]) -> None:
        # Page index, "Bulk Job Enqueueing".
        self._queue.enqueue_many(
            [Queue.prepare_data(_path(call), kwargs=call.arguments, retry=_RETRY) for call in calls]
        )

    async def is_drained(self) -> bool:
        started = self._queue.started_job_registry
        return not self._queue.count and not started.get_job_count(cleanup=False)

    async def close(self) -> None:
        self._redis.close()


def _path(call: Call) -> str:
    return f"{__name__}.{call.task}"


def worker(load: Load, number: int) -> Command:  # noqa: ARG001 -- workers name themselves
    # Page workers, "Performance Notes": a separate script imports the tasks before the fork.
    # One job at a time: "If you want to perform jobs concurrently, simply start more workers".
    return Command(["python", "-c", f"from {__name__} import work; work()"], slots=1)


def work() -> None:
    """Run jobs in the worker that RQ starts by default, which forks for each of them."""
    Worker(["default"], connection=Redis.from_url(probe.url())).work(logging_level="WARNING")
