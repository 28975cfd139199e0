"""Options that take a value, or ``none`` to remove it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any

import click

from windlass._cli.options.groups import Command, with_options
from windlass._settings.durations import parse_backoff, parse_rate
from windlass._settings.settings import parse_duration
from windlass.errors import ConfigError, WindlassError

__all__ = [
    "BACKOFF",
    "COUNT",
    "DURATION",
    "RATE",
    "changes",
    "require_change",
    "schedule_options",
]


if TYPE_CHECKING:
    _Type = click.ParamType[object]
else:  # older releases of click know no such brackets
    _Type = click.ParamType


class _Cleared(Enum):
    """Not None: None means that the option was not given."""

    CLEARED = "none"


class _OptionalValue(_Type):
    """A value that ``read`` parses, or ``none``."""

    def __init__(self, name: str, read: Callable[[str], object]) -> None:
        self.name = name
        self._read = read

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> object:
        if not isinstance(value, str):
            return value
        if value.strip().lower() == "none":
            return _Cleared.CLEARED
        try:
            return self._read(value)
        except WindlassError as error:
            self.fail(f"{error}; or none, to remove it", param, ctx)


def _count(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        message = f"it must be a whole number such as 5, got {text!r}"
        raise ConfigError(message) from None


COUNT = _OptionalValue("N|none", _count)
BACKOFF = _OptionalValue("WAITS|none", lambda text: parse_backoff(text, "this is no backoff"))
RATE = _OptionalValue("RATE|none", lambda text: parse_rate(text, "this is no rate"))
DURATION = _OptionalValue("TIME|none", lambda text: parse_duration(text, "it"))
_TIME = _OptionalValue("TIME", lambda text: parse_duration(text, "it"))


def _overlap(text: str) -> str | int:
    return int(text) if text.isdigit() else text


def _instant(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        message = f"write an instant like 2030-12-24T08:00+01:00, got {text!r}"
        raise ConfigError(message) from None


_INSTANT = _OptionalValue("INSTANT|none", _instant)
_OVERLAP = _OptionalValue("skip|queue|allow|N", _overlap)


def schedule_options(command: Command) -> Command:
    """Add the options of a schedule, without its rule."""
    return with_options(
        command,
        click.option(
            "--missed",
            help="Slots that passed while no worker ran: skip, one (run the latest) or all.",
        ),
        click.option(
            "--most-missed", type=int, help="With --missed all: run at most this number of slots."
        ),
        click.option(
            "--overlap",
            type=_OVERLAP,
            metavar=_OVERLAP.name,
            help="A slot that comes while a run is active: skip it, queue it behind the run, allow "
            "both, or allow up to N runs.",
        ),
        click.option(
            "--jitter",
            type=_TIME,
            metavar=_TIME.name,
            help="Delay each job by a random time up to this.",
        ),
        click.option(
            "--starts", type=_INSTANT, metavar=_INSTANT.name, help="Skip slots before this instant."
        ),
        click.option(
            "--ends",
            type=_INSTANT,
            metavar=_INSTANT.name,
            help="Skip slots at this instant and later.",
        ),
    )


def changes(given: Mapping[str, object]) -> dict[str, Any]:
    """Return the options that were given; None where the value was ``none``."""
    return {
        name: None if value is _Cleared.CLEARED else value
        for name, value in given.items()
        if value is not None
    }


def require_change(given: Mapping[str, object], options: str) -> None:
    """Refuse a ``set`` without any option."""
    if not given:
        message = f"nothing to set: give {options}"
        raise click.UsageError(message)
