"""Durations, backoffs and rates as a command line takes them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass._core.limits.backoff import Backoff
from windlass._core.limits.limit import Rate
from windlass._settings.durations import (
    describe_backoff,
    format_backoff,
    format_duration,
    format_rate,
    parse_backoff,
    parse_rate,
)
from windlass._settings.settings import parse_duration
from windlass.errors import ConfigError

spans = st.timedeltas(timedelta(microseconds=1), timedelta(days=30))
jitters = st.sampled_from(["none", "spread", "full"])
backoffs = st.one_of(
    st.just(Backoff.none()),
    st.builds(Backoff.fixed, spans, jitter=jitters),
    st.builds(Backoff.linear, spans, step=spans, cap=spans, jitter=jitters),
    st.builds(Backoff.exponential, spans, factor=st.floats(1, 1000), cap=spans, jitter=jitters),
    st.builds(Backoff.waits, st.lists(spans, min_size=1, max_size=5), jitter=jitters),
)


@given(spans)
def test_a_duration_is_read_as_it_was_written(span: timedelta) -> None:
    assert parse_duration(format_duration(span), "it") == span


@given(backoffs)
def test_a_backoff_is_read_as_it_was_written(backoff: Backoff) -> None:
    assert parse_backoff(format_backoff(backoff), "it") == backoff


@given(st.builds(Rate, st.floats(0.25, 1e6), spans, st.integers(1, 300)))
def test_a_rate_is_read_as_it_was_written(rate: Rate) -> None:
    assert parse_rate(format_rate(rate), "it") == rate


@pytest.mark.parametrize(
    ("text", "backoff", "words"),
    [
        ("0s", Backoff.none(), "at once"),
        ("5s", Backoff.fixed(5), "5s each time"),
        ("90", Backoff.fixed(90), "90s each time"),
        (
            "fixed:1m,jitter=full",
            Backoff.fixed(60, jitter="full"),
            "1m each time, at random from 0",
        ),
        (
            "linear:10s, step=5s, cap=1m",
            Backoff.linear(10, step=5, cap=60),
            "10s, then 5s more each time, at most 1m, ± 25 % at random",
        ),
        (
            "exponential:5s,factor=2.5,cap=1h,jitter=none",
            Backoff.exponential(5, factor=2.5, jitter="none"),
            "5s, then × 2.5 each time, at most 1h",
        ),
        ("exponential:5s", Backoff.exponential(), "5s, then × 5 each time, at most 1h, ± 25"),
        ("waits:1s,1m,1h", Backoff.waits([1, 60, 3600]), "1s, 1m, then 1h"),
        ("waits:7d", Backoff.waits([7 * 86400]), "7d each time"),
    ],
)
def test_a_backoff_is_parsed_and_shown(text: str, backoff: Backoff, words: str) -> None:
    assert parse_backoff(text, "--backoff") == backoff
    assert describe_backoff(backoff).startswith(words)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "takes one duration first"),
        ("soon", "must be a duration such as"),
        ("-5s", "must be a duration such as"),
        ("exponental:5s", "'exponental' is no curve. Did you mean 'exponential'?"),
        ("exponential:", "exponential takes one duration first"),
        ("exponential:5s,10s", "exponential takes one duration first, got '5s,10s'"),
        ("exponential:5s,factor=much", "factor is a number, got 'much'"),
        ("exponential:5s,factor=0.5", "factor must be at least 1"),
        ("exponential:5s,step=1s", "exponential has no 'step', it takes factor, cap, jitter"),
        ("exponential:5s,cap=400d", "a backoff waits between 0 and 365 days"),
        ("linear:5s,cap=1m,cap=2m", "cap is given twice"),
        ("linear:5s,jitter=some", "jitter is none, spread, full, got 'some'"),
        ("waits:1s,,2s", "a wait must be a duration"),
        ("exponential:5s,factor=nan", "factor must be at least 1"),
    ],
)
def test_a_backoff_that_makes_no_sense_is_refused_with_the_way_to_write_it(
    text: str, says: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_backoff(text, "--backoff")
    assert says in str(refused.value)
    assert "Write 5s, linear:5s" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("10/1s", Rate(10, 1)),
        ("1000/1s", Rate(1000, 1, 100)),
        ("1000/1s:1", Rate(1000, 1, 1)),
        ("10/s", Rate(10, 1)),
        ("2.5/1m:5", Rate(2.5, 60, 5)),
        ("100/1h", Rate(100, 3600)),
        ("1e-05/1s", Rate(1e-05, 1)),
    ],
)
def test_a_rate_is_read(text: str, rate: Rate) -> None:
    assert parse_rate(text, "--rate") == rate


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ten", "'ten' is no rate"),
        ("10", "'10' is no rate"),
        ("-1/1s", "'-1/1s' is no rate"),
        ("0/1s", "a rate needs n above 0"),
        ("1.2.3/1s", "n is a number, got '1.2.3'"),
        ("10/0s", "a rate needs a period above 0"),
        ("10/fortnight", "its period must be a duration"),
        ("10/1s:0", "a rate needs a whole burst of at least 1"),
        ("10/1s:1.5", "'10/1s:1.5' is no rate"),
    ],
)
def test_a_rate_that_makes_no_sense_is_refused_with_the_way_to_write_it(
    text: str, says: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_rate(text, "--rate")
    assert says in str(refused.value)
    assert "Write 10/1s" in str(refused.value)
