"""Read the table of behaviours, and find what is wrong with it."""

from __future__ import annotations

import ast
import functools
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from tests.architecture.source import ROOT

FOLDER = Path(__file__).parent / "behaviours"


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Behaviours of one subject. Their ids are its name and a number from 1 to ``count``."""

    count: int
    title: str


class Behaviour(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One behaviour: proven by tests, replaced by a decision, or not built yet."""

    what: str
    tests: tuple[str, ...] = ()
    decided: str = ""
    missing: str = ""


class Table(NamedTuple):
    """Sections by name, and every entry with its id, in the order of the files."""

    sections: Mapping[str, Section]
    entries: tuple[tuple[str, Behaviour], ...]

    @property
    def missing(self) -> set[str]:
        return {name for name, entry in self.entries if entry.missing}


def read(texts: Iterable[str]) -> Table:
    """Read the table from TOML."""
    sections: dict[str, Section] = {}
    entries: list[tuple[str, Behaviour]] = []
    for text in texts:
        document = tomllib.loads(text)
        sections |= msgspec.convert(document.pop("sections"), dict[str, Section])
        entries += msgspec.convert(document, dict[str, Behaviour]).items()
    return Table(sections, tuple(entries))


@functools.cache
def the_table() -> Table:
    return read(file.read_text(encoding="utf-8") for file in sorted(FOLDER.glob("*.toml")))


def wrong_ids(table: Table) -> list[str]:
    """Name ids that are absent, twice there, out of order or of no section."""
    wanted = [
        f"{name}-{number}"
        for name, section in table.sections.items()
        for number in range(1, section.count + 1)
    ]
    found = [name for name, _ in table.entries]
    problems = [f"{name} is absent" for name in wanted if name not in found]
    problems += [f"{name} is in no section" for name in found if name not in wanted]
    problems += [f"{name} is there twice" for name in wanted if found.count(name) > 1]
    return problems if problems or found == wanted else ["the ids are out of order"]


def wrong_entries(table: Table) -> Iterator[str]:
    """Name entries that say nothing, or two things that exclude each other."""
    for name, entry in table.entries:
        if not entry.what:
            yield f"{name} does not say what it is"
        if entry.decided and entry.missing:
            yield f"{name} is both decided and missing"
        if not (entry.tests or entry.decided or entry.missing):
            yield f"{name} has no test, no decision and no gap"
        if len(set(entry.tests)) < len(entry.tests):
            yield f"{name} names a test twice"


def unknown_tests(table: Table) -> Iterator[str]:
    """Name tests that do not exist. Their modules are parsed and not imported."""
    for name, entry in table.entries:
        for test in entry.tests:
            path, *inside = test.partition("[")[0].split("::")
            if "::".join(inside) not in tests_of(path):
                yield f"{name}: {test}"


@functools.cache
def tests_of(path: str) -> frozenset[str]:
    """List the tests in a file, and "" for the file itself if pytest collects it."""
    file = ROOT / path
    if not file.is_file():
        return frozenset()
    found = {""} if file.name.startswith("test_") else set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        inside = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        found |= {
            f"{prefix}{part.name}"
            for part in inside
            if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)
            and part.name.startswith("test_")
        }
    return frozenset(found)
