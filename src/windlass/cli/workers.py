"""``windlass workers``: who works here, and who is believed dead."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from windlass.cli import worker_orders
from windlass.cli.commands import Commands
from windlass.cli.target import ask, json_option, place, target_argument, url_option

if TYPE_CHECKING:
    from windlass.app import Windlass
    from windlass.storage.protocol import WorkerRecord

__all__ = ["workers"]


@click.group(cls=Commands)
def workers() -> None:
    """Look at workers, let them rest, stop them."""


for _command in (worker_orders.quiet, worker_orders.resume, worker_orders.stop):
    workers.add_command(_command)


@workers.command("list")
@target_argument
@url_option
@json_option
def list_workers(target: str | None, url: str | None, *, as_json: bool) -> int:
    """Every worker, the newest first; also those that have left or died, for a while.

    \b
    live      it was heard of within its lease
    quiet     it was told to take nothing new
    stopping  it was told to stop
    silent    it was not heard of; others are about to take it for dead
    dead      it was taken for dead, and its jobs were given to others
    gone      it has left in order
    """  # noqa: D301 -- click's mark for lines that stay as they are
    from windlass.cli.tables import NUMBER, print_json, print_table

    async def question(app: Windlass) -> tuple[Sequence[WorkerRecord], datetime, str]:
        storage = await app.storage()
        return await app.admin.workers(), await storage.now(), storage.describe()

    found, now, described = ask(place(target, url), question)
    if as_json:
        print_json([_fields(worker, now) for worker in found])
    elif not found:
        click.echo(f"No worker is known in {described}. Start one: `windlass worker MODULE:APP`")
    else:
        titles = ("worker", "state", "host", f"{NUMBER}pid", "version", "queues")
        print_table(
            (*titles, f"{NUMBER}busy slots", f"{NUMBER}memory", f"{NUMBER}heard of"),
            (_row(worker, now) for worker in found),
        )
    return 0


def _row(worker: WorkerRecord, now: datetime) -> tuple[str, ...]:
    from windlass.cli.tables import left

    start = worker.start
    return (
        start.id,
        worker.standing(now).value,
        start.host,
        str(start.pid),
        start.version,
        ", ".join(start.queues),
        f"{worker.running:,} of {start.slots:,}",
        "–" if worker.memory is None else f"{worker.memory / 2**20:,.0f} MiB",
        f"{left(now, worker.beat_at)} ago",
    )


def _fields(worker: WorkerRecord, now: datetime) -> dict[str, Any]:
    """For machines; names stay as they are."""
    start = worker.start
    return {
        "id": start.id,
        "state": worker.standing(now).value,
        "host": start.host,
        "pid": start.pid,
        "version": start.version,
        "queues": list(start.queues),
        "slots": start.slots,
        "running": worker.running,
        "memory": worker.memory,
        "tasks": list(start.tasks),
        "clock_skew": None
        if start.clock is None
        else (start.clock - worker.started_at).total_seconds(),
        "lease": start.lease.total_seconds(),
        "started_at": worker.started_at,
        "beat_at": worker.beat_at,
        "beat_age": max((now - worker.beat_at).total_seconds(), 0.0),
        "ended_at": worker.ended_at,
    }
