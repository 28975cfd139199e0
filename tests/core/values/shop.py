"""A shop's types and functions, for the tests of the codec."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple, TypedDict

import msgspec
import pydantic


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Address:
    street: str
    zip: str = "0000"
    lines: list[str] = field(default_factory=list)


class Item(msgspec.Struct, frozen=True):
    sku: str
    price: Decimal
    colour: Colour | None = None


class Order(pydantic.BaseModel):
    id: uuid.UUID
    placed: datetime
    items: list[str] = []


class Point(NamedTuple):
    x: int
    y: int


class Options(TypedDict, total=False):
    colour: str
    size: int


class Opaque:
    """No JSON stands for it."""


NOON = datetime(2026, 3, 1, 12, 0, 0, 123_456, tzinfo=UTC)
ID = uuid.UUID("0195511c-7a00-7000-8000-000000000001")
ORDER = Order(id=ID, placed=NOON, items=["a", "b"])


def taking(kind: object) -> Callable[..., object]:
    """A function with one argument of this type."""

    def function(value: Any) -> Any: ...

    function.__annotations__ = {"value": kind, "return": kind}
    return function


def anything(value, other=None) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    ...


def send(to: str, subject: str = "Hi", *, copies: int = 1, urgent: bool = False) -> str: ...  # type: ignore[empty-body]
