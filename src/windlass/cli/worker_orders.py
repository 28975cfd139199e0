"""``windlass workers quiet``, ``resume``, ``stop``: what is asked of workers through the store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from windlass.cli import completing
from windlass.cli.commands import together
from windlass.cli.target import ask, json_option, place, several, url_option

if TYPE_CHECKING:
    from collections.abc import Callable

    from windlass.app import Windlass
    from windlass.storage.protocol import WorkerRecord

__all__ = ["quiet", "resume", "stop"]


def _options(command: Callable[..., int]) -> Callable[..., int]:
    """Which workers: by name, or all that match."""
    return together(
        command,
        click.argument(
            "words", metavar="[MODULE:APP] WORKER...", nargs=-1, shell_complete=completing.workers
        ),
        click.option("--all", "every", is_flag=True, help="Every worker that is live."),
        click.option("--host", metavar="HOST", help="With --all: those on this machine."),
        click.option(
            "--queue",
            metavar="QUEUE",
            help="With --all: those that serve this queue.",
            shell_complete=completing.queues,
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
    from windlass.cli.tables import print_json

    words, every = given["words"], given["every"]
    if not every and (given["host"] or given["queue"]):
        raise click.UsageError("--host and --queue go with --all")
    if every and (len(words) > 1 or (words and ":" not in words[0])):
        raise click.UsageError("name workers, or say --all, not both")
    if every:
        where = place(words[0] if words else None, given["url"])
        names = ask(where, lambda app: _matching(app, given, verb))
        if not names:
            raise click.ClickException(
                "no live worker matches. Those that work here: `windlass workers list`"
            )
    else:
        where, names = several(words, given["url"], "worker")
    if verb == "stop" and not given["yes"]:
        what = f"worker {names[0]}" if len(names) == 1 else f"{len(names):,} workers"
        click.confirm(f"Stop {what}?", abort=True, err=True)

    async def order(app: Windlass) -> None:
        orders = {
            "quiet": app.admin.quiet_workers,
            "resume": app.admin.resume_workers,
            "stop": app.admin.stop_workers,
        }
        await orders[verb](*names)

    ask(where, order)
    if given["as_json"]:
        print_json({"order": verb, "workers": names})
    else:
        they, their = ("It hears", "its") if len(names) == 1 else ("They hear", "their")
        told = f"{they} of it with {their} next heartbeat, within seconds."
        click.echo(f"{_told(verb, names)} {told}")
    return 0


async def _matching(app: Windlass, given: dict[str, Any], verb: str) -> list[str]:
    now = await (await app.storage()).now()
    return [
        row.start.id
        for row in await app.admin.workers()
        if _is_meant(row, now, verb)
        and given["host"] in (None, row.start.host)
        and (given["queue"] is None or given["queue"] in row.start.queues)
    ]


def _is_meant(row: WorkerRecord, now: datetime, verb: str) -> bool:
    """Those that are leaving are not asked again, and the silent do not hear."""
    from windlass.storage.answers import Standing

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
