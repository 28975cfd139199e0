"""Counts in words."""

from __future__ import annotations

from datetime import UTC, datetime

from windlass._cli.output.run_summary import RunCounter, RunSummary, counts_in_words
from windlass._core.job.event import Event, JobEnqueued, JobMoved
from windlass._core.job.job import JobId
from windlass._core.job.state import Verb


class Ticking:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_only_outcomes_that_occurred_are_printed() -> None:
    assert (
        counts_in_words({Verb.SUCCEED: 1204, Verb.RETRY: 0, Verb.FAIL: 1})
        == "1,204 succeeded, 1 failed"
    )
    assert counts_in_words({}) == ""


def test_the_live_line_tells_running_done_and_rate() -> None:
    clock = Ticking()
    tally = RunSummary(clock)
    tally.take({}, running=1, slots=10)
    assert tally.live() == "1/10 running · nothing done yet · 0/s · up 0 ms"
    clock.now += 2
    tally.take({Verb.SUCCEED: 50, Verb.RETRY: 2}, running=3, slots=10)
    assert tally.live() == "3/10 running · 50 succeeded · 2 retried · 26/s · up 2 s"


def test_the_rate_forgets_what_is_longer_ago_than_ten_seconds() -> None:
    clock = Ticking()
    tally = RunSummary(clock)
    tally.take({Verb.SUCCEED: 1000}, running=0, slots=1)
    for _ in range(50):
        clock.now += 1
        tally.take({Verb.SUCCEED: 1000}, running=0, slots=1)
    assert tally.rate == 0


def test_a_line_is_due_every_half_minute_in_which_something_happened() -> None:
    clock = Ticking()
    tally = RunSummary(clock)
    clock.now += 31
    tally.take({}, running=0, slots=1)
    assert tally.news() is None
    tally.take({Verb.SUCCEED: 62}, running=0, slots=1)
    assert tally.news() == "so far 62 succeeded; 2.0/s; 0 running"
    clock.now += 29
    tally.take({Verb.SUCCEED: 63}, running=0, slots=1)
    assert tally.news() is None
    clock.now += 1
    assert tally.news() == "so far 63 succeeded; 0.0/s; 0 running"
    clock.now += 100
    assert tally.news() is None


def test_the_last_line_tells_everything() -> None:
    clock = Ticking()
    tally = RunSummary(clock)
    assert tally.last() == "no job was run in 0 ms"
    clock.now += 10
    tally.take({Verb.SUCCEED: 40, "refused": 1}, running=0, slots=1)
    assert tally.last() == (
        "40 succeeded, 1 not stored because their claim was lost in 10 s (4.1/s)"
    )


def test_changes_by_workers_are_counted_and_operators_actions_are_not() -> None:
    def moved(verb: Verb, worker: str = "w1") -> JobMoved:
        return JobMoved(
            verb=verb,
            job=JobId("1"),
            task="t",
            queue="q",
            claim_number=1,
            attempt=1,
            max_attempts=5,
            worker=worker,
            at=datetime(2025, 3, 4, tzinfo=UTC),
        )

    deeds = RunCounter()
    events: list[Event] = [
        moved(Verb.CLAIM),
        moved(Verb.RELEASE),
        moved(Verb.FAIL, "one that died"),
        moved(Verb.CANCEL, ""),
        JobEnqueued(job=JobId("1"), task="t", queue="q"),
    ]
    for event in events:
        deeds(event)
    assert deeds.counts == {Verb.RELEASE: 1, Verb.FAIL: 1}
