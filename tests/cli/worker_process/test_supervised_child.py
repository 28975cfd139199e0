"""When a dead worker is started again, and how its death is told."""

from __future__ import annotations

import json

import pytest

from windlass._cli.worker_process.supervised_child import GIVE_UP_AFTER, Restarts, exit_in_words
from windlass._cli.worker_process.supervisor_socket import parse_reports


def test_each_death_waits_twice_as_long_up_to_half_a_minute() -> None:
    restarts = Restarts()
    pauses = [restarts.died(ready_for=1.0) for _ in range(9)]
    assert pauses == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    assert not restarts.hopeless


def test_a_healthy_minute_begins_the_count_again() -> None:
    restarts = Restarts()
    for _ in range(5):
        restarts.died(ready_for=1.0)
    assert restarts.died(ready_for=60.0) == 0.5
    assert restarts.died(ready_for=59.0) == 1.0


def test_five_deaths_in_a_row_before_it_was_ready_are_enough() -> None:
    restarts = Restarts()
    for _ in range(GIVE_UP_AFTER - 1):
        restarts.died(ready_for=None)
        assert not restarts.hopeless
    restarts.died(ready_for=None)
    assert restarts.hopeless


def test_once_it_was_ready_the_row_is_broken() -> None:
    restarts = Restarts()
    for _ in range(GIVE_UP_AFTER - 1):
        restarts.died(ready_for=None)
    restarts.ready()
    restarts.died(ready_for=0.1)
    restarts.died(ready_for=None)
    assert not restarts.hopeless


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "stopped"),
        (1, "could not start"),
        (70, "crashed"),
        (73, "ended before it could store every outcome"),
        (75, "stopped to be replaced"),
        (3, "ended with exit code 3"),
        (-9, "was killed by SIGKILL (out of memory, or kill -9)"),
        (-11, "was killed by SIGSEGV (a crash in native code)"),
        (-15, "was killed by SIGTERM"),
        (-64, "was killed by SIGRTMAX"),
        (-63, "was killed by signal 63"),
    ],
)
def test_a_death_is_described_in_words(code: int, words: str) -> None:
    assert exit_in_words(code) == words


def test_reports_come_in_pieces_and_nonsense_is_dropped() -> None:
    whole = json.dumps({"ready": "w1"}).encode()
    reports, rest = parse_reports(b"not json\n[1]\n" + whole + b"\n" + whole[:5])
    assert reports == [{"ready": "w1"}]
    assert rest == whole[:5]
    reports, rest = parse_reports(rest + whole[5:] + b"\n")
    assert (reports, rest) == ([{"ready": "w1"}], b"")
