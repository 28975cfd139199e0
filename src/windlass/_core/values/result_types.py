"""Whether the result of one task can be an argument of another, by their annotations."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from typing import Annotated, Any, Union

import msgspec

__all__ = ["may_fit", "type_name"]

_JSON = {
    type(None): "null",
    str: "text",
    bytes: "text",
    bool: "truth",
    int: "number",
    float: "number",
    list: "list",
    tuple: "list",
    set: "list",
    frozenset: "list",
    dict: "object",
}
"""Plain types, by how JSON writes their values. All other types may read and write anything."""


def may_fit(returned: Any, wanted: Any) -> bool:
    """Return False if no value that ``returned`` allows can be read as ``wanted``.

    It knows plain types alone, so it never refuses what could work.
    """
    given, taken = set(_kinds(returned)), set(_kinds(wanted))
    return None in given or None in taken or bool(given & taken)


def _kinds(annotation: Any) -> Iterator[str | None]:
    """Yield how JSON writes what an annotation allows; None: in any way."""
    if annotation is None:
        annotation = type(None)
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        yield from _kinds(typing.get_args(annotation)[0])
    elif origin is Union or origin is types.UnionType:
        for one in typing.get_args(annotation):
            if one is not msgspec.UnsetType:
                yield from _kinds(one)
    else:
        yield _JSON.get(origin or annotation)


def type_name(annotation: Any) -> str:
    """Return an annotation as a message can show it."""
    if annotation is None or annotation is type(None):
        return "None"
    if isinstance(annotation, type) and not typing.get_args(annotation):
        return annotation.__name__
    origin = typing.get_origin(annotation)
    if isinstance(origin, type) and origin is not types.UnionType:
        return f"{origin.__name__}[{', '.join(map(type_name, typing.get_args(annotation)))}]"
    return str(annotation).removeprefix("typing.")
