"""Results that are not there yet, as arguments of calls.

A call may take the result of another node of its flow. Its payload then has null in that place, and
a list of the places under a name that no parameter can have. The worker fills them in before the
run.
"""

from __future__ import annotations

import contextvars
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NoReturn

import msgspec

from windlass._core.job.job import FlowId
from windlass.errors import InvalidArgument

__all__ = [
    "PENDING",
    "Pending",
    "Place",
    "PlaceholderMet",
    "Wanted",
    "collect",
    "fill",
    "has_pending",
    "mark_pending",
    "pending_parts",
    "wanted_in",
    "with_placeholders",
]

_KEY = "$results"
PENDING = b'{"' + _KEY.encode() + b'":'
"""The beginning of a payload that waits for results."""

Place = tuple[str | int, ...]
"""The way to a value in the arguments: a name, then keys and indexes."""


class Wanted(msgspec.Struct, frozen=True, array_like=True):
    """The result that belongs in one place of the arguments."""

    place: Place
    kind: Literal["job", "part"]
    """The result of one job, or the results of all jobs of a part."""
    source: str
    """The job's id; or the flow, the number of the part that is waited for, and those of the parts
    that are read if it is not that one: ``flow/4/1,2,3``.
    """

    def part_of(self, flow: FlowId) -> int | None:
        """Return the number of the part to wait for; None: it is one of another flow."""
        owner, _, numbers = self.source.partition("/")
        return int(numbers.partition("/")[0]) if owner == flow else None

    def parts(self) -> tuple[FlowId, list[int]]:
        """Return the flow, and the numbers of the parts to read."""
        owner, _, numbers = self.source.partition("/")
        part, slash, read = numbers.partition("/")
        read = read if slash else part
        return FlowId(owner), [int(number) for number in read.split(",") if number]


class Pending:
    """Marks the place of a result until the flow runs. Not a value: using it as one is an error."""

    __slots__ = ("kind", "returns", "source", "title")

    def __init__(
        self, kind: Literal["job", "part"], source: str, title: str, returns: Any = Any
    ) -> None:
        """Mark a place. ``returns``: the annotation of the result, or of each of the results."""
        self.kind, self.source = kind, source
        self.title, self.returns = title, returns

    def __repr__(self) -> str:
        return f"<result of {self.title}, known when the flow runs>"

    def _refuse(self, *_: object) -> NoReturn:
        raise InvalidArgument(self._unknown())

    def _unknown(self) -> str:
        return (
            f"the result of {self.title} is not known before the flow runs: pass it to a task's "
            f"call, and compute with it in the task"
        )

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(self._unknown())

    __bool__ = __iter__ = __aiter__ = __len__ = __getitem__ = __contains__ = _refuse
    __call__ = __await__ = __int__ = __float__ = __index__ = __str__ = __format__ = _refuse
    __hash__ = object.__hash__  # a class that compares has none otherwise
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __neg__ = __abs__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = _refuse
    __rtruediv__ = __floordiv__ = __mod__ = __pow__ = __and__ = __or__ = _refuse


def pending_parts(
    flow: FlowId, part: int, read: Sequence[int], title: str, returns: Any
) -> Pending:
    """Return the mark for the results of parts. ``part`` is the one to wait for."""
    source = f"{flow}/{part}"
    if tuple(read) != (part,):
        source += f"/{','.join(map(str, read))}"
    return Pending("part", source, title, returns)


class Collected:
    """The placeholders that one encoding met."""

    def __init__(self) -> None:
        self.found: list[Pending] = []

    def mark(self, pending: Pending) -> str:
        """Return the text that marks it in the JSON: no text of the user's is equal."""
        self.found.append(pending)
        return f"{_KEY}:{id(self)}:{len(self.found) - 1}"

    def index(self, text: object) -> int | None:
        """Return which one a text of the JSON marks."""
        start = f"{_KEY}:{id(self)}:"
        if not isinstance(text, str) or not text.startswith(start):
            return None
        number = text[len(start) :]
        known = number.isdecimal() and int(number) < len(self.found)
        return int(number) if known else None


_COLLECTED: contextvars.ContextVar[Collected | None] = contextvars.ContextVar(
    "windlass_pending", default=None
)


class PlaceholderMet(Exception):
    """Arguments hold a `Pending`: they must be encoded by `collect`."""


def mark_pending(pending: Pending) -> str:
    """Encode a placeholder, for `collect`."""
    collected = _COLLECTED.get()
    if collected is None:
        raise PlaceholderMet
    return collected.mark(pending)


def collect(arguments: Mapping[str, Any], encoder: msgspec.json.Encoder) -> bytes:
    """Encode arguments that hold placeholders. TypeError if one is the key of a dict."""
    collected = Collected()
    token = _COLLECTED.set(collected)
    try:
        tree: dict[str, Any] = msgspec.json.decode(encoder.encode(arguments))
    finally:
        _COLLECTED.reset(token)
    wanted = [
        Wanted(place, collected.found[number].kind, collected.found[number].source)
        for place, number in _places(tree, collected, ())
    ]
    if len(wanted) < len(collected.found):
        message = (
            f"a result is the key of a dict ({collected.found[0].title}): pass it as a value, and "
            f"make the dict in the task"
        )
        raise TypeError(message)
    for one in wanted:
        _put(tree, one.place, None)
    return encoder.encode({_KEY: wanted, **tree})


def _places(value: object, collected: Collected, place: Place) -> Iterable[tuple[Place, int]]:
    if (number := collected.index(value)) is not None:
        yield place, number
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _places(inner, collected, (*place, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _places(inner, collected, (*place, index))


def _put(tree: Any, place: Place, value: object) -> None:
    for step in place[:-1]:
        tree = tree[step]
    tree[place[-1]] = value


def has_pending(payload: bytes) -> bool:
    """Return whether a payload waits for results. Cheap: asked for every member of a flow."""
    return payload.startswith(PENDING)


def wanted_in(payload: bytes) -> Sequence[Wanted]:
    """Return what belongs into the places of a payload."""
    return msgspec.convert(msgspec.json.decode(payload)[_KEY], list[Wanted])


def with_placeholders(payload: bytes) -> dict[str, Any]:
    """Return the arguments by name, as JSON has them, with a `Pending` in each place."""
    tree: dict[str, Any] = msgspec.json.decode(payload)
    for one in msgspec.convert(tree.pop(_KEY), list[Wanted]):
        _put(tree, one.place, Pending(one.kind, one.source, f"{one.kind} {one.source}"))
    return tree


def fill(payload: bytes, values: Sequence[object]) -> bytes:
    """Return the payload with a value in each place, in the order of `wanted_in`."""
    tree = msgspec.json.decode(payload)
    wanted = msgspec.convert(tree.pop(_KEY), list[Wanted])
    for one, value in zip(wanted, values, strict=True):
        _put(tree, one.place, value)
    return msgspec.json.encode(tree)
