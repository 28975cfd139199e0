"""Which jobs a command is about, as options."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from windlass._cli.options import name_completion
from windlass._cli.options.groups import Command, with_options

if TYPE_CHECKING:
    from windlass._core.job.state import Shown, State
    from windlass._storage.protocol.job_list import JobFilter

__all__ = ["FILTERS", "filter_of", "filter_options", "has_filter", "instant_of"]

_WAITING = ("scheduled", "ready", "retrying")
_STATES = ("waiting", *_WAITING, "running", "succeeded", "failed", "cancelled", "discarded")
_AT = "INSTANT|AGO"
_OPTIONS = (
    click.option(
        "--state",
        "states",
        multiple=True,
        type=click.Choice(_STATES),
        help="Only these; may be given several times.",
    ),
    click.option(
        "--queue",
        metavar="QUEUE",
        shell_complete=name_completion.queues,
        help="Only of this queue.",
    ),
    click.option(
        "--task", metavar="TASK", shell_complete=name_completion.tasks, help="Only of this task."
    ),
    click.option("--tenant", metavar="TENANT", help="Only of this tenant."),
    click.option("--principal", metavar="NAME", help="Only what this one asked for."),
    click.option("--tag", metavar="TAG", help="Only with this tag."),
    click.option(
        "--key",
        metavar="TASK/KEY",
        help="Only with this unique key, such as send_digest/42; /KEY for a global one.",
    ),
    click.option("--correlation-id", metavar="ID", help="Only of this request."),
    click.option("--parent", metavar="ID", help="Only what this job enqueued."),
    click.option(
        "--worker",
        metavar="WORKER",
        shell_complete=name_completion.workers,
        help="Only what this worker runs, or ran last.",
    ),
    click.option("--error", metavar="KIND", help="Only with this class of last error."),
    click.option("--frame", metavar="PLACE", help="Only where the last error was raised there."),
    click.option("--created-from", metavar=_AT, help="Only enqueued then or later."),
    click.option("--created-until", metavar=_AT, help="Only enqueued before."),
    click.option("--finished-from", metavar=_AT, help="Only ended then or later."),
    click.option("--finished-until", metavar=_AT, help="Only ended before."),
    click.option("--search", metavar="TEXT", help="Only with this in arguments or last error."),
)
_INSTANTS = ("created_from", "created_until", "finished_from", "finished_until")
_WORDS = (
    *("queue", "task", "tenant", "principal", "tag", "key"),
    *("correlation_id", "parent", "worker", "error", "frame"),
)
FILTERS = ("states", *_WORDS, *_INSTANTS, "search")
"""The names of the parameters that `filter_options` makes."""


def filter_options(command: Command) -> Command:
    """Everything that can be asked of a job.

    INSTANT is written like 2030-12-24T08:00+01:00, AGO like 15m or 2h.
    """
    return with_options(command, *_OPTIONS)


def has_filter(given: Mapping[str, Any]) -> bool:
    """Whether anything was asked for."""
    return any(given.get(name) for name in FILTERS)


def filter_of(given: Mapping[str, Any], now: datetime) -> JobFilter:
    """What was asked for; ``now`` is the store's."""
    from windlass._core.job.job import JobId
    from windlass._storage.protocol.job_list import JobFilter

    plain: dict[str, Any] = {name: given.get(name) for name in _WORDS}
    for name in _INSTANTS:
        if (text := given.get(name)) is not None:
            plain[name] = instant_of(text, now, f"--{name}", ago=True)
    if plain["parent"] is not None:
        plain["parent"] = JobId(plain["parent"])
    states, shown = _states(given.get("states") or ())
    return JobFilter(states=states, shown=shown, text=given.get("search"), **plain)


def _states(names: tuple[str, ...]) -> tuple[list[State] | None, list[Shown] | None]:
    """As they are stored where that is enough: whoever is ready, is so by the clock."""
    from windlass._core.job.state import Shown, State

    if not names:
        return None, None
    if not set(names) & set(_WAITING):
        return [State(name) for name in names], None
    wide = [part for name in names for part in (_WAITING if name == "waiting" else (name,))]
    return None, [Shown(name) for name in dict.fromkeys(wide)]


def instant_of(text: str, now: datetime, option: str, *, ago: bool) -> datetime:
    """An instant as such, or as so long ago; ``ago=False``: as so long from now."""
    from windlass._settings.settings import parse_duration
    from windlass.errors import ConfigError

    option = option.replace("_", "-")
    try:
        span = parse_duration(text, "it")
    except ConfigError:
        return _instant(text, option)
    return now - span if ago else now + span


def _instant(text: str, option: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        message = (
            f"{option} takes an instant with its zone, such as 2030-12-24T08:00+01:00 or "
            f"2030-12-24T07:00Z, or a span such as 15m, got {text!r}"
        )
        raise click.UsageError(message)
    return at
