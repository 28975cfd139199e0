"""Whether the result of one task can be an argument of another, by their annotations."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from typing import Annotated, Any, Union

import msgspec

from windlass._core.flows.pending import Pending
from windlass._core.flows.results import Results

__all__ = ["check_result", "is_results", "may_fit", "type_name"]

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
    if origin is Union or origin is types.UnionType:
        # A parameter with a default may also be unset, which its author did not write.
        written = [one for one in typing.get_args(annotation) if one is not msgspec.UnsetType]
        return " | ".join(map(type_name, written))
    if isinstance(origin, type):
        return f"{origin.__name__}[{', '.join(map(type_name, typing.get_args(annotation)))}]"
    return str(annotation).removeprefix("typing.")


def check_result(pending: Pending, kind: Any, name: str) -> None:
    """Refuse a result that a parameter cannot take, as far as the annotations say: TypeError."""
    takes = next((one for one in (kind, *typing.get_args(kind)) if is_results(one)), None)
    shown = type_name(kind if takes is None else takes)
    if pending.kind == "part":
        if takes is None:
            message = (
                f"{name} takes {shown}, and gets the results of the group "
                f"{pending.title}: annotate it Results[{type_name(pending.returns)}], and read "
                f"them with `async for` or `for`"
            )
            raise TypeError(message)
        (kind,) = typing.get_args(takes) or (Any,)
    elif takes is not None:
        message = (
            f"{name} takes {shown}, and gets the result of the job {pending.title} "
            f"alone: pass the results of a group, rows.results"
        )
        raise TypeError(message)
    if not may_fit(pending.returns, kind):
        message = (
            f"{name} takes {shown}, and {pending.title} returns "
            f"{type_name(pending.returns)}: change one of the annotations, or put a task between "
            f"them that converts it"
        )
        raise TypeError(message)


def is_results(kind: Any) -> bool:
    """Return whether an annotation is `Results`."""
    return (typing.get_origin(kind) or kind) is Results
