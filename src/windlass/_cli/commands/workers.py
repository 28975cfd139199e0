"""``windlass workers``: list, pause and stop workers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from windlass._admin.explain.cause import plural
from windlass._app.parts import parts_of
from windlass._cli.options import name_completion
from windlass._cli.options.confirmation import confirm
from windlass._cli.options.groups import SuggestingGroup, examples, with_options
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
    """Add the options that select workers: by name, or all that match."""
    return with_options(
        command,
        click.argument(
            "words",
            metavar="[MODULE:APP] WORKER...",
            nargs=-1,
            shell_complete=name_completion.workers,
        ),
        click.option("--all", "every", is_flag=True, help="Select every live worker."),
        click.option("--host", metavar="HOST", help="With --all: only workers on this host."),
        click.option(
            "--queue",
            metavar="QUEUE",
            help="With --all: only workers that serve this queue.",
            shell_complete=name_completion.queues,
        ),
        click.option("--yes", is_flag=True, help="Do not ask for confirmation."),
        url_option,
        json_option,
    )


@click.command(
    epilog=examples(
        "windlass workers quiet shop:app w3f9a1c7b2d04",
        "windlass workers quiet shop:app --all --host web-1",
    )
)
@_options
def quiet(**given: Any) -> int:
    """Pause workers: they finish their running jobs and take no new ones until `resume`."""
    return _act("quiet", given)


@click.command(
    epilog=examples(
        "windlass workers resume shop:app w3f9a1c7b2d04",
        "windlass workers resume shop:app --all",
    )
)
@_options
def resume(**given: Any) -> int:
    """Let paused workers take jobs again."""
    return _act("resume", given)


@click.command(
    epilog=examples(
        "windlass workers stop shop:app w3f9a1c7b2d04",
        "windlass workers stop shop:app --all --queue mail --yes",
    )
)
@_options
def stop(**given: Any) -> int:
    """Stop workers as SIGTERM does: running jobs may finish, the rest is released.

    The supervisor of `windlass worker --processes` does not replace a stopped worker. systemd or
    Kubernetes may.
    """
    return _act("stop", given)


def _act(verb: str, given: dict[str, Any]) -> int:
    from windlass._cli.output.tables import print_json

    words, every = given["words"], given["every"]
    if not every and (given["host"] or given["queue"]):
        raise click.UsageError("--host and --queue need --all")
    if every and (len(words) > 1 or (words and ":" not in words[0])):
        raise click.UsageError("name workers, or give --all, not both")
    if every:
        where = target_of(words[0] if words else None, given["url"])
        names = run_on_target(where, lambda app: _matching(app, given, verb))
        if not names:
            raise click.ClickException(
                "no live worker matches. `windlass workers list` shows all workers"
            )
    else:
        where, names = target_and_names(words, given["url"], "worker")
    if verb == "stop" and not given["yes"]:
        what = f"worker {names[0]}" if len(names) == 1 else f"{len(names):,} workers"
        confirm(f"Stop {what}?")

    async def act(app: Windlass) -> None:
        actions = {
            "quiet": app.admin.workers.quiet,
            "resume": app.admin.workers.resume,
            "stop": app.admin.workers.stop,
        }
        await actions[verb](*names)

    run_on_target(where, act)
    if given["as_json"]:
        print_json({"order": verb, "workers": names})
    else:
        reached = "The next heartbeat delivers the request, within seconds."
        click.echo(f"{_asked(verb, names)} {reached}")
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
    """Leave out workers that are stopping. Silent ones are asked to stop, in case they return."""
    from windlass._storage.protocol.workers import Standing

    meant = {Standing.LIVE, Standing.QUIET}
    return row.standing(now) in (meant | {Standing.SILENT} if verb == "stop" else meant)


def _asked(verb: str, names: Sequence[str]) -> str:
    who = f"worker {names[0]}" if len(names) == 1 else f"{len(names):,} workers"
    match verb:
        case "quiet":
            return f"Asked {who} to take no new jobs."
        case "resume":
            return f"Asked {who} to take jobs again."
        case _:
            return f"Asked {who} to stop."


@click.group(
    cls=SuggestingGroup,
    epilog=examples(
        "windlass workers list shop:app",
        "windlass workers quiet shop:app --all --queue mail",
    ),
)
def workers() -> None:
    """List, pause, stop and sweep workers."""


for _command in (quiet, resume, stop):
    workers.add_command(_command)


@workers.command(
    epilog=examples(
        "windlass workers sweep shop:app",
        "windlass workers sweep --url sqlite:///jobs.db --json",
    )
)
@target_argument
@url_option
@json_option
def sweep(target: str | None, url: str | None, *, as_json: bool) -> int:
    """Declare dead workers dead now, release their jobs, and mark due jobs ready.

    Live workers do this every few seconds. Use it when no worker is left to do it.
    """
    from windlass._cli.output.tables import print_json

    report = run_on_target(target_of(target, url), lambda app: app.admin.workers.sweep())
    if as_json:
        print_json(report)
        return 0
    dead = f": {', '.join(report.dead)}" if report.dead else ""
    click.echo(f"Declared {plural(len(report.dead), 'worker')} dead{dead}.")
    released, promoted = plural(report.released, "job"), plural(report.promoted, "due job")
    click.echo(f"Released {released}, marked {promoted} ready.")
    return 0


@workers.command(
    "list",
    epilog=examples(
        "windlass workers list shop:app",
        "windlass workers list --url sqlite:///jobs.db --json",
    ),
)
@target_argument
@url_option
@json_option
def list_workers(target: str | None, url: str | None, *, as_json: bool) -> int:
    """List workers, newest first. Stopped and dead workers stay in the list for a while.

    \b
    live      sent a heartbeat within its lease
    quiet     paused: takes no new jobs
    stopping  asked to stop
    silent    missed its lease; other workers will soon declare it dead
    dead      declared dead; its jobs were released to other workers
    gone      stopped
    """  # noqa: D301 -- click's mark for lines that stay as they are
    from windlass._cli.output.tables import NUMBER, print_json, print_table

    async def question(app: Windlass) -> tuple[Sequence[WorkerRecord], datetime, str]:
        storage = await parts_of(app).storage()
        return await app.admin.workers.list(), await storage.now(), storage.describe()

    found, now, described = run_on_target(target_of(target, url), question)
    if as_json:
        print_json([_fields(worker, now) for worker in found])
    elif not found:
        click.echo(f"{described} has no workers. Start one: `windlass worker MODULE:APP`")
    else:
        titles = ("worker", "state", "host", f"{NUMBER}pid", "version", "queues")
        print_table(
            (*titles, f"{NUMBER}busy slots", f"{NUMBER}memory", f"{NUMBER}last heartbeat"),
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
    """Return the fields for machines. Never rename them."""
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
