"""Ceilings on size. A reason beats the number, but it has to be written down here."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from tests.architecture import exceptions
from tests.architecture.source import (
    FunctionNode,
    Module,
    definitions,
    docstring_of,
    modules,
    parse,
)

FILE_LINES = 400
FUNCTION_LINES = 60
PARAMETERS = 7
PUBLIC_METHODS = 20

# What may be larger, up to which size, and why. An entry may be lowered or removed, never raised:
# what grows past it is to be divided.
LARGER: dict[str, tuple[int, str]] = {
    "errors.py lines": (
        470,
        "every error that is raised on purpose, with its message, in one list; it is read as one",
    ),
}


def oversized(sources: Iterable[Module]) -> Iterator[tuple[str, int, int]]:
    """Name, size and ceiling of everything too large."""
    for module in sources:
        for name, size, ceiling in _sizes(module):
            if size > ceiling:
                yield f"{module.path}{name}", size, ceiling


def _sizes(module: Module) -> Iterator[tuple[str, int, int]]:
    yield " lines", module.text.count("\n"), FILE_LINES
    for name, node in definitions(module.tree):
        if isinstance(node, ast.ClassDef):
            yield f" {name} public methods", _public_methods(node), PUBLIC_METHODS
        else:
            yield f" {name} lines", _lines(node), FUNCTION_LINES
            yield f" {name} parameters", _parameters(node), PARAMETERS


def _lines(function: FunctionNode) -> int:
    """Without the docstring: a contract may take the words it needs."""
    total = (function.end_lineno or function.lineno) - function.lineno + 1
    if documentation := docstring_of(function):
        total -= (documentation.end_lineno or documentation.lineno) - documentation.lineno + 1
    return total


def _parameters(function: FunctionNode) -> int:
    """What a caller must think of: keyword-only parameters with a default are not counted."""
    arguments = function.args
    positional = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
    if positional and positional[0] in {"self", "cls"}:
        del positional[0]
    return len(positional) + sum(default is None for default in arguments.kw_defaults)


def _public_methods(node: ast.ClassDef) -> int:
    """Tests of the conformance suite are not an interface; overloads count once."""
    names = {child.name for child in node.body if isinstance(child, FunctionNode)}
    return sum(not name.startswith(("_", "test_")) for name in names)


def test_nothing_in_the_package_is_larger_than_its_ceiling() -> None:
    too_large = {
        name: f"{size}, at most {LARGER[name][0] if name in LARGER else ceiling}"
        for name, size, ceiling in oversized(modules())
        if name not in LARGER or size > LARGER[name][0]
    }
    exceptions.check(too_large, {})


def test_every_larger_thing_is_still_larger() -> None:
    needed = {name for name, _, _ in oversized(modules())}
    exceptions.check(needed & LARGER.keys(), {name: reason for name, (_, reason) in LARGER.items()})


def test_a_file_a_function_and_a_class_that_are_too_large_are_found() -> None:
    long_function = "def long():\n" + "    x = 1\n" * FUNCTION_LINES
    wide_function = "def wide(self, a, b, c, d, e, f, g, *, h, i=1, **rest): ...\n"
    wide_class = "class Wide:\n" + "".join(
        f"    def m{n}(self): ...\n" for n in range(PUBLIC_METHODS + 1)
    )
    sample = parse(long_function + wide_function + wide_class + "\n" * FILE_LINES)

    assert [(name, size) for name, size, _ in oversized([sample])] == [
        ("sample.py lines", sample.text.count("\n")),
        ("sample.py long lines", FUNCTION_LINES + 1),
        ("sample.py wide parameters", PARAMETERS + 1),
        ("sample.py Wide public methods", PUBLIC_METHODS + 1),
    ]


def test_a_docstring_and_optional_keywords_do_not_count() -> None:
    documented = 'def f(*, a=1, b=2, c=3, d=4, e=5, f=6, g=7, h=8):\n    """First.\n'
    documented += "    more\n" * FUNCTION_LINES + '    """\n    return a\n'
    assert list(oversized([parse(documented)])) == []
