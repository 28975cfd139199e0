"""``windlass.storage`` has every type that the contract of a backend names."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Iterator
from types import FunctionType, UnionType
from typing import Any, NewType, get_args, get_origin, get_type_hints

from windlass import storage


def reached(given: object) -> set[str]:
    """Name the types of Windlass that ``given`` and all that it leads to mention."""
    found: list[object] = []
    queue = [given]
    while queue:
        one = queue.pop()
        if one not in found:
            found.append(one)
            queue.extend(named_by(one))
    return {str(getattr(one, "__name__", one)) for one in found}


def named_by(one: object) -> Iterator[object]:
    """Yield the types of Windlass in the fields, methods and bases of a class."""
    if not isinstance(one, type):
        return
    yield from (base for base in one.__mro__[1:] if _is_ours(base))
    for hint in _hints(one).values():
        yield from _ours_in(hint)
    if issubclass(one, enum.Enum):
        return
    for name, member in inspect.getmembers_static(one):
        function = member.fget if isinstance(member, property) else member
        if isinstance(function, FunctionType) and _is_ours(function) and not name.startswith("__"):
            for hint in _hints(function).values():
                yield from _ours_in(hint)


def _hints(one: Any) -> dict[str, Any]:
    """Read annotations; what a module imports for type checkers only is found at the door."""
    return get_type_hints(one, localns=vars(storage))


def _ours_in(hint: Any) -> Iterator[object]:
    if isinstance(hint, list | UnionType) or get_origin(hint) is not None:
        for part in hint if isinstance(hint, list) else get_args(hint):
            yield from _ours_in(part)
    elif isinstance(hint, type | NewType) and _is_ours(hint):
        yield hint


def _is_ours(one: object) -> bool:
    return str(getattr(one, "__module__", "")).partition(".")[0] == "windlass"


def listed() -> set[str]:
    """Name what the door lists, but for unions such as ``Order``, whose members it lists."""
    values = {name: getattr(storage, name) for name in storage.__all__}
    return {name for name, value in values.items() if isinstance(value, type | NewType)}


def test_every_type_of_the_contract_is_public() -> None:
    assert reached(storage.Storage) - listed() == set()


def test_nothing_is_public_that_the_contract_does_not_name() -> None:
    assert listed() - reached(storage.Storage) == set()


def test_types_are_found_in_fields_methods_and_bases() -> None:
    assert {"ErrorGroup", "Outlook", "Stores", "JobId"} <= reached(storage.Storage)
    assert reached(storage.LogChunk) == {"LogChunk", "LogLine", "Claim", "JobId"}
