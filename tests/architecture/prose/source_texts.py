"""Read the docstrings and comments of a Python file."""

from __future__ import annotations

import ast
import functools
import io
import re
import tokenize
from collections.abc import Iterator
from typing import NamedTuple

from tests.architecture.prose.measure import Page, Passage

_MARK = re.compile(r"#\s*(?:type:|pyright:|noqa|ruff:|pragma:|fmt:|!)")
"""Comments that tools read."""


class SourceText(NamedTuple):
    """A docstring or a comment, and its line."""

    line: int
    text: str


@functools.cache
def docstrings_of(source: str) -> tuple[SourceText, ...]:
    """Return the docstrings of modules, classes, functions and attributes."""
    return tuple(
        SourceText(node.lineno, node.value.value)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def comments_of(source: str) -> Iterator[SourceText]:
    """Yield the comments that people read."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not _MARK.match(token.string):
            yield SourceText(token.start[0], token.string.lstrip("# "))


def source_page(name: str, source: str) -> Page:
    """Join the docstrings and comments of a file, as one page."""
    found = [*docstrings_of(source), *comments_of(source)]
    return Page(name, [Passage(f"line {one.line}", " ".join(one.text.split())) for one in found])
