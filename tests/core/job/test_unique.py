from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.fixtures import few
from windlass._core.job.unique import MAX_KEY, OnConflict, UniqueKey, Window, compose_key, refuses
from windlass.errors import InvalidArgument

DAY = timedelta(days=1)


def test_a_key_is_held_until_the_job_has_ended_unless_said_otherwise() -> None:
    unique = UniqueKey("shop.send/welcome:42")
    assert (unique.window, unique.period) == (Window.UNTIL_FINISHED, None)


def test_a_window_of_time_needs_its_period() -> None:
    assert UniqueKey("k", Window.FOR_A_TIME, DAY).period == DAY
    with pytest.raises(InvalidArgument, match="period"):
        UniqueKey("k", Window.FOR_A_TIME)


@pytest.mark.parametrize("window", [Window.UNTIL_STARTED, Window.UNTIL_FINISHED])
def test_no_other_window_has_a_period(window: Window) -> None:
    with pytest.raises(InvalidArgument, match="period"):
        UniqueKey("k", window, DAY)


def test_the_same_words_are_different_keys_for_different_tasks() -> None:
    assert compose_key("shop.send", "42") != compose_key("shop.bill", "42")


words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)


@few
@given(words, words)
def test_different_words_are_different_keys_for_one_task(one: str, other: str) -> None:
    assert (compose_key("shop.send", one) == compose_key("shop.send", other)) == (one == other)


def test_an_empty_key_is_refused_and_the_message_says_what_to_do() -> None:
    with pytest.raises(InvalidArgument, match="leave key= out"):
        compose_key("shop.send", "")


def test_a_key_that_postgresql_cannot_keep_is_refused_everywhere() -> None:
    with pytest.raises(InvalidArgument, match="NUL"):
        compose_key("shop.send", "a\0b")


def test_a_key_may_have_256_characters_and_no_more() -> None:
    assert MAX_KEY == 256
    assert compose_key("t", "x" * 256).endswith("x" * 256)
    with pytest.raises(InvalidArgument, match=r"got 257.*digest"):
        compose_key("t", "x" * 257)


def test_a_unique_survives_being_stored() -> None:
    unique = UniqueKey("k", Window.FOR_A_TIME, DAY)
    assert msgspec.json.decode(msgspec.json.encode(unique), type=UniqueKey) == unique


# --- meeting a holder -------------------------------------------------------------------------


def test_a_job_that_meets_a_holder_is_answered_with_it_unless_said_otherwise() -> None:
    assert UniqueKey("k").on_conflict is OnConflict.REUSE


@pytest.mark.parametrize("what", OnConflict)
def test_a_holder_of_the_same_task_is_an_error_only_with_raise(what: OnConflict) -> None:
    assert refuses(what, "shop.send", "shop.send") == (what is OnConflict.RAISE)


@pytest.mark.parametrize("what", OnConflict)
def test_a_job_of_another_task_can_be_the_answer_and_cannot_be_replaced(what: OnConflict) -> None:
    assert refuses(what, "shop.bill", "shop.send") == (what is not OnConflict.REUSE)


def test_on_conflict_survives_being_stored_by_its_name() -> None:
    for what in OnConflict:
        assert OnConflict(what.value) is what
        unique = UniqueKey("k", on_conflict=what)
        assert msgspec.json.decode(msgspec.json.encode(unique), type=UniqueKey) == unique
