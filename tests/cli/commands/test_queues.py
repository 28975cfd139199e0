"""``windlass queues``."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import click
import pytest

from tests.architecture.source import ROOT
from tests.cli.fixtures import Desk
from tests.cli.processes import windlass
from windlass._cli.commands.breakers import breakers
from windlass._cli.commands.limits import limits
from windlass._cli.commands.queues import queues
from windlass._core.limits.backoff import Backoff
from windlass._core.limits.queue_settings import QueueSettings

FIELDS = {
    "queue",
    "ready",
    "scheduled",
    "retrying",
    "running",
    "oldest_due",
    "cap",
    "succeeded",
    "failed",
    "cancelled",
    "discarded",
    "paused",
    "cooling",
    "cool_until",
    "cool_downs",
    "max_running",
    "backoff",
    "cool_down",
    "keep_succeeded",
    "keep_failed",
}


def test_queue_settings_are_stored_shown_and_removed(everywhere: Desk) -> None:
    desk = everywhere
    desk.fetch.enqueue_sync("a")
    everything = (
        "--max-running=5",
        "--backoff=exponential:5s,factor=2,cap=1h",
        "--cool-down=waits:1s,1m",
        "--keep-succeeded=7d",
        "--keep-failed=0s",
    )
    told = desk("queues", "set", "default", *everything, "--json").json
    assert set(told) == FIELDS
    record = desk.run(desk.app.admin.queues.get("default"))
    assert record.settings == QueueSettings(
        max_running=5,
        backoff=Backoff.exponential(5, factor=2, cap=3600),
        cool_down=Backoff.waits([1, 60]),
        keep_succeeded=timedelta(days=7),
        keep_failed=timedelta(0),
    )
    # What is told can be set again, as it is.
    options = {name.replace("_", "-"): told[name] for name in QueueSettings.__struct_fields__}
    again = [f"--{name}={value}" for name, value in options.items()]
    assert desk("queues", "set", "other", *again, "--json").code == 0
    assert desk.run(desk.app.admin.queues.get("other")).settings == record.settings

    assert desk("queues", "set", "default", "--max-running=none", "--backoff=none").code == 0
    left = desk.run(desk.app.admin.queues.get("default")).settings
    assert (left.max_running, left.backoff) == (None, None)
    assert left.cool_down == Backoff.waits([1, 60])


def test_a_queue_is_paused_and_resumed(everywhere: Desk) -> None:
    desk = everywhere
    desk.fetch.enqueue_sync("a")
    said = desk("queues", "pause", "default")
    assert said.out == "Queue default is paused. 1 ready, 0 scheduled, 0 running.\n"
    assert desk.run(desk.app.admin.queues.get("default")).paused
    ((*figures, lag, state),) = desk("queues", "list").rows
    assert (figures, state) == (["default", "1", "0", "0", "0", "0", "0"], "paused")
    assert re.fullmatch(r"[\d.]+ m?s", lag)
    assert desk("queues", "resume", "default", "--json").json["paused"] is False
    assert not desk.run(desk.app.admin.queues.get("default")).paused


def test_a_queue_is_shown_in_words(desk: Desk) -> None:
    desk.fetch.enqueue_sync("a")
    desk.fetch.options(delay=60).enqueue_sync("b")
    plain = desk("queues", "show", "default").out
    for words in (
        "open",
        "1 ready, 1 scheduled, 0 running.",
        "no limit",
        "set by its tasks",
        "1s, then × 2 each time, at most 5m (the default)",
        "set by the app",
    ):
        assert words in plain
    desk("queues", "set", "default", "--max-running", "1", "--backoff", "30s")
    assert "1 over all workers" in desk("queues", "show", "default").out
    assert "30s each time" in desk("queues", "show", "default").out


def test_the_list_knows_queues_with_jobs_and_queues_with_settings(desk: Desk) -> None:
    assert desk("queues", "list").out.startswith("No queue has jobs or settings in SQLite")
    assert desk("queues", "list", "--json").json == []
    desk.fetch.enqueue_sync("a")
    desk("queues", "set", "archive", "--max-running", "2")
    archive, (*default, _, state) = desk("queues", "list").rows
    assert archive == ["archive", "0", "0", "0", "0 of 2", "0", "0", "–", "open"]
    assert (default, state) == (["default", "1", "0", "0", "0", "0", "0"], "open")
    assert [queue["queue"] for queue in desk("queues", "list", "--json").json] == [
        "archive",
        "default",
    ]


@pytest.mark.parametrize("order", ["show", "resume", "warm"])
def test_an_unknown_queue_is_refused_with_a_suggestion(desk: Desk, order: str) -> None:
    desk.serve.enqueue_sync("acme")
    said = desk("queues", order, "mial")
    assert said.code == 1
    assert "Queue 'mial' has no jobs and no settings. Did you mean 'mail'?" in said.err
    assert "windlass queues list" in said.err


def test_a_queue_may_be_paused_before_its_first_job_and_a_note_says_so(desk: Desk) -> None:
    desk.serve.enqueue_sync("acme")
    said = desk("queues", "pause", "mial")
    assert said.code == 0
    assert "Did you mean 'mail'?" in said.err
    assert desk("queues", "pause", "mail").err == ""


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["show"], "give the queue"),
        (["show", "a", "b", "c"], "one queue at a time"),
        (["show", "shop:app", "mail"], "give an app or --url, not both"),
        (["pause", "two words"], "a queue's name must be"),
        (["set", "mail"], "nothing to set: give --max-running"),
        (["set", "mail", "--max-running", "0"], "to let nothing run, pause the queue"),
        (["set", "mail", "--max-running", "many"], "must be a whole number such as 5"),
        (["set", "mail", "--backoff", "exponental:5s"], "Did you mean 'exponential'?"),
        (["set", "mail", "--keep-failed", "long"], "it must be a duration such as"),
        (["set", "mail", "--keep-failed", "-1d"], "it must be a duration such as"),
    ],
)
def test_a_wrong_command_says_what_would_be_right(desk: Desk, words: list[str], says: str) -> None:
    said = desk("queues", *words)
    assert said.code == 1
    assert says in said.err
    assert said.out == ""


def test_an_app_is_named_before_the_queue_and_its_queues_are_known(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        "from windlass import Windlass\n"
        "app = Windlass('sqlite:///shop.db')\n"
        "@app.task(queue='mail')\n"
        "async def send() -> None: ...\n"
    )
    said = windlass("queues", "pause", "shop:app", "mail", cwd=tmp_path)
    assert (said.returncode, said.stderr) == (0, "")
    listed = windlass("queues", "list", "shop:app", cwd=tmp_path).stdout
    assert "default" in listed
    assert "paused" in listed
    forgot = windlass("queues", "pause", "shop:app", cwd=tmp_path)
    assert forgot.returncode == 1
    assert "give the queue after the app: shop:app QUEUE" in forgot.stderr
    by_url = {"WINDLASS_URL": "sqlite:///shop.db"}
    assert "paused" in windlass("queues", "show", "mail", cwd=tmp_path, env=by_url).stdout


def test_a_memory_store_is_out_of_reach(capsys: pytest.CaptureFixture[str]) -> None:
    desk = Desk("memory://", capsys)
    said = desk("queues", "list")
    assert said.code == 1
    assert "app.admin" in said.err
    desk.close()


def test_a_cool_down_is_shown_with_its_end_and_can_be_ended(desk: Desk) -> None:
    desk.refuse.enqueue_sync()
    desk.work()
    told = desk("queues", "show", "api", "--json").json
    assert (told["cooling"], told["cool_downs"]) == (True, 1)
    ((*_, state),) = desk("queues", "list").rows
    assert state.startswith("cooling down for ")
    assert "1 in a row so far" in desk("queues", "show", "api").out
    warmed = desk("queues", "warm", "api", "--json").json
    assert (warmed["cooling"], warmed["cool_until"], warmed["cool_downs"]) == (False, None, 0)


@pytest.mark.parametrize(
    ("page", "group"), [("queues", queues), ("limits", limits), ("throttling", breakers)]
)
def test_a_page_tells_every_command_and_every_option(page: str, group: click.Group) -> None:
    text = (ROOT / "docs" / "guides" / f"{page}.md").read_text(encoding="utf-8")
    for name, command in group.commands.items():
        assert re.search(rf"`{name}\b|\b{group.name} {name}\b", text), name
        options = [name for option in command.params for name in option.opts]
        assert [name for name in options if name.startswith("--") and name not in text] == []


def test_the_page_tells_every_field() -> None:
    text = (ROOT / "docs" / "guides" / "queues.md").read_text(encoding="utf-8")
    assert [field for field in FIELDS if f"`{field}`" not in text] == []
