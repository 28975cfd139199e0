"""Durations, backoffs and rates as commands and forms take them, and as people read them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, assert_never

from windlass._core.limits.backoff import Backoff, Curve, Jitter
from windlass._core.limits.limit import Rate
from windlass._core.values.instants import duration, parse_seconds, span_us
from windlass._core.values.names import shown
from windlass.errors import ConfigError, InvalidArgument, suggestion

__all__ = [
    "BACKOFF_FORMS",
    "RATE_FORMS",
    "describe_backoff",
    "format_backoff",
    "format_duration",
    "format_rate",
    "parse_backoff",
    "parse_duration",
    "parse_rate",
]

BACKOFF_FORMS = "5s, linear:5s,step=5s,cap=1h, exponential:5s,factor=5,cap=1h or waits:1s,1m,1h"
RATE_FORMS = "10/1s, 100/1m or, with a burst of 5, 10/1s:5"

_RATE = re.compile(r"(?P<n>[0-9.]+(?:e[+-]?[0-9]+)?)/(?P<per>[^:/]+)(?::(?P<burst>[0-9]+))?")
_UNITS = (("d", 86_400_000_000), ("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000))
_JITTERS = {"none": "", "spread": ", ± 25 % at random", "full": ", at random from 0"}


# --- durations ------------------------------------------------------------------------------------


def parse_duration(value: object, what: str) -> timedelta:
    """Read a timedelta, a number of seconds, or text with a unit: 250ms, 30s, 5m, 2h, 7d, 2w."""
    if isinstance(value, str):
        seconds = parse_seconds(value)
        if seconds is None:
            message = f"{what} must be a duration such as 250ms, 30s, 5m, 2h or 7d, got {value!r}"
            raise ConfigError(message)
        value = seconds
    if not isinstance(value, (timedelta, int, float)):
        message = (
            f"{what} must be a duration: a timedelta, seconds, or text such as '30s', "
            f"got {shown(value)}"
        )
        raise ConfigError(message)
    try:
        return duration(value, what)
    except InvalidArgument as error:
        raise ConfigError(str(error)) from error


def format_duration(span: timedelta) -> str:
    """Write a duration in one unit, exactly: ``parse_duration`` reads the same again."""
    us = span_us(span)
    for unit, size in _UNITS:
        if us % size == 0 and (us or unit == "s"):
            return f"{us // size}{unit}"
    whole, rest = divmod(us, 1000)
    return f"{whole}.{rest:03d}".rstrip("0").rstrip(".") + "ms"


# --- backoffs -------------------------------------------------------------------------------------


def parse_backoff(text: str, what: str) -> Backoff:
    """Read ``5s``, or a curve, a colon and its parameters; ConfigError shows the format."""
    name, colon, rest = text.strip().partition(":")
    if not colon:
        name, rest = "fixed", name
    read = _CURVES.get(name)
    try:
        if read is None:
            message = f"{name!r} is no curve.{suggestion(name, _CURVES)}"
            raise ConfigError(message)
        plain, named = _parts(rest)
        return read(plain, named)
    except ValueError as error:
        message = f"{what}: {error}{'' if str(error)[-1] in '.?' else '.'} Write {BACKOFF_FORMS}"
        raise ConfigError(message) from None


def _parts(text: str) -> tuple[list[str], dict[str, str]]:
    """Split ``5s,factor=5`` into values without a name and values with one."""
    plain: list[str] = []
    named: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            plain.append(name)
        elif name in named:
            message = f"{name} is given twice"
            raise ConfigError(message)
        else:
            named[name] = value
    return plain, named


def _one(plain: list[str], curve: str) -> timedelta:
    if len(plain) != 1 or not plain[0]:
        message = f"{curve} takes one duration first, got {','.join(plain)!r}"
        raise ConfigError(message)
    return parse_duration(plain[0], "it")


def _options(named: Mapping[str, str], curve: str, *known: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name, value in named.items():
        if name not in (*known, "jitter"):
            takes = ", ".join((*known, "jitter"))
            message = f"{curve} has no {name!r}, it takes {takes}"
            raise ConfigError(message)
        match name:
            case "jitter":
                options[name] = _jitter(value)
            case "factor":
                options[name] = _number(value, name)
            case _:
                options[name] = parse_duration(value, name)
    return options


def _jitter(value: str) -> str:
    if value not in _JITTERS:
        message = f"jitter is {', '.join(_JITTERS)}, got {value!r}"
        raise ConfigError(message)
    return value


def _number(value: str, what: str) -> float:
    try:
        return float(value)
    except ValueError:
        message = f"{what} is a number, got {value!r}"
        raise ConfigError(message) from None


def _fixed(plain: list[str], named: Mapping[str, str]) -> Backoff:
    wait = _one(plain, "a fixed wait")
    options = _options(named, "a fixed wait")
    return Backoff.fixed(wait, **options) if wait else Backoff.none()


def _linear(plain: list[str], named: Mapping[str, str]) -> Backoff:
    return Backoff.linear(_one(plain, "linear"), **_options(named, "linear", "step", "cap"))


def _exponential(plain: list[str], named: Mapping[str, str]) -> Backoff:
    options = _options(named, "exponential", "factor", "cap")
    return Backoff.exponential(_one(plain, "exponential"), **options)


def _waits(plain: list[str], named: Mapping[str, str]) -> Backoff:
    times = [parse_duration(wait, "a wait") for wait in plain]
    return Backoff.waits(times, **_options(named, "waits"))


_CURVES: dict[str, Callable[[list[str], Mapping[str, str]], Backoff]] = {
    "fixed": _fixed,
    "linear": _linear,
    "exponential": _exponential,
    "waits": _waits,
}


def format_backoff(backoff: Backoff) -> str:
    """Write a backoff as `parse_backoff` reads it."""
    first, cap = format_duration(backoff.first), format_duration(backoff.cap)
    usual = Jitter.NONE
    match backoff.curve:
        case Curve.NONE:
            return "0s"
        case Curve.FIXED:
            text = first
        case Curve.LINEAR:
            text = f"linear:{first},step={format_duration(backoff.step)},cap={cap}"
            usual = Jitter.SPREAD
        case Curve.EXPONENTIAL:
            text = f"exponential:{first},factor={_short(backoff.factor)},cap={cap}"
            usual = Jitter.SPREAD
        case Curve.LISTED:
            text = f"waits:{','.join(map(format_duration, backoff.times))}"
        case _:
            assert_never(backoff.curve)
    if backoff.jitter is usual:
        return text
    text = f"fixed:{text}" if backoff.curve is Curve.FIXED else text
    return f"{text},jitter={backoff.jitter}"


def describe_backoff(backoff: Backoff) -> str:
    """Describe a backoff for a table."""
    first, cap = format_duration(backoff.first), format_duration(backoff.cap)
    match backoff.curve:
        case Curve.NONE:
            return "at once"
        case Curve.FIXED:
            text = f"{first} each time"
        case Curve.LINEAR:
            text = f"{first}, then {format_duration(backoff.step)} more each time, at most {cap}"
        case Curve.EXPONENTIAL:
            text = f"{first}, then × {_short(backoff.factor)} each time, at most {cap}"
        case Curve.LISTED:
            *before, last = map(format_duration, backoff.times)
            text = f"{', '.join(before)}, then {last}" if before else f"{last} each time"
        case _:
            assert_never(backoff.curve)
    return text + _JITTERS[backoff.jitter]


def _short(number: float) -> str:
    return str(int(number)) if number == int(number) else repr(number)


# --- rates ----------------------------------------------------------------------------------------


def parse_rate(text: str, what: str) -> Rate:
    """Read ``10/1s`` or, with a burst, ``10/1s:5``; ConfigError shows the format."""
    match = _RATE.fullmatch(text.strip())
    try:
        if match is None:
            message = f"{text!r} is no rate."
            raise ConfigError(message)
        per = match["per"].strip()
        # "10/s" reads like ten a second, and can mean nothing else.
        per = f"1{per}" if per.isalpha() else per
        burst = int(match["burst"]) if match["burst"] else None
        return Rate(_number(match["n"], "n"), parse_duration(per, "its period"), burst)
    except ValueError as error:
        message = f"{what}: {error}{'' if str(error)[-1] in '.?' else '.'} Write {RATE_FORMS}"
        raise ConfigError(message) from None


def format_rate(rate: Rate) -> str:
    """Write a rate as `parse_rate` reads it."""
    text = f"{_short(rate.n)}/{format_duration(rate.per)}"
    return text if rate == Rate(rate.n, rate.per) else f"{text}:{int(rate.burst)}"
