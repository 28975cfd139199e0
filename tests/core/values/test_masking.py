"""Secrets of a job that has many: all are hidden, and in a time that people can wait for."""

from __future__ import annotations

import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass._core.values.hidden_values import HiddenValues
from windlass._core.values.redaction import redacted_json, redacted_text, secret_values

_WORDS = st.text("abc", min_size=3, max_size=9)


@given(st.sets(_WORDS, min_size=65, max_size=90), st.text("abcde ", max_size=60))
def test_none_of_many_values_stays_in_a_text(values: set[str], text: str) -> None:
    hidden = HiddenValues(sorted(values, key=len, reverse=True))
    told = hidden.out_of(text, "*")
    assert not [value for value in values if value in told]
    if not [value for value in values if value in text]:
        assert told == text
    assert all(value in hidden for value in values)


def test_text_around_many_values_stays() -> None:
    hidden = HiddenValues(f"pass-{number}" for number in range(900, 100, -1))
    told = redacted_text("user 7 came with pass-700 and went, pass-70 came", hidden)
    assert told == "user 7 came with *** and went, pass-70 came"


@pytest.mark.parametrize("row", [{"password": "pw-{}"}, {"pin": 0}])
def test_a_job_with_thousands_of_secrets_is_shown_in_a_moment(row: dict[str, object]) -> None:
    rows: list[dict[str, object]] = []
    for number in range(6_000):
        secret = {"pin": 10_000 + number} if "pin" in row else {"password": f"pw-{number}"}
        rows.append({**secret, "note": "nothing to hide in here", "of": number})
    payload = msgspec.json.encode({"rows": rows})
    begun = time.thread_time()
    shown = redacted_json(payload, {"pin"}, secret_values(payload, {"pin"}))
    assert time.thread_time() - begun < 1
    assert shown.count(b'"***"') == 6_000
    assert shown.count(b"nothing to hide in here") == 6_000
