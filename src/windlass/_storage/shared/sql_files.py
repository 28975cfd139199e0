"""Named statements in ``.sql`` resources, so that SQL reads as SQL and a wrong name fails early."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib import resources

__all__ = ["Queries", "load_sql", "parse_sql"]

_HEADING = re.compile(r"^-- (name|part):[ \t]*(\S*)[ \t]*$", re.MULTILINE)
_INCLUDE = re.compile(r"^-- include:[ \t]*(\S*)[ \t]*$", re.MULTILINE)


class Queries(Mapping[str, str]):
    """The statements of one resource by name, bound at import: ``_CLAIM = _SQL["claim"]``.

    So an unknown name is an error, listing the known ones, when the module is imported and not
    when the statement is first needed.
    """

    def __init__(self, origin: str, statements: Mapping[str, str]) -> None:
        self._origin = origin
        self._statements = dict(statements)

    def __getitem__(self, name: str) -> str:
        try:
            return self._statements[name]
        except KeyError:
            known = ", ".join(sorted(self._statements))
            raise LookupError(f"{self._origin} has no query {name!r}, only {known}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._statements)

    def __len__(self) -> int:
        return len(self._statements)


def parse_sql(text: str, origin: str = "this text") -> Queries:
    """Split a resource at its ``-- name:`` lines. Comments stay: they show in logs.

    Text that several statements share is written once, under ``-- part: x``; a line ``-- include:
    x`` in a later statement includes it.
    """
    head, *sections = _HEADING.split(text)
    if any(line.strip() and not line.startswith("--") for line in head.splitlines()):
        raise ValueError(f"{origin} has statements before its first '-- name:' line")
    found: dict[str, dict[str, str]] = {"name": {}, "part": {}}
    for kind, name, body in zip(sections[::3], sections[1::3], sections[2::3], strict=True):
        if not name.isidentifier():
            raise ValueError(f"{origin} has a query named {name!r}; a name is one word")
        if name in found["name"] or name in found["part"]:
            raise ValueError(f"{origin} has two queries named {name!r}")
        found[kind][name] = _included(body.strip(), found["part"], origin)
        if not found[kind][name]:
            raise ValueError(f"{origin} has nothing under the name {name!r}")
    return Queries(origin, found["name"])


def _included(body: str, parts: Mapping[str, str], origin: str) -> str:
    for name in _INCLUDE.findall(body):
        if name not in parts:
            raise ValueError(f"{origin} includes {name!r}, and no '-- part: {name}' is above it")
    return _INCLUDE.sub(lambda line: parts[line[1]], body)


def load_sql(package: str, filename: str) -> Queries:
    """Return the queries of ``filename`` in ``package``, for example
    ``windlass._storage.sqlite.sql``.
    """
    text = (resources.files(package) / filename).read_text(encoding="utf-8")
    return parse_sql(text, f"{package}/{filename}")
