"""Which arguments are secret, read off their annotations."""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["SECRET", "secrets_of"]


class _Secret:
    """The marker that ``Secret[...]`` adds to a type."""

    def __repr__(self) -> str:
        return "Secret"


SECRET = _Secret()


def secrets_of(hints: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names under which a payload holds secrets: those of arguments, and of fields of
    the dataclasses, Structs, TypedDicts and models that arguments are made of.
    """
    return tuple(sorted(set(_named(hints, set()))))


def _named(hints: Mapping[str, Any], seen: set[type]) -> Iterator[str]:
    for name, annotation in hints.items():
        if _is_secret(annotation):
            yield name
        for kind in _classes(annotation):
            if kind not in seen:
                seen.add(kind)
                yield from _named(_fields(kind), seen)


def _is_secret(annotation: Any) -> bool:
    """Check for a mark on the type, or inside of it: ``list[Secret[str]]``,
    ``Secret[str] | None``.
    """
    if SECRET in getattr(annotation, "__metadata__", ()):
        return True
    return any(_is_secret(part) for part in typing.get_args(annotation))


def _classes(annotation: Any) -> Iterator[type]:
    parts = typing.get_args(annotation)
    if not parts and isinstance(annotation, type):
        yield annotation
    for part in parts:
        yield from _classes(part)


def _fields(kind: type) -> Mapping[str, Any]:
    if kind.__module__ == "builtins":
        return {}
    try:
        return typing.get_type_hints(kind, include_extras=True)
    except Exception:  # noqa: BLE001 -- a class with annotations that are no types names no secrets
        return {}
