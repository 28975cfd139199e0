"""``windlass errors`` and ``windlass audit``."""

from __future__ import annotations

import re

import click
import pytest

from tests.architecture.source import ROOT
from tests.cli.fixtures import Desk
from windlass import GiveUp
from windlass._cli.commands.audit import audit
from windlass._cli.commands.doctor import doctor
from windlass._cli.commands.errors import errors
from windlass._cli.top.command import top


def broken(desk: Desk) -> None:
    """Two faults: one of two tasks' that raise at one place, one alone."""

    def fetch_order(order: int) -> None:
        message = f"no such order: {order}"
        raise LookupError(message)

    @desk.app.task(name="charge", queue="bank", max_attempts=1)
    async def charge(order: int) -> None:
        fetch_order(order)

    @desk.app.task(name="refund", queue="bank", max_attempts=1)
    async def refund(order: int) -> None:
        fetch_order(order)

    @desk.app.task(name="send", max_attempts=1)
    async def send() -> None:
        message = "smtp \x1b[2J is down"
        raise GiveUp(message)

    send.enqueue_sync()
    desk.work()
    for order in (1, 2):
        charge.enqueue_sync(order)
    refund.enqueue_sync(3)
    desk.work()


def test_failed_jobs_are_grouped_shown_and_run_again(everywhere: Desk) -> None:
    desk = everywhere
    assert desk("errors", "list").out == "No job has failed.\n"
    broken(desk)
    told = desk("errors", "list", "--json").json
    assert told["complete"] is True
    first, second = told["groups"]
    assert set(first) == {
        *("group", "kind", "frame", "text", "count", "first", "last", "job", "tasks", "queues")
    }
    assert (first["kind"], first["count"], first["tasks"]) == (
        "LookupError",
        3,
        ["charge", "refund"],
    )
    assert first["frame"].endswith("test_errors.py fetch_order")
    assert second["count"] == 1
    assert len(desk("errors", "list", "--task", "send", "--json").json["groups"]) == 1
    assert (
        desk("errors", "list", "--since", "2100-01-01T00:00Z").out == "No job has failed since.\n"
    )
    rows = desk("errors", "list").rows
    assert rows[0][:2] == [first["group"], "3"]
    assert rows[1][-1] == "GiveUp: smtp \\x1b[2J is down"

    shown = desk("errors", "show", first["group"])
    assert "fetch_order" in shown.out
    assert "raise LookupError(message)" in shown.out
    assert len(desk("errors", "show", first["group"], "--json").json["latest"]) == 3
    dry = desk("errors", "requeue", first["group"], "--dry-run")
    assert dry.out == "Would requeue 3 jobs. Nothing was changed.\n"
    assert desk("errors", "requeue", first["group"], "--yes").out == "3 of 3 done.\n"
    assert [one["kind"] for one in desk("errors", "list", "--json").json["groups"]] == [
        second["kind"]
    ]


def test_an_unknown_group_is_refused_with_advice(desk: Desk) -> None:
    for command in ("show", "requeue"):
        said = desk("errors", command, "00000000")
        assert said.code == 1
        assert "`windlass errors list` shows all groups" in said.err


def test_actions_are_listed_with_their_operators(everywhere: Desk) -> None:
    desk = everywhere
    assert desk("audit").out == "The audit log is empty.\n"
    desk("queues", "pause", "mail")
    job = desk.fetch.enqueue_sync("a").id
    desk.run(desk.app.admin.acting("alice").jobs.cancel(job))
    newest, oldest = desk("audit", "--json").json
    assert set(newest) == {"number", "at", "who", "what", "subject", "count", "detail"}
    assert (newest["who"], newest["what"], newest["subject"]) == (
        *("alice", "jobs.cancel", f"job {job}"),
    )
    assert oldest["who"].startswith("cli:")
    assert oldest["what"] == "queues.pause"
    (row,) = desk("audit", "--limit", "1").rows[:1]
    assert row[1:4] == ["alice", "jobs.cancel", f"job {job}"]
    assert f"--before {newest['number']}" in desk("audit", "--limit", "1").out
    rest = desk("audit", "--before", str(newest["number"]), "--json").json
    assert [record["number"] for record in rest] == [oldest["number"]]
    assert len(desk("audit", "--subject", "queue mail", "--json").json) == 1
    assert desk("audit", "--before", "1").out == "There are no older entries.\n"


@pytest.mark.parametrize(
    ("command", "page"),
    [(errors, "incidents"), (audit, "incidents"), (top, "incidents"), (doctor, "doctor")],
)
def test_the_page_tells_every_option(command: click.Command, page: str) -> None:
    text = (ROOT / "docs" / "operating" / f"{page}.md").read_text(encoding="utf-8")
    commands = command.commands if isinstance(command, click.Group) else {"": command}
    for name, one in commands.items():
        assert re.search(rf"\b{command.name} {name}|`{name}\b", text), name
        options = [name for option in one.params for name in option.opts]
        assert [name for name in options if name.startswith("--") and name not in text] == []
