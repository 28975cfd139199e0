"""Bytes from storage are never executed, and SQL is never built from values."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from tests.architecture import exceptions
from tests.architecture.source import (
    PACKAGE,
    Module,
    definitions,
    docstrings,
    modules,
    nodes,
    parse,
)

# Reading any of these can run code that somebody else wrote into the storage.
UNSAFE_MODULES = {"pickle", "marshal", "shelve", "yaml", "dill", "cloudpickle", "jsonpickle"}
UNSAFE_CALLS = {"eval", "exec"}
UNSAFE_ALLOWED: dict[str, str] = {}

EXECUTE = {"execute", "executemany"}
BUILT_SQL_ALLOWED: dict[str, str] = {}

# A deferred transaction takes its write lock at the first write, and then fails at once when
# another connection has written in between: no busy timeout helps.
DEFERRED = re.compile(r"(?:\A|;)\s*BEGIN\b(?!\s+IMMEDIATE\b)", re.IGNORECASE)
DEFERRED_ALLOWED: dict[str, str] = {}


def unsafe_decoders(sources: Iterable[Module]) -> Iterator[str]:
    for module in sources:
        for node in nodes(module.tree):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                if node.func.id in UNSAFE_CALLS:
                    yield f"{module.path} {node.func.id}"
                continue
            else:
                continue
            for name in names:
                if name.partition(".")[0] in UNSAFE_MODULES:
                    yield f"{module.path} {name}"


def built_sql(sources: Iterable[Module]) -> Iterator[str]:
    """Statements put together from pieces, given to ``execute`` directly or by a local name."""
    for module in sources:
        scopes: list[tuple[str, ast.AST]] = [("module", module.tree), *definitions(module.tree)]
        for scope, tree in scopes:
            pieced = {
                target.id
                for node in _own_nodes(tree)
                if isinstance(node, ast.Assign) and _is_built(node.value)
                for target in node.targets
                if isinstance(target, ast.Name)
            }
            for node in _own_nodes(tree):
                if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                    continue
                if node.func.attr in EXECUTE and node.args:
                    statement = node.args[0]
                    named = isinstance(statement, ast.Name) and statement.id in pieced
                    if named or _is_built(statement):
                        yield f"{module.path} {scope}"


def _own_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes of one scope, without those of the functions and classes inside it."""
    for child in ast.iter_child_nodes(tree):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield child
            yield from _own_nodes(child)


def _is_built(node: ast.expr) -> bool:
    match node:
        case ast.JoinedStr(values=values):
            return any(isinstance(value, ast.FormattedValue) for value in values)
        case ast.BinOp(op=ast.Add() | ast.Mod()):
            return True
        case ast.Call(func=ast.Attribute(attr="format" | "format_map" | "join" | "replace")):
            return True
        case _:
            return False


def deferred_transactions(sources: Iterable[Module]) -> Iterator[str]:
    for module in sources:
        documentation = docstrings(module.tree)
        for node in nodes(module.tree):
            if not isinstance(node, ast.Constant) or node in documentation:
                continue
            if isinstance(node.value, str) and DEFERRED.search(without_comments(node.value)):
                yield module.path


def without_comments(sql: str) -> str:
    return re.sub(r"--[^\n]*", "", sql)


def test_nothing_that_can_run_stored_bytes_is_used() -> None:
    exceptions.check(set(unsafe_decoders(modules())), UNSAFE_ALLOWED)


def test_no_statement_is_built_from_pieces() -> None:
    exceptions.check(set(built_sql(modules())), BUILT_SQL_ALLOWED)


def test_every_transaction_takes_its_write_lock_at_the_start() -> None:
    deferred = set(deferred_transactions(modules()))
    files = sorted((PACKAGE / "_storage" / "sqlite").rglob("*.sql"))
    assert files
    for file in files:
        if DEFERRED.search(without_comments(file.read_text(encoding="utf-8"))):
            deferred.add(file.relative_to(PACKAGE).as_posix())
    exceptions.check(deferred, DEFERRED_ALLOWED)


def test_unsafe_decoders_are_found() -> None:
    sample = parse("import pickle\nfrom yaml import load\neval('1')\nself.exec()\n")
    assert list(unsafe_decoders([sample])) == [
        "sample.py pickle",
        "sample.py yaml",
        "sample.py eval",
    ]


def test_built_statements_are_found_however_they_are_built() -> None:
    sample = parse(
        """
def direct(c): c.execute(f"SELECT {x}")
def percent(c): c.execute("SELECT %s" % x)
def joined(c): c.executemany("SELECT " + x, [])
def formatted(c): c.execute("SELECT {}".format(x))
def named(c):
    sql = f"SELECT {x}"
    with c:
        c.execute(sql)
def fine(c):
    c.execute("SELECT ?", (x,))
    c.execute(_CLAIM, f"{x}")
"""
    )
    assert [name.removeprefix("sample.py ") for name in built_sql([sample])] == [
        "direct",
        "percent",
        "joined",
        "formatted",
        "named",
    ]


def test_deferred_transactions_are_found_and_triggers_are_not_mistaken_for_them() -> None:
    bad = ["BEGIN", "begin deferred", "-- why\nBEGIN;", "COMMIT; BEGIN TRANSACTION"]
    good = ["BEGIN IMMEDIATE", "CREATE TRIGGER t AFTER INSERT ON jobs\nBEGIN SELECT 1; END", "beg"]
    for sql in bad:
        assert list(deferred_transactions([parse(f"x = {sql!r}")])), sql
    for sql in good:
        assert not list(deferred_transactions([parse(f"x = {sql!r}")])), sql
