"""A test waits for something that happens; it does not sleep and hope."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from tests.architecture import exceptions
from tests.architecture.source import (
    ROOT,
    Module,
    dotted,
    imported_names,
    parse,
)

SLEEPS = {"time.sleep", "asyncio.sleep"}

ALLOWED: dict[str, str] = {}


def sleeping_tests(sources: Iterable[Module]) -> Iterator[str]:
    """Tests that sleep themselves. The handlers they define may: a job that takes long does."""
    for module in sources:
        names = imported_names(module.tree)
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if node.name.startswith("test_"):
                yield from (
                    f"{module.path} {node.name}"
                    for call in _own_calls(node)
                    if dotted(call.func, names) in SLEEPS and not _yields_only(call)
                )


def _own_calls(tree: ast.AST) -> Iterator[ast.Call]:
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.Call):
            yield child
        yield from _own_calls(child)


def _yields_only(call: ast.Call) -> bool:
    """``sleep(0)`` lets others run and takes no time."""
    return bool(call.args) and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0


def test_no_test_sleeps() -> None:
    files = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "src/windlass/testing").rglob("*.py")]
    sources = [
        parse(text, file.relative_to(ROOT).as_posix())
        for file in sorted(files)
        if "sleep" in (text := file.read_text(encoding="utf-8"))  # the others need no parsing
    ]
    exceptions.check(set(sleeping_tests(sources)), ALLOWED)


def test_a_sleeping_test_is_found_and_a_sleeping_handler_is_not() -> None:
    sample = parse(
        """
import asyncio
from time import sleep
async def test_that_hopes():
    async def handler(): await asyncio.sleep(60)
    await asyncio.sleep(0)
    await asyncio.sleep(0.1)
def test_that_hopes_too():
    sleep(1)
"""
    )
    assert list(sleeping_tests([sample])) == [
        "sample.py test_that_hopes",
        "sample.py test_that_hopes_too",
    ]
