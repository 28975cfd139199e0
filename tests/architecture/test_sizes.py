"""Ceilings on size. A reason beats the number, but it has to be written down here."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import NamedTuple

from tests.architecture import exceptions
from tests.architecture.source import (
    FunctionNode,
    Module,
    definitions,
    docstring_of,
    dotted,
    imported_names,
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
    "_app/app.py Windlass public methods": (
        22,
        "one for each thing that users do with an app; it is the first page of the reference",
    ),
    "_cli/options/target.py app_at.Chosen public methods": (22, "an app with another URL"),
    "_storage/memory/io/database.py MemoryDatabase public methods": (
        26,
        "one for each way in which a row moves: lines, keys, ends and flows, under one lock",
    ),
    "errors.py lines": (
        540,
        "every error that is raised on purpose, with its message, in one list; it is read as one",
    ),
    "_storage/redis/io/records.py job_of lines": (62, "one line for each field of a job"),
    "_storage/memory/io/rows.py JobRow public methods": (
        31,
        "one short method for each change of a stored job; nothing else may change its fields",
    ),
    "_tasks/context.py Context public methods": (
        22,
        "one for each fact about a run and each call to its worker; handlers read it as one list",
    ),
    "_storage/protocol/storage.py Storage public methods": (
        22,
        "one property for each of its stores, and the few calls about the storage itself",
    ),
}


def oversized(sources: Iterable[Module]) -> Iterator[tuple[str, int, int]]:
    """Name, size and ceiling of everything too large."""
    every = list(sources)
    classes = _classes(every)
    for module in every:
        for name, size, ceiling in _sizes(module, classes):
            if size > ceiling:
                yield f"{module.path}{name}", size, ceiling


def _sizes(module: Module, classes: Classes) -> Iterator[tuple[str, int, int]]:
    yield " lines", module.text.count("\n"), FILE_LINES
    for name, node in definitions(module.tree):
        if isinstance(node, ast.ClassDef):
            methods = _public_methods(f"{_dotted_name(module)}.{name}", classes)
            yield f" {name} public methods", len(methods), PUBLIC_METHODS
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


class DefinedClass(NamedTuple):
    """The public methods that a class defines, and the full names of its bases."""

    methods: frozenset[str]
    bases: tuple[str, ...]


Classes = Mapping[str, DefinedClass]


def _classes(sources: Iterable[Module]) -> Classes:
    """Every class of the sources, by its full name."""
    found: dict[str, DefinedClass] = {}
    for module in sources:
        place, imports = _dotted_name(module), imported_names(module.tree)
        for name, node in definitions(module.tree):
            if not isinstance(node, ast.ClassDef):
                continue
            # ``Base[int]`` is ``Base``; a base without an import is of the same module.
            bases = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
            full = [dotted(base, imports) or f"{place}.{ast.unparse(base)}" for base in bases]
            found[f"{place}.{name}"] = DefinedClass(_own_methods(node), tuple(full))
    return found


def _dotted_name(module: Module) -> str:
    parts = PurePosixPath("windlass", module.path).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def _own_methods(node: ast.ClassDef) -> frozenset[str]:
    """Tests of the conformance suite are not an interface; overloads count once."""
    names = {child.name for child in node.body if isinstance(child, FunctionNode)}
    return frozenset(name for name in names if not name.startswith(("_", "test_")))


def _public_methods(name: str, classes: Classes) -> frozenset[str]:
    """With those that it inherits from classes of the package."""
    if name not in classes:
        return frozenset()
    inherited = [_public_methods(base, classes) for base in classes[name].bases]
    return classes[name].methods.union(*inherited)


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


def test_inherited_methods_count_also_from_other_modules() -> None:
    half = PUBLIC_METHODS // 2 + 1
    first, second = (
        "".join(f"    def {letter}{n}(self): ...\n" for n in range(half)) for letter in "ab"
    )
    base = parse(f"class Base(Generic[T]):\n{first}", "parts/base.py")
    middle = parse("import windlass.parts.base as p\nclass Middle(p.Base[int]): ...", "b.py")
    whole = parse(f"from windlass.b import Middle\nclass Whole(Middle):\n{second}", "c.py")
    inside = parse(f"class Here:\n{first}\nclass There(Here):\n{second}", "d.py")

    assert [(name, size) for name, size, _ in oversized([base, middle, whole, inside])] == [
        ("c.py Whole public methods", 2 * half),
        ("d.py There public methods", 2 * half),
    ]


def test_a_method_that_is_overridden_counts_once() -> None:
    methods = "".join(f"    def m{n}(self): ...\n" for n in range(PUBLIC_METHODS))
    sample = parse(f"class Base:\n{methods}\nclass Own(Base):\n{methods}")
    assert list(oversized([sample])) == []


def test_a_docstring_and_optional_keywords_do_not_count() -> None:
    documented = 'def f(*, a=1, b=2, c=3, d=4, e=5, f=6, g=7, h=8):\n    """First.\n'
    documented += "    more\n" * FUNCTION_LINES + '    """\n    return a\n'
    assert list(oversized([parse(documented)])) == []
