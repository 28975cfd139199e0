"""Long lists that are no lists of jobs: some of their rows at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

import msgspec

from windlass._web.request import PageRequest
from windlass.errors import InvalidArgument

__all__ = ["RowPage", "page_rows"]

Row = TypeVar("Row")
ROWS_PER_PAGE = 100
"""Rows at a time: a page of them stays readable, and far below a megabyte."""


class RowPage(msgspec.Struct, Generic[Row], frozen=True, kw_only=True):
    """The rows that are shown, and where the others are. `page.parts` shows the way."""

    rows: Sequence[Row]
    first: int
    """The number of the first of them, from 1."""
    total: int
    previous: str | None
    next: str | None

    @property
    def last(self) -> int:
        """The number of the last."""
        return self.first + len(self.rows) - 1


def page_rows(
    visit: PageRequest, rows: Sequence[Row], *, word: str = "page", each: int = ROWS_PER_PAGE
) -> RowPage[Row]:
    """Return the rows of the page that the address asks for by ``word``. One behind the end is the
    last: rows may have gone since the address was written.
    """
    pages = max(-(-len(rows) // each), 1)
    number = min(_number(visit.asked(word), word), pages)
    first = (number - 1) * each
    return RowPage(
        rows=rows[first : first + each],
        first=first + 1,
        total=len(rows),
        previous=visit.changed(**{word: number - 1 if number > 2 else None})
        if number > 1
        else None,
        next=visit.changed(**{word: number + 1}) if number < pages else None,
    )


def _number(text: str, word: str) -> int:
    if not text:
        return 1
    if not text.isascii() or not text.isdigit() or len(text) > 18 or int(text) == 0:
        message = f"{word} must be the number of a page, from 1, got {text[:40]!r}"
        raise InvalidArgument(message)
    return int(text)
