"""Named statements in ``.sql`` resources, so that SQL reads as SQL and a wrong name fails early."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib import resources

__all__ = ["Queries", "load", "parse"]

_NAME = re.compile(r"^-- name:[ \t]*(\S*)[ \t]*$", re.MULTILINE)


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


def parse(text: str, origin: str = "this text") -> Queries:
    """Split a resource at its ``-- name:`` lines. Comments stay: they show in logs."""
    head, *parts = _NAME.split(text)
    if any(line.strip() and not line.startswith("--") for line in head.splitlines()):
        raise ValueError(f"{origin} has statements before its first '-- name:' line")
    statements: dict[str, str] = {}
    for name, body in zip(parts[::2], parts[1::2], strict=True):
        if not name.isidentifier():
            raise ValueError(f"{origin} has a query named {name!r}; a name is one word")
        if name in statements:
            raise ValueError(f"{origin} has two queries named {name!r}")
        statements[name] = body.strip()
        if not statements[name]:
            raise ValueError(f"{origin} has nothing under the name {name!r}")
    return Queries(origin, statements)


def load(package: str, filename: str) -> Queries:
    """The queries of ``filename`` in ``package``, for example ``windlass.storage.sqlite.sql``."""
    text = (resources.files(package) / filename).read_text(encoding="utf-8")
    return parse(text, f"{package}/{filename}")
