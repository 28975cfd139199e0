"""What a job carries, as people read it: pretty, and never more of it than a page bears."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime

import msgspec

from windlass.storage.journal import LogChunk

__all__ = ["LogRun", "Shortened", "log_runs", "pretty", "shortened"]

_MOST = 16_384
_LINES = 500
_LOG = 100_000
"""Characters of all runs together: a job that is tried for ever logs for ever."""
_AROUND = 100
"""Characters that the page says of a line beside its text."""


class Shortened(msgspec.Struct, frozen=True):
    """A text, or its beginning."""

    text: str
    size: int
    """Of the whole, in bytes."""
    cut: bool


class Line(msgspec.Struct, frozen=True):
    """One line of a log."""

    at: datetime
    level: str
    text: str


class LogRun(msgspec.Struct, frozen=True):
    """What one claim has logged."""

    claim_number: int
    lines: Sequence[Line]
    left_out: int
    """Lines before these that are not shown."""


def pretty(stored: bytes) -> Shortened:
    """Stored JSON with a line for each part; what is no JSON as it is."""
    if len(stored) > 4 * _MOST:  # not worth reading whole, for its beginning
        return shortened(stored[:_MOST].decode("utf-8", "replace"), len(stored))
    try:
        return shortened(msgspec.json.format(stored, indent=2).decode(), len(stored))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return shortened(stored.decode("utf-8", "replace"), len(stored))


def shortened(text: str, size: int | None = None) -> Shortened:
    """No more of a text than fits on a page. ``size``: of the whole, if this is a part of it."""
    whole = len(text.encode(errors="replace")) if size is None else size
    cut = len(text) > _MOST or whole > 4 * _MOST
    return Shortened(f"{text[:_MOST]}…" if cut else text, whole, cut)


def log_runs(chunks: Sequence[LogChunk]) -> list[LogRun]:
    """The lines of each claim, the newest claim first, its last lines only where there are many.
    Where that is too much for a page, the oldest claims are left out.
    """
    runs: dict[int, list[Line]] = {}
    for chunk in chunks:
        runs.setdefault(chunk.claim.number, []).extend(
            Line(line.at, logging.getLevelName(line.level).lower(), line.text)
            for line in chunk.lines
        )
    shown: list[LogRun] = []
    room = _LOG
    for number, lines in sorted(runs.items(), reverse=True):
        kept: list[Line] = []
        for line in reversed(lines[-_LINES:]):
            room -= len(line.text) + _AROUND
            if room < 0 and (shown or kept):
                break
            kept.insert(0, msgspec.structs.replace(line, text=line.text[:_MOST]))
        if not kept:
            break
        shown.append(LogRun(number, kept, len(lines) - len(kept)))
    return shown
