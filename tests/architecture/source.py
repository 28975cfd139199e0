"""The package's own source as syntax trees, and what a name in it stands for."""

from __future__ import annotations

import ast
import functools
import gc
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "windlass"

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
Definition = FunctionNode | ast.ClassDef


class Module(NamedTuple):
    """One Python file: where it is (relative to the package), its text and its tree."""

    path: str
    text: str
    tree: ast.Module


def parse(text: str, path: str = "sample.py") -> Module:
    return Module(path, text, ast.parse(text, filename=path))


@functools.cache
def modules() -> tuple[Module, ...]:
    """Every module of the package, in a stable order.

    Their million nodes stay to the end of the run: the garbage collector would look at them again
    and again, while they are made and after each later test.
    """
    collects = gc.isenabled()
    gc.collect()  # or the garbage of earlier tests would stay, too
    gc.disable()
    found = tuple(
        parse(file.read_text(encoding="utf-8"), file.relative_to(PACKAGE).as_posix())
        for file in sorted(PACKAGE.rglob("*.py"))
    )
    for module in found:
        nodes(module.tree)
    gc.freeze()
    if collects:
        gc.enable()
    return found


@functools.cache
def nodes(tree: ast.AST) -> tuple[ast.AST, ...]:
    """Every node of a tree. Kept: several tests look at all nodes of the package."""
    return tuple(ast.walk(tree))


def definitions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, Definition]]:
    """Every class and function with its dotted name, nested ones included."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, Definition):
            name = f"{prefix}{child.name}"
            yield name, child
            yield from definitions(child, f"{name}.")
        else:
            yield from definitions(child, prefix)


@functools.cache
def imported_names(tree: ast.Module) -> Mapping[str, str]:
    """What each imported name stands for: ``from time import sleep as nap`` → nap: time.sleep."""
    names: dict[str, str] = {}
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                # `import a.b` binds `a`; `import a.b as c` binds the whole.
                bound = alias.asname or alias.name.partition(".")[0]
                names[bound] = alias.name if alias.asname else bound
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def dotted(node: ast.expr, names: Mapping[str, str]) -> str | None:
    """The full name behind ``a.b.c``, seen through this module's imports; None for the rest."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = dotted(node.value, names)
        return f"{owner}.{node.attr}" if owner else None
    return None


def docstrings(tree: ast.Module) -> set[ast.Constant]:
    """The string constants that are documentation, not values."""
    found: set[ast.Constant] = set()
    for node in nodes(tree):
        if isinstance(node, ast.Module | Definition) and (first := docstring_of(node)):
            found.add(first)
    return found


def docstring_of(node: ast.Module | Definition) -> ast.Constant | None:
    if node.body and isinstance(node.body[0], ast.Expr):
        value = node.body[0].value
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            return value
    return None
