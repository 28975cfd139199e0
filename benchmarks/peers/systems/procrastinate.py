"""Procrastinate on PostgreSQL.

At least once with the periodic task that its documentation gives, as here. A job whose worker was
killed runs again within ten minutes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import uvloop
from procrastinate import App, PsycopgConnector

from benchmarks.peers import probe
from benchmarks.peers.protocol import Call, Command, Load

# Its command line takes a new loop of the current policy.
asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())

# Page discussions, "Mind the size of your PostgreSQL pool": with short jobs as many connections as
# jobs at once, plus one. Four is the pool's own minimum.
app = App(connector=PsycopgConnector(conninfo=probe.url(), max_size=max(4, probe.slots() + 1)))


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


# Page howto/production/retry_stalled_jobs: without it, such jobs "will remain in the queue
# forever".
@app.periodic(cron="*/10 * * * *")
@app.task(queueing_lock="retry_stalled_jobs", pass_context=True)
async def retry_stalled_jobs(context: Any, timestamp: int) -> None:  # noqa: ARG001
    for job in await app.job_manager.get_stalled_jobs():
        await app.job_manager.retry_job(job)


_TASKS = {"noop": noop, "nap": nap, "pick_up": pick_up}
_LEFT = "SELECT 1 FROM procrastinate_jobs WHERE status IN ('todo', 'doing') LIMIT 1"


class Client:
    """Implements `benchmarks.peers.protocol.Client`."""

    async def open(self) -> None:
        await app.open_async()
        await app.schema_manager.apply_schema_async()

    async def enqueue(self, call: Call) -> None:
        await _TASKS[call.task].defer_async(**call.arguments)

    async def enqueue_many(self, calls: Sequence[Call]) -> None:
        # Page howto/basics/batch_defer.
        await _TASKS[calls[0].task].batch_defer_async(*(call.arguments for call in calls))

    async def is_drained(self) -> bool:
        return not await app.connector.execute_query_all_async(_LEFT)

    async def close(self) -> None:
        await app.close_async()


def worker(load: Load, number: int) -> Command:  # noqa: ARG001 -- workers name themselves
    # Page howto/production/concurrency: 30 is its example, and was faster than 10 and 100.
    slots = 30 if load == "noops" else 100
    return Command(
        ["procrastinate", f"--app={__name__}.app", "worker", f"--concurrency={slots}"], slots
    )
