from __future__ import annotations

import uuid
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum

import pytest

from windlass._core.job.caller import CORRELATION_KEYS, PRINCIPAL_KEYS, first_usable


class Robot(StrEnum):
    NIGHTLY = "nightly"


class Team(Enum):
    SALES = "sales"
    NOBODY = ""


class Number(IntEnum):
    ONE = 1


@pytest.mark.parametrize("key", PRINCIPAL_KEYS)
def test_the_principal_is_read_from_any_of_its_names(key: str) -> None:
    assert first_usable({key: "ada", "other": "x"}, PRINCIPAL_KEYS) == "ada"


@pytest.mark.parametrize("key", CORRELATION_KEYS)
def test_the_correlation_id_is_read_from_any_of_its_names(key: str) -> None:
    assert first_usable({key: "req-7"}, CORRELATION_KEYS) == "req-7"


def test_the_names_are_tried_in_their_order_and_not_in_that_of_the_arguments() -> None:
    arguments = {"user_id": "third", "principal": "second", "principal_id": "first"}
    assert first_usable(arguments, PRINCIPAL_KEYS) == "first"
    assert first_usable({"request_id": "b", "correlation_id": "a"}, CORRELATION_KEYS) == "a"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("42", "42"),
        (" ", " "),
        (42, "42"),
        (0, "0"),
        (-1, "-1"),
        (1.5, "1.5"),
        (True, "true"),
        (False, "false"),
    ],
)
def test_strings_numbers_and_booleans_are_usable_as_text(value: object, text: str) -> None:
    assert first_usable({"user_id": value}, PRINCIPAL_KEYS) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (uuid.UUID(int=7), "00000000-0000-0000-0000-000000000007"),
        (Decimal("1.50"), "1.50"),
        (Robot.NIGHTLY, "nightly"),
        (Team.SALES, "sales"),
        (Number.ONE, "1"),
    ],
)
def test_a_value_is_usable_when_it_is_stored_as_one_that_is(value: object, text: str) -> None:
    found = first_usable({"user_id": value}, PRINCIPAL_KEYS)
    assert found == text
    assert type(found) is str


@pytest.mark.parametrize(
    "value", [None, "", [], ["ada"], {}, {"id": "ada"}, (), object(), Team.NOBODY, b""]
)
def test_an_unusable_value_falls_through_to_the_next_name(value: object) -> None:
    assert first_usable({"principal_id": value, "user_id": 42}, PRINCIPAL_KEYS) == "42"
    assert first_usable({"principal_id": value}, PRINCIPAL_KEYS) is None


def test_without_any_of_the_names_there_is_none() -> None:
    assert first_usable({}, PRINCIPAL_KEYS) is None
    assert first_usable({"userid": "ada", "request_id": "r"}, PRINCIPAL_KEYS) is None


def test_the_principal_and_the_correlation_id_are_read_from_one_call() -> None:
    arguments = {"user_id": 42, "request_id": "req-7", "order": {"user_id": "not this one"}}
    assert first_usable(arguments, PRINCIPAL_KEYS) == "42"
    assert first_usable(arguments, CORRELATION_KEYS) == "req-7"


def test_characters_that_some_stores_cannot_keep_are_left_out() -> None:
    assert first_usable({"principal_id": "\0", "user_id": "a\0b"}, PRINCIPAL_KEYS) == "ab"
