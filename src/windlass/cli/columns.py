"""How a table fits a terminal: ids stay in one piece, other columns shrink, the last of them go."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from rich.cells import cell_len

from windlass.core.ids import short_id

__all__ = ["GAP", "Fitted", "fitted", "shortened"]

GAP = 3
"""Between two columns."""
_NARROW = 8
"""A column of words is at least so wide."""
_WHOLE = re.compile(r"\b[0-9a-f]{32}\b")
_UNBROKEN = re.compile(r"\b(?:[0-9a-f]{32}|[0-9a-f]{8}…[0-9a-f]{6}|w[0-9a-f]{12})\b")
"""Ids of jobs, whole and shortened, and of workers: what is folded cannot be copied."""

Rows = Sequence[Sequence[str]]


class Fitted(NamedTuple):
    """What there is room for."""

    kept: Sequence[int]
    """The places of the columns."""
    rows: Rows
    """All columns of them, with ids as there is room for."""
    widths: Sequence[int] | None
    """Of the kept columns; None: as wide as they are."""


def shortened(text: str) -> str:
    """With its ids as they are shortened."""
    return _WHOLE.sub(lambda found: short_id(found[0]), text)


def fitted(titles: Sequence[str], rows: Rows, room: int) -> Fitted:
    """A table for a terminal of so many columns."""
    kept = list(range(len(titles)))
    if _taken(_natural(titles, rows)) <= room:
        return Fitted(kept, rows, None)
    rows = [[shortened(text) for text in row] for row in rows]
    natural = _natural(titles, rows)
    if _taken(natural) <= room:
        return Fitted(kept, rows, None)
    ids = [_longest(texts, _ids_of) for texts in zip(*rows, strict=True)]
    least = [max(have, min(wish, _NARROW)) for have, wish in zip(ids, natural, strict=True)]
    while _taken([least[at] for at in kept]) > room:
        going = [at for at in kept[1:] if not ids[at]]
        if not going:
            break
        kept.remove(going[-1])
    widths = _shared([least[at] for at in kept], [natural[at] for at in kept], room)
    return Fitted(kept, rows, widths)


def _natural(titles: Sequence[str], rows: Rows) -> list[int]:
    columns = zip(titles, *rows, strict=True)
    return [_longest(texts, str.splitlines) for texts in columns]


def _longest(texts: Iterable[str], parts_of: Callable[[str], list[str]]) -> int:
    return max((cell_len(part) for text in texts for part in parts_of(text)), default=0)


def _ids_of(text: str) -> list[str]:
    return _UNBROKEN.findall(text)


def _taken(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _shared(least: Sequence[int], wished: Sequence[int], room: int) -> list[int]:
    """What is left goes to the narrowest that lack something, one after the other."""
    widths, left = list(least), room - _taken(least)
    lacking = [at for at, wish in enumerate(wished) if widths[at] < wish]
    while left > 0 and lacking:
        at = min(lacking, key=lambda place: widths[place])
        widths[at] += 1
        left -= 1
        if widths[at] >= wished[at]:
            lacking.remove(at)
    return widths
