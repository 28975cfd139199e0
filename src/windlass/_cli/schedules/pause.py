"""``windlass schedules pause`` and ``resume``: one schedule, or all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from windlass._cli.options import name_completion
from windlass._cli.options.groups import examples
from windlass._cli.options.target import (
    json_option,
    run_on_target,
    target_and_name,
    target_of,
    url_option,
)
from windlass._cli.schedules.reading import act_on
from windlass._cli.schedules.tables import next_slot_in_words, print_change

if TYPE_CHECKING:
    from datetime import datetime

    from windlass._app.app import Windlass

__all__ = ["pause", "resume"]

_some_or_all = click.argument(
    "words", metavar="[MODULE:APP] [SCHEDULE]", nargs=-1, shell_complete=name_completion.schedules
)


@click.command(
    epilog=examples(
        "windlass schedules pause shop:app report",
        "windlass schedules pause shop:app --all",
    )
)
@_some_or_all
@click.option("--all", "every", is_flag=True, help="Pause all schedules on all workers.")
@url_option
@json_option
def pause(words: tuple[str, ...], url: str | None, *, every: bool, as_json: bool) -> int:
    """Pause a schedule, or all of them. Jobs that are already enqueued run."""
    if every:
        return _switch_all(words, url, pause=True, as_json=as_json)
    where, name = target_and_name(words, url, "schedule")
    shown = act_on(where, name, lambda app: app.admin.schedules.pause(name))
    print_change(shown, f"Schedule {name} is paused.", as_json=as_json)
    return 0


@click.command(
    epilog=examples(
        "windlass schedules resume shop:app report",
        "windlass schedules resume shop:app --all",
    )
)
@_some_or_all
@click.option("--all", "every", is_flag=True, help="Undo `pause --all`.")
@url_option
@json_option
def resume(words: tuple[str, ...], url: str | None, *, every: bool, as_json: bool) -> int:
    """Resume a paused schedule from its next slot on, or undo `pause --all`."""
    if every:
        return _switch_all(words, url, pause=False, as_json=as_json)
    where, name = target_and_name(words, url, "schedule")
    shown = act_on(where, name, lambda app: app.admin.schedules.resume(name))
    text = f"Schedule {name} is {shown.report.state}. {next_slot_in_words(shown)}"
    print_change(shown, text, as_json=as_json)
    return 0


def _switch_all(words: tuple[str, ...], url: str | None, *, pause: bool, as_json: bool) -> int:
    from windlass._cli.output.tables import print_json

    if len(words) > 1 or (words and ":" not in words[0]):
        raise click.UsageError("name a schedule, or give --all, not both")

    async def act(app: Windlass) -> datetime | None:
        change = app.admin.schedules.pause_all if pause else app.admin.schedules.resume_all
        await change()
        return await app.admin.schedules.paused()

    since = run_on_target(target_of(words[0] if words else None, url), act)
    if as_json:
        print_json({"paused": since is not None, "since": since})
    elif pause:
        click.echo("All schedules are paused. Undo it with `windlass schedules resume --all`.")
    else:
        click.echo("All schedules are resumed, except those that are paused by name.")
    return 0
