"""The code blocks of a page: files where they have a title, else one program in their order.

Blocks of shell are files, too, if they have a title.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

FENCE = re.compile(
    r"^```(?:python|sh(?= title))(?: title=\"(?P<title>[^\"]+)\")?\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


SERVER = "//localhost/shop"
"""The PostgreSQL server that pages name. `run_page` replaces it with a real one."""


class Block(NamedTuple):
    """One block, its first line, and the file it belongs to: None for the page's own program."""

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
