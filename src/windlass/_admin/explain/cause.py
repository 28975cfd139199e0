"""One reason for a job's state, and the wording of such reasons."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from windlass._core.values.redaction import redacted_text, redacted_url
from windlass._observe.log import brief

__all__ = [
    "Cause",
    "few",
    "plural",
    "shell_command",
    "since",
    "when",
    "with_target",
    "without_commands",
]

_FEW = 3


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """One reason, with the stored values it was read from."""

    code: str
    """A code that does not change between releases."""
    sentence: str
    evidence: Mapping[str, Any] = {}
    """The stored values, as JSON types and instants."""
    until: datetime | None = None
    """The instant at which it ends by itself. None: unknown, or an operator must act."""
    fix: str = ""
    """The advice; empty where nothing can be done."""

    def without(self, secrets: Sequence[str]) -> Cause:
        """Return a copy with these values masked, and values that look like secrets."""
        return self.changed(lambda text: redacted_text(text, secrets))

    def changed(self, change: Callable[[str], str]) -> Cause:
        """Return a copy with every text changed."""
        return msgspec.structs.replace(
            self,
            sentence=change(self.sentence),
            evidence=_changed(self.evidence, change),
            fix=change(self.fix),
        )

    def texts(self) -> Iterator[str]:
        """Return every text."""
        found: list[str] = []

        def note(text: str) -> str:
            found.append(text)
            return text

        self.changed(note)
        yield from found


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    match value:
        case str():
            return change(value)
        case Mapping():
            return {name: _changed(part, change) for name, part in value.items()}
        case list() | tuple():
            return [_changed(part, change) for part in value]
        case _:
            return value


def when(instant: datetime, now: datetime) -> str:
    """Return an instant and its distance: at 2030-01-01 12:00:00 UTC, in 5 m."""
    return f"at {instant:%Y-%m-%d %H:%M:%S} UTC, {_apart(instant, now)}"


def since(instant: datetime, now: datetime) -> str:
    """Return a duration and its start: for 5 m, since 2030-01-01 12:00:00 UTC."""
    return f"for {brief(now - instant)}, since {instant:%Y-%m-%d %H:%M:%S} UTC"


def _apart(instant: datetime, now: datetime) -> str:
    if instant > now:
        return f"in {brief(instant - now)}"
    return f"{brief(now - instant)} ago"


def plural(count: int, what: str) -> str:
    """Return a number of things: 1 failure, 2 failures."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def few(names: Sequence[str], more: int | None = 0) -> str:
    """Return the first names, and the number of others; None: the number is unknown."""
    named = ", ".join(names[:_FEW])
    if more is None:
        return f"{named} and others"
    others = max(len(names) - _FEW, 0) + more
    return f"{named} and {others:,} more" if others else named


_COMMAND = re.compile(
    r"`windlass (?:queues|limits|breakers|flows|jobs|workers|schedules|errors) [a-z-]+(?=[ `])"
)
_WHOLE = re.compile(r":? ?`windlass [^`]*`")


def with_target(advice: str, target: str | None, url: str | None) -> str:
    """Add the app or storage to the commands of an advice, so that they can be pasted. With
    neither, the shell's environment is enough.
    """
    if target is not None:
        app = shlex.quote(target)
        return _named(advice, app).replace("MODULE:APP", app)
    if url is None:
        return advice
    given = shlex.quote(url) if redacted_url(url) == url else '"$WINDLASS_URL"'
    return _named(advice, f"--url {given}")


def without_commands(advice: str) -> str:
    """Return the advice without commands, for readers that have a button instead or cannot run
    them.
    """
    return _WHOLE.sub("", advice)


def _named(advice: str, place: str) -> str:
    return _COMMAND.sub(lambda found: f"{found[0]} {place}", advice)


def shell_command(*words: str) -> str:
    """Return a line for a shell. Names come from clients, and must not become commands."""
    return f"`{shlex.join(['windlass', *words])}`"
