"""Rules and arguments of schedules as command-line options."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import click

from windlass._cli.options.groups import Command, with_options
from windlass._core.schedule.rules import Cron, Every, Manual, Once, Rule
from windlass._settings.settings import parse_duration
from windlass.errors import WindlassError

__all__ = ["json_arguments", "rule_as_options", "rule_of", "rule_options"]

_KINDS = ("cron", "every", "once", "manual")


def rule_options(command: Command) -> Command:
    """Add ``--cron``, ``--every``, ``--once`` and ``--manual``, and their options."""
    return with_options(
        command,
        click.option("--cron", help="Five fields, six with seconds first, or @daily."),
        click.option("--tz", help="Time zone of --cron, such as Europe/Berlin. Default: UTC."),
        click.option("--every", help="A period: 250ms, 30s, 5m, 2h, 7d."),
        click.option("--after-end", is_flag=True, help="Count --every from the end of each run."),
        click.option("--once", help="One instant: 2030-12-24T08:00+01:00."),
        click.option("--manual", is_flag=True, help="Run only when triggered."),
    )


def rule_of(given: dict[str, Any]) -> Rule | None:
    """Take the rule out of these options. None if they have none."""
    options = {name: given.pop(name) for name in (*_KINDS, "tz", "after_end")}
    kinds = [name for name in _KINDS if options[name]]
    if len(kinds) > 1:
        raise click.UsageError(f"give one rule, got --{' and --'.join(kinds)}")
    if options["tz"] and kinds != ["cron"]:
        raise click.UsageError("--tz belongs to --cron")
    if options["after_end"] and kinds != ["every"]:
        raise click.UsageError("--after-end belongs to --every")
    try:
        return _rule(kinds[0], options) if kinds else None
    except WindlassError as error:
        raise click.UsageError(str(error)) from None


def _rule(kind: str, options: Mapping[str, Any]) -> Rule:
    match kind:
        case "cron":
            return Cron(options["cron"], options["tz"] or "UTC")
        case "every":
            period = parse_duration(options["every"], "--every")
            return Every(period, "end" if options["after_end"] else "start")
        case "once":
            return Once(_instant(options["once"]))
        case _:
            return Manual()


def _instant(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        message = f"write an instant like 2030-12-24T08:00+01:00, got {text!r}"
        raise click.UsageError(message) from None


def rule_as_options(rule: Rule) -> dict[str, Any]:
    """Return the options that make a rule."""
    from windlass._settings.durations import format_duration

    match rule:
        case Cron(expression, tz):
            return {"cron": expression, "tz": tz}
        case Every(period, after, anchor):
            since = {} if anchor is None else {"anchor": anchor}
            return {"every": format_duration(period), "after_end": after == "end", **since}
        case Once(at):
            return {"once": at}
        case Manual():
            return {"manual": True}


def json_arguments(text: str) -> dict[str, Any]:
    """Decode ``--args``: arguments by name."""
    import msgspec

    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        message = f'--args is a JSON object such as \'{{"region": "eu"}}\': {error}'
        raise click.UsageError(message) from None
    if not isinstance(found, dict):
        raise click.UsageError(f"--args is a JSON object of arguments by name, got {text}")
    return found
