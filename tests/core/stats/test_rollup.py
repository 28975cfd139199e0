from __future__ import annotations

import random
from collections import Counter
from datetime import datetime, timedelta
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.fixtures import NOW, few
from windlass._core.job.state import FINISHING, Verb
from windlass._core.stats.rollup import (
    Rollup,
    bucket_of,
    bucket_top,
    merge,
    minute_of,
    percentile,
)
from windlass._core.values.instants import span_us

MINUTE = timedelta(minutes=1)
durations = st.integers(0, 100) | st.integers(0, 10**15)


# --- buckets ----------------------------------------------------------------------------------


def test_buckets_are_exact_below_8_and_then_four_per_doubling() -> None:
    assert [bucket_of(us) for us in range(8)] == list(range(8))
    assert [bucket_of(us) for us in range(8, 16)] == [8, 8, 9, 9, 10, 10, 11, 11]
    assert bucket_of(1_000_000) - bucket_of(500_000) == 4


def test_a_clock_that_stepped_back_counts_as_no_time() -> None:
    assert bucket_of(-5) == 0


def test_buckets_leave_no_gap_and_meet_at_their_tops() -> None:
    for bucket in range(200):
        assert bucket_of(bucket_top(bucket)) == bucket
        assert bucket_of(bucket_top(bucket) + 1) == bucket + 1


@few
@given(us=durations, more=durations)
def test_a_longer_duration_never_falls_into_a_lower_bucket(us: int, more: int) -> None:
    assert bucket_of(us) <= bucket_of(us + more)


@few
@given(us=durations)
def test_the_top_of_a_bucket_is_at_most_a_quarter_above_what_is_in_it(us: int) -> None:
    assert us <= bucket_top(bucket_of(us)) <= us * 1.25


# --- merging ----------------------------------------------------------------------------------


class Finish(NamedTuple):
    at: datetime
    queue: str
    task: str
    verb: Verb
    waited: timedelta
    ran: timedelta

    @property
    def rollup(self) -> Rollup:
        return Rollup.of(
            minute=minute_of(self.at),
            queue=self.queue,
            task=self.task,
            verb=self.verb,
            waited=self.waited,
            ran=self.ran,
        )


spans = st.integers(0, 10**8).map(lambda us: timedelta(microseconds=us))
finishes = st.lists(
    st.builds(
        Finish,
        st.integers(0, 180).map(lambda s: NOW + timedelta(seconds=s)),
        st.sampled_from(["mail", "web"]),
        st.sampled_from(["send", "shrink"]),
        st.sampled_from(list(FINISHING)),
        spans,
        spans,
    ),
    max_size=25,
)


@few
@given(done=finishes, seed=st.integers(0, 99))
def test_merging_equals_a_recount_in_any_order_and_grouping(done: list[Finish], seed: int) -> None:
    rows = [finish.rollup for finish in done]
    random.Random(seed).shuffle(rows)
    half = len(rows) // 2
    merged = merge([*merge(rows[:half]), *merge(rows[half:])])

    groups = sorted({(minute_of(f.at), f.queue, f.task) for f in done})
    assert [(r.minute, r.queue, r.task) for r in merged] == groups
    for rollup, group in zip(merged, groups, strict=True):
        members = [f for f in done if (minute_of(f.at), f.queue, f.task) == group]
        assert rollup.counts == Counter(f.verb.value for f in members)
        assert rollup.wait == Counter(bucket_of(span_us(f.waited)) for f in members)
        assert rollup.run == Counter(bucket_of(span_us(f.ran)) for f in members)


def test_merging_nothing_gives_nothing() -> None:
    assert merge([]) == []


def test_merging_changes_none_of_its_rows() -> None:
    row = Finish(NOW, "mail", "send", Verb.SUCCEED, timedelta(0), MINUTE).rollup
    merged = merge([row, row])
    assert row.counts == {"succeed": 1}
    assert merged[0].counts == {"succeed": 2}


def test_a_minute_is_known_by_its_start() -> None:
    within = NOW + timedelta(seconds=59, microseconds=999_999)
    assert minute_of(within) == minute_of(NOW) == NOW
    assert minute_of(NOW + MINUTE) == NOW + MINUTE


# --- percentiles ------------------------------------------------------------------------------


def nearest_rank(values: list[int], percent: int) -> int:
    ordered = sorted(values)
    return ordered[max(1, -(-percent * len(ordered) // 100)) - 1]


@few
@given(values=st.lists(durations, min_size=1, max_size=40), percent=st.integers(0, 100))
def test_a_percentile_is_the_bucket_of_the_nearest_rank(values: list[int], percent: int) -> None:
    histogram = Counter(bucket_of(us) for us in values)
    wanted = nearest_rank(values, percent)
    found = percentile(histogram, percent / 100)
    assert found == timedelta(microseconds=bucket_top(bucket_of(wanted)))


@pytest.mark.parametrize("total", [1, 3, 7, 20, 25, 28, 55, 100, 101, 700, 1000])
def test_a_rank_is_not_moved_by_the_rounding_of_fractions(total: int) -> None:
    # 0.07 * 100 and 0.55 * 100 are a little more than 7 and 55.
    for percent in range(1, 101):
        rank = -(-percent * total // 100)
        just_covered = {0: rank, 5: total - rank}
        just_missed = {0: rank - 1, 5: total - rank + 1}
        assert percentile(just_covered, percent / 100) == timedelta(0), percent
        assert percentile(just_missed, percent / 100) == timedelta(microseconds=5), percent


def test_an_empty_histogram_has_no_percentile() -> None:
    assert percentile({}, 0.5) is None
    assert percentile({3: 0}, 0.5) is None


def test_the_ends_are_the_fastest_and_the_slowest() -> None:
    histogram = {2: 5, 7: 90, 30: 5}
    assert percentile(histogram, 0.0) == timedelta(microseconds=2)
    assert percentile(histogram, 1.0) == timedelta(microseconds=bucket_top(30))
    assert percentile(histogram, 0.05) == timedelta(microseconds=2)
    assert percentile(histogram, 0.051) == timedelta(microseconds=7)
