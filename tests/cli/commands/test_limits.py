"""``windlass limits`` and ``windlass breakers``."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.cli.fixtures import Desk
from windlass._core.limits.limit import Rate


def test_numbers_are_changed_for_everybody(everywhere: Desk) -> None:
    desk = everywhere
    desk.fetch.enqueue_sync("a")
    told = desk("limits", "set", "api", "--rate", "2.5/1m:3", "--concurrency", "4", "--json").json
    assert (told["limit"], told["rate"], told["concurrency"]) == ("api", "2.5/1m:3", 4)
    (report,) = desk.run(desk.app.admin.limits.list())
    assert (report.spec.rate, report.spec.concurrency) == (Rate(2.5, 60, 3), 4)
    assert desk("limits", "set", "api", "--rate", "none").code == 0
    (report,) = desk.run(desk.app.admin.limits.list())
    assert (report.spec.rate, report.spec.concurrency) == (None, 4)


def test_a_bucket_is_emptied_and_filled(everywhere: Desk) -> None:
    desk = everywhere
    desk.fetch.enqueue_sync("a")
    said = desk("limits", "drain", "api")
    assert said.out == "The token bucket of limit api is empty: no job starts before it refills.\n"
    (budget,) = desk("limits", "show", "api", "--json").json["budgets"]
    assert set(budget) == {"key", "running", "tokens", "spent_until", "lanes_waiting"}
    assert budget["tokens"] == 0
    assert desk("limits", "reset", "api").out == "The token bucket of limit api is full.\n"
    assert all(b["tokens"] == 5 for b in desk("limits", "show", "api", "--json").json["budgets"])


def test_limits_are_listed_without_what_is_kept_beside_them(desk: Desk) -> None:
    assert desk("limits", "list").out.startswith("SQLite")
    desk.fetch.enqueue_sync("a")
    desk.serve.enqueue_sync("acme")
    desk.pay.enqueue_sync(1)
    rows = desk("limits", "list").rows
    assert [row[:3] for row in rows] == [
        ["api", "10 per 1m, burst 5", "–"],
        ["printer", "–", "1"],
        ["tenant", "–", "2"],
    ]


def test_an_unknown_limit_is_refused_with_a_suggestion(desk: Desk) -> None:
    desk.serve.enqueue_sync("acme")
    for order in (["show"], ["set", "--concurrency", "1"], ["drain"], ["reset"]):
        said = desk("limits", *order, "printr")
        assert said.code == 1
        assert "No limit named 'printr' is stored. Did you mean 'printer'?" in said.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["set", "api"], "nothing to set: give --rate or --concurrency"),
        (["set", "api", "--rate", "-1/1s"], "'-1/1s' is no rate. Write 10/1s"),
        (["set", "api", "--concurrency", "0"], "needs concurrency of at least 1"),
        (["set", "api", "--rate", "none"], "neither rate nor concurrency"),
        (["drain", "printer"], "has no rate, so there is no bucket to drain"),
        (["show"], "give the limit"),
    ],
)
def test_a_wrong_command_says_what_would_be_right(desk: Desk, words: list[str], says: str) -> None:
    desk.fetch.enqueue_sync("a")
    desk.serve.enqueue_sync("acme")
    said = desk("limits", *words)
    assert said.code == 1
    assert says in said.err


def test_of_a_limit_with_keys_one_has_to_be_named(desk: Desk) -> None:
    desk.serve.enqueue_sync("acme")
    desk("limits", "set", "tenant", "--rate", "10/1m")
    assert desk("limits", "drain", "tenant", "--key", "acme").code == 0
    budgets = desk("limits", "show", "tenant", "--json").json["budgets"]
    assert [(b["key"], b["tokens"]) for b in budgets] == [("acme", 0)]
    forgot = desk("limits", "drain", "tenant")
    assert forgot.code == 1
    assert "name one, for example --key 'acme'" in forgot.err
    near = desk("limits", "drain", "tenant", "--key", "acmee")
    assert near.code == 0
    assert "Did you mean 'acme'?" in near.err


def test_a_key_cannot_steer_the_terminal(desk: Desk) -> None:
    desk.serve.enqueue_sync("a")
    desk("limits", "set", "tenant", "--rate", "10/1m")
    desk.run(desk.app.admin.limits.drain("tenant", "\x1b[2J[red]x"))
    told = desk("limits", "show", "tenant").out
    assert "\x1b" not in told
    assert "\\x1b[2J[red]x" in told


# --- breakers -------------------------------------------------------------------------------------


def test_a_breaker_is_seen_changed_and_closed(everywhere: Desk) -> None:
    desk = everywhere
    desk.pay.enqueue_sync(1)
    assert desk("breakers", "list").rows == [["pay", "closed", "0 of 10", "–", "0"]]
    said = desk("breakers", "set", "pay", "--failures", "3", "--cool-down", "1m")
    assert said.out == (
        "The breaker of pay opens after 3 failures in a row, for 1m, then × 2 each time, "
        "at most 1h.\n"
    )
    (report,) = desk.run(desk.app.admin.breakers.list())
    assert (report.breaker.failures, report.breaker.cool_down) == (3, timedelta(minutes=1))
    assert desk("breakers", "reset", "pay").out.startswith("The breaker of pay is closed")


def test_an_open_breaker_says_when_it_is_tried_again(desk: Desk) -> None:
    desk.broken.enqueue_sync()
    desk.work()
    rows = {row[0]: row for row in desk("breakers", "list").rows}
    assert rows["break"][1:3] == ["open", "1 of 1"]
    assert rows["break"][3].startswith("in ")
    assert desk("breakers", "reset", "break", "--json").json["state"] == "closed"


def test_a_breaker_in_json_has_these_fields(desk: Desk) -> None:
    assert desk("breakers", "list", "--json").json == []
    assert desk("breakers", "list").out.startswith("SQLite")
    desk.pay.enqueue_sync(1)
    assert desk("breakers", "list", "--json").json == [
        {
            "task": "pay",
            "state": "closed",
            "failures": 0,
            "opened": 0,
            "open_until": None,
            "running": 0,
            "breaker": {"failures": 10, "cool_down": "30s", "growth": 2.0, "longest": "1h"},
        }
    ]


def test_a_task_without_a_breaker_is_refused_with_the_one_that_was_meant(desk: Desk) -> None:
    desk.pay.enqueue_sync(1)
    for order in (["reset"], ["set", "--failures", "3"]):
        said = desk("breakers", *order, "pya")
        assert said.code == 1
        assert "Did you mean 'pay'?" in said.err
    assert "nothing to set" in desk("breakers", "set", "pay").err
    assert "--cool-down must be a duration" in desk("breakers", "set", "pay", "--cool-down=x").err
