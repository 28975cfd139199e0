"""``windlass tasks``."""

from __future__ import annotations

from tests.cli.fixtures import Desk


def test_tasks_are_listed_with_their_jobs_outcomes_and_last_error(everywhere: Desk) -> None:
    desk = everywhere
    desk.run(desk.broken.options(max_attempts=1).enqueue())
    desk.work()
    for _ in range(2):
        desk.run(desk.fetch.options(key="k").enqueue("a"))
    rows = {row[0]: row[1:] for row in desk("tasks").rows}
    assert rows["fetch"] == ["–", "0", "1", "0", "0", "0", "0", "1"]
    assert rows["break"] == ["–", "0", "0", "0", "0", "0", "1", "0", "ConnectionError: down"]
    told = {one["task"]: one for one in desk("tasks", "--json").json}
    assert (told["fetch"]["waiting"], told["break"]["failed"]) == (1, 1)
    assert (told["fetch"]["coalesced"], told["break"]["coalesced"]) == (1, 0)


def test_a_span_that_is_none_is_refused(desk: Desk) -> None:
    said = desk("tasks", "--within", "soon")
    assert said.code == 1
    assert "--within must be a duration" in said.err
