"""What is kept in a storage, and must be read by the version after and the version before."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.interface import internals
from tests.architecture.interface.shop import shop
from tests.architecture.interface.typed import paths
from tests.architecture.source import PACKAGE

KEY = re.compile(r"^    ([a-z_]+(?::<\w+>)*)\s+(STRING|HASH|ZSET|SET|LIST|STREAM)\b", re.MULTILINE)

NAMED = re.compile(r"prefix (?:\.\.|\+) ['\"]([a-z_]+:?)['\"]")
USERS = {"jobs.payload", "workers.about"}


def sqlite() -> Iterator[str]:
    """Of a fresh file, and of the JSON in it."""
    for table, column, kind, needed in shop().columns:
        yield f"table {table}: {column} {kind}{' NOT NULL' if needed else ''}"
    for _, definition in shop().indexes:
        yield _plain(definition)
    for column, value in shop().stored:
        if column in USERS or column.startswith("rollups."):
            continue  # names of the jobs above, and how long they took
        yield from (f"json in {column}: {path}" for path in paths(value))
    yield from _migrations("sqlite")


def postgres() -> Iterator[str]:
    """As its files say: tables with their columns, other statements whole, functions by name."""
    for file in _files("postgres", "migrations"):
        for statement in _statements(file.read_text("utf-8")):
            yield from _parts(statement)
    for file in _files("postgres", "functions"):
        for statement in _statements(file.read_text("utf-8")):
            yield from _parts(statement)
    yield from _migrations("postgres")


def _files(backend: str, folder: str) -> list[Path]:
    found = sorted(PACKAGE.glob(f"**/{backend}/**/{folder}/*.sql"))
    assert found, f"no folder {folder} of {backend}: tell this test where it is now"
    return found


def _migrations(backend: str) -> Iterator[str]:
    """Numbers alone are stored; what a number did is never changed, but for words about it."""
    for file in _files(backend, "migrations"):
        text = " ".join(_statements(file.read_text("utf-8")))
        yield f"migration {file.name[:4]} {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _statements(text: str) -> Iterator[str]:
    """Without comments and line ends. A function's body is one with the rest of it."""
    bare = re.sub(r"--[^\n]*", "", text)
    for found in re.finditer(r"(?:\$(\w*)\$.*?\$\1\$|[^;$]|\$)+", bare, re.DOTALL):
        if statement := _plain(found[0]):
            yield statement


def _parts(statement: str) -> Iterator[str]:
    if made := re.match(r"CREATE (?:UNLOGGED )?(TABLE|TYPE) (\w+) (?:AS )?\((.*)\)", statement):
        for column in _columns(made[3]):
            yield f"{made[1].lower()} {made[2]}: {column}"
    elif made := re.match(r"CREATE (?:OR REPLACE )?(FUNCTION|PROCEDURE) (.*?) LANGUAGE", statement):
        yield f"{made[1].lower()} {made[2]}"
    elif not statement.startswith(
        ("COMMENT", "DO ", "UPDATE", "INSERT", "DELETE", "DROP FUNCTION")
    ):
        yield statement


def _columns(text: str) -> Iterator[str]:
    """Parted by the commas outside of brackets."""
    depth, part = 0, ""
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and not depth:
            yield part.strip()
            part = ""
        else:
            part += letter
    yield part.strip()


def _plain(text: str) -> str:
    return " ".join(text.split())


def redis() -> Iterator[str]:
    """The keys that the layout documents and those that scripts name; records by their shape."""
    layout = internals.layout
    documented = re.sub(r"\n {16,}(?=[A-Z]+ )", " ", layout.__doc__ or "")
    yield from (f"key {name} {kind}" for name, kind in KEY.findall(documented))
    for file in PACKAGE.glob("**/redis/**/*.*"):
        if file.suffix in {".lua", ".py"}:
            for name in NAMED.findall(file.read_text("utf-8")):
                yield f"named key {name}"
    yield from (f"state {code} {state}" for code, state in enumerate(layout.STATES))
    yield from (f"verb {code} {verb}" for code, verb in enumerate(layout.VERBS))
    yield f"state record begins {layout.FRONT.format}, then {layout.BACK.format}"
    for name in ("CANCEL", "SOLO", "ERROR", "RESULT", "REASON", "FREES", "THROTTLED", "SPENT"):
        yield f"flag {getattr(layout, name)} {name.lower()}"
    yield from re.findall(r"This is (layout \d+)", layout.__doc__ or "")


def states() -> Iterator[str]:
    yield from (f"state {state}" for state in internals.State)
    yield from (f"shown {state}" for state in internals.Shown)
    yield from (f"verb {verb}" for verb in internals.Verb)
    for state, edges in internals.TRANSITIONS.items():
        yield from (f"{state} {verb} {after}" for verb, after in edges.items())


def audit() -> Iterator[str]:
    """What every order that a command can give is recorded as."""
    for words, answer in shop().said:
        if words == "windlass audit":
            yield from (record["what"] for record in answer)


def plugins() -> Iterator[str]:
    """The plugins that every app has, and what they bring: names of chores are stored."""
    for words, answer in shop().said:
        if words == "windlass plugins list":
            for plugin in answer:
                yield f"plugin {plugin['name']}"
                yield from (f"task {task['name']}" for task in plugin["tasks"])
                yield from (f"service {service}" for service in plugin["services"])
                yield from (f"schedule {schedule['name']}" for schedule in plugin["schedules"])
