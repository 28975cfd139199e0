"""Metadata: what may be noted, and how much."""

from __future__ import annotations

from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Any

import pytest

from windlass._core.values.metadata import merge_metadata
from windlass.errors import InvalidArgument


class Kind(StrEnum):
    GOOD = "good"


class Level(IntEnum):
    HIGH = 3


class Opaque(Enum):
    ONE = 1


def test_later_values_are_added_and_replace() -> None:
    known = merge_metadata({}, {"rows": 1, "source": "s3"})
    assert merge_metadata(known, {"rows": 2, "done": None}) == {
        "rows": 2,
        "source": "s3",
        "done": None,
    }
    assert known == {"rows": 1, "source": "s3"}


def test_members_of_enums_become_plain_values() -> None:
    merged = merge_metadata({}, {"kind": Kind.GOOD, "level": Level.HIGH, "whole": True})
    assert {name: type(value) for name, value in merged.items()} == {
        "kind": str,
        "level": int,
        "whole": bool,
    }


@pytest.mark.parametrize(
    "value",
    [[1], {"a": 1}, b"bytes", Decimal(1), object, Opaque.ONE, float("nan"), float("inf"), 2**64],
    ids=str,
)
def test_other_values_are_refused_and_the_message_says_what_to_do(value: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"total=.*pass str\(total\)"):
        merge_metadata({}, {"total": value})


@pytest.mark.parametrize("name", ["", "n" * 65])
def test_names_have_a_length(name: str) -> None:
    with pytest.raises(InvalidArgument, match="1 to 64 characters"):
        merge_metadata({}, {name: 1})


def test_there_are_at_most_32_values() -> None:
    known = merge_metadata({}, {f"n{number}": number for number in range(32)})
    assert merge_metadata(known, {"n0": "again"})["n0"] == "again"
    with pytest.raises(InvalidArgument, match="at most 32 metadata values, and this would be 33"):
        merge_metadata(known, {"one more": 1})


def test_all_together_have_four_kibibytes() -> None:
    known = merge_metadata({}, {"text": "x" * 4000})
    with pytest.raises(InvalidArgument, match="at most 4,096 bytes of JSON"):
        merge_metadata(known, {"more": "x" * 100})


def test_text_must_be_unicode() -> None:
    with pytest.raises(InvalidArgument, match="valid Unicode"):
        merge_metadata({}, {"name": "\udcff"})
