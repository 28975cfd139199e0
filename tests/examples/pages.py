"""The code blocks of a page: files where they have a title, else one story told in order."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

FENCE = re.compile(
    r"^```python(?: title=\"(?P<title>[^\"]+)\")?\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)


SERVER = "//localhost/shop"
"""The server that the pages speak of: whoever runs them puts a real one in its place."""


class Block(NamedTuple):
    """One block: the file it belongs to, or None for the story; and where it stands."""

    title: str | None
    code: str
    line: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(match["title"], match["code"], text.count("\n", 0, match.start()) + 2)
        for match in FENCE.finditer(text)
    ]


def files(page: Path) -> dict[str, str]:
    """The titled blocks; those of one title make one file."""
    written: dict[str, str] = {}
    for block in blocks(page):
        if block.title is not None:
            written[block.title] = written.get(block.title, "") + block.code + "\n\n"
    return written
