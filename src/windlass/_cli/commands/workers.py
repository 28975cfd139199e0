"""``windlass workers``: who works here, and who is believed dead."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from windlass._app.parts import parts_of
from windlass._cli.options import name_completion
from windlass._cli.options.groups import SuggestingGroup, with_options
from windlass._cli.options.target import (
    json_option,
    run_on_target,
    target_and_names,
    target_argument,
    target_of,
    url_option,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from windlass._app.app import Windlass
    from windlass._storage.protocol.workers import WorkerRecord


__all__ = ["quiet", "resume", "stop", "workers"]


def _options(command: Callable[..., int]) -> Callable[..., int]:
    """Which workers: by name, or all that match."""
    return with_options(
        command,
        click.argument(
            "words",
            metavar="[MODULE:APP] WORKER...",
            nargs=-1,
            shell_complete=name_completion.workers,
        ),
        click.option("--all", "every", is_flag=True, help="Every worker that is live."),
        click.option("--host", metavar="HOST", help="With --all: those on this machine."),
        click.option(
            "--queue",
            metavar="QUEUE",
            help="With --all: those that serve this queue.",
            shell_complete=name_completion.queues,
        ),
        click.option("--yes", is_flag=True, help="Do not ask."),
        url_option,
        json_option,
    )


@click.command()
@_options
def quiet(**given: Any) -> int:
    """Take nothing new; what runs goes on. The worker stays, and `resume` undoes it."""
    return _order("quiet", given)


@click.command()
@_options
def resume(**given: Any) -> int:
    """Undo quiet."""
    return _order("resume", given)


@click.command()
@_options
def stop(**given: Any) -> int:
    """Leave in order, as after SIGTERM: running jobs may end, the rest is given back.

    A supervisor of `windlass worker --processes` does not replace it; systemd or Kubernetes may.
    """
    return _order("stop", given)


def _order(verb: str, given: dict[str, Any]) -> int:
    from windlass._cli.output.tables import print_json

    words, every = given["words"], given["every"]
    if not every and (given["host"] or given["queue"]):
        raise click.UsageError("--host and --queue go with --all")
    if every and (len(words) > 1 or (words and ":" not in words[0])):
        raise click.UsageError("name workers, or say --all, not both")
    if every:
        where = target_of(words[0] if words else None, given["url"])
        names = run_on_target(where, lambda app: _matching(app, given, verb))
        if not names:
            raise click.ClickException(
                "no live worker matches. Those that work here: `windlass workers list`"
            )
    else:
        where, names = target_and_names(words, given["url"], "worker")
    if verb == "stop" and not given["yes"]:
        what = f"worker {names[0]}" if len(names) == 1 else f"{len(names):,} workers"
        click.confirm(f"Stop {what}?", abort=True, err=True)

    async def order(app: Windlass) -> None:
        orders = {
            "quiet": app.admin.workers.quiet,
            "resume": app.admin.workers.resume,
            "stop": app.admin.workers.stop,
        }
        await orders[verb](*names)

    run_on_target(where, order)
    if given["as_json"]:
        print_json({"order": verb, "workers": names})
    else:
        they, their = ("It hears", "its") if len(names) == 1 else ("They hear", "their")
        told = f"{they} of it with {their} next heartbeat, within seconds."
        click.echo(f"{_told(verb, names)} {told}")
    return 0


async def _matching(app: Windlass, given: dict[str, Any], verb: str) -> list[str]:
    now = await (await parts_of(app).storage()).now()
    return [
        row.start.id
        for row in await app.admin.workers.list()
        if _is_meant(row, now, verb)
        and given["host"] in (None, row.start.host)
        and (given["queue"] is None or given["queue"] in row.start.queues)
    ]


def _is_meant(row: WorkerRecord, now: datetime, verb: str) -> bool:
    """Those that are leaving are not asked again, and the silent do not hear."""
    from windlass._storage.protocol.workers import Standing

    meant = {Standing.LIVE, Standing.QUIET}
    return row.standing(now) in (meant | {Standing.SILENT} if verb == "stop" else meant)


def _told(verb: str, names: Sequence[str]) -> str:
    who = f"Worker {names[0]}" if len(names) == 1 else f"{len(names):,} workers"
    be = "is" if len(names) == 1 else "are"
    match verb:
        case "quiet":
            return f"{who} {be} asked to take nothing new."
        case "resume":
            return f"{who} {be} asked to go on."
        case _:
            return f"{who} {be} asked to stop."


@click.group(cls=SuggestingGroup)
def workers() -> None:
    """Look at workers, let them rest, stop them."""


for _command in (quiet, resume, stop):
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
    from windlass._cli.output.tables import NUMBER, print_json, print_table

    async def question(app: Windlass) -> tuple[Sequence[WorkerRecord], datetime, str]:
        storage = await parts_of(app).storage()
        return await app.admin.workers.list(), await storage.now(), storage.describe()

    found, now, described = run_on_target(target_of(target, url), question)
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
    from windlass._cli.output.tables import left

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
