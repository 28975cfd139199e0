"""Filters for jobs as command-line options."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from windlass._cli.options import name_completion
from windlass._cli.options.groups import Command, with_options

if TYPE_CHECKING:
    from windlass._core.job.state import Shown, State
    from windlass._storage.protocol.lists.job_list import JobFilter

__all__ = ["FILTERS", "filter_of", "filter_options", "has_filter", "instant_of"]

_WAITING = ("scheduled", "ready", "retrying")
_STATES = ("waiting", *_WAITING, "running", "succeeded", "failed", "cancelled", "discarded")
_AT = "INSTANT|AGO"


if TYPE_CHECKING:
    _Choice = click.Choice[str]
else:
    _Choice = click.Choice  # generic since click 8.2


class _StateChoice(_Choice):
    """The states to filter by. "blocked" is shown, but counts as scheduled."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the state, or say which one to write."""
        if value == "blocked":
            message = (
                "blocked jobs, which wait for other jobs of their flow, count as scheduled: write "
                "--state scheduled, with --flow ID for those of one flow"
            )
            self.fail(message, param, ctx)
        return super().convert(value, param, ctx)


_OPTIONS = (
    click.option(
        "--state",
        "states",
        multiple=True,
        type=_StateChoice(_STATES),
        help="Only jobs in this state. Repeat for more.",
    ),
    click.option(
        "--queue",
        metavar="QUEUE",
        shell_complete=name_completion.queues,
        help="Only jobs of this queue.",
    ),
    click.option(
        "--task",
        metavar="TASK",
        shell_complete=name_completion.tasks,
        help="Only jobs of this task.",
    ),
    click.option("--tenant", metavar="TENANT", help="Only jobs of this tenant."),
    click.option("--principal", metavar="NAME", help="Only jobs of this principal."),
    click.option("--tag", metavar="TAG", help="Only jobs with this tag."),
    click.option(
        "--key",
        metavar="TASK/KEY",
        help="Only jobs with this unique key, such as send_digest/42. Write /KEY for a global key.",
    ),
    click.option("--correlation-id", metavar="ID", help="Only jobs with this correlation id."),
    click.option("--parent", metavar="ID", help="Only jobs that this job enqueued."),
    click.option("--flow", metavar="FLOW", help="Only jobs of this flow."),
    click.option(
        "--worker",
        metavar="WORKER",
        shell_complete=name_completion.workers,
        help="Only jobs that this worker runs or ran last.",
    ),
    click.option("--error", metavar="KIND", help="Only jobs whose last error has this class."),
    click.option("--frame", metavar="PLACE", help="Only jobs whose last error was raised here."),
    click.option("--created-from", metavar=_AT, help="Only jobs enqueued at this time or later."),
    click.option("--created-until", metavar=_AT, help="Only jobs enqueued before this time."),
    click.option(
        "--finished-from", metavar=_AT, help="Only jobs that ended at this time or later."
    ),
    click.option("--finished-until", metavar=_AT, help="Only jobs that ended before this time."),
    click.option(
        "--search", metavar="TEXT", help="Only jobs with this text in arguments or last error."
    ),
)
_INSTANTS = ("created_from", "created_until", "finished_from", "finished_until")
_WORDS = (
    *("queue", "task", "tenant", "principal", "tag", "key"),
    *("correlation_id", "parent", "flow", "worker", "error", "frame"),
)
FILTERS = ("states", *_WORDS, *_INSTANTS, "search")
"""The names of the parameters that `filter_options` adds."""


def filter_options(command: Command) -> Command:
    """Add every filter to a command."""
    return with_options(command, *_OPTIONS)


def has_filter(given: Mapping[str, Any]) -> bool:
    """Tell whether any filter was given."""
    return any(given.get(name) for name in FILTERS)


def filter_of(given: Mapping[str, Any], now: datetime) -> JobFilter:
    """Build the filter from the options. ``now`` is the store's."""
    from windlass._core.job.job import FlowId, JobId
    from windlass._storage.protocol.lists.job_list import JobFilter

    plain: dict[str, Any] = {name: given.get(name) for name in _WORDS}
    for name in _INSTANTS:
        if (text := given.get(name)) is not None:
            plain[name] = instant_of(text, now, f"--{name}", ago=True)
    if plain["parent"] is not None:
        plain["parent"] = JobId(plain["parent"])
    if plain["flow"] is not None:
        plain["flow"] = FlowId(plain["flow"])
    states, shown = _states(given.get("states") or ())
    return JobFilter(states=states, shown=shown, text=given.get("search"), **plain)


def _states(names: tuple[str, ...]) -> tuple[list[State] | None, list[Shown] | None]:
    """Filter by stored state where that is enough: "ready" depends on the clock."""
    from windlass._core.job.state import Shown, State

    if not names:
        return None, None
    if not set(names) & set(_WAITING):
        return [State(name) for name in names], None
    wide = [part for name in names for part in (_WAITING if name == "waiting" else (name,))]
    return None, [Shown(name) for name in dict.fromkeys(wide)]


def instant_of(text: str, now: datetime, option: str, *, ago: bool) -> datetime:
    """Read an instant or a time span: before now, or with ``ago=False`` after now."""
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
            f"{option} takes an instant with its time zone, such as 2030-12-24T08:00+01:00 or "
            f"2030-12-24T07:00Z, or a time span such as 15m, got {text!r}"
        )
        raise click.UsageError(message)
    return at
