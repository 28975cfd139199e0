"""Orders for everything that matches, and the filters they share with ``jobs list``."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.fixtures import Desk
from windlass import GiveUp
from windlass._core.job.ids import short_id
from windlass._core.job.state import State


def broken(desk: Desk, *orders: int) -> list[str]:
    """Failed jobs, in two queues."""

    @desk.app.task(name="shop.charge", queue="bank", max_attempts=1, tags=["money"])
    async def charge(order: int) -> None:
        message = f"no such order: {order}"
        raise GiveUp(message) if order % 2 else LookupError(message)

    ids = [str(charge.options(tenant=f"t{order}").enqueue_sync(order).id) for order in orders]
    desk.work()
    return ids


def ids_of(told: Any) -> list[str]:
    return [job["id"] for job in told]


# --- filters --------------------------------------------------------------------------------------


def test_jobs_are_found_by_anything(everywhere: Desk) -> None:
    desk = everywhere
    first, second, third = broken(desk, 1, 2, 3)
    waiting = desk.serve.options(delay=3600).enqueue_sync("acme").id

    def found(*filters: str) -> list[str]:
        return ids_of(desk("jobs", "list", *filters, "--json").json)

    assert found("--error", "LookupError") == [second]
    assert found("--tenant", "t3") == [third]
    assert found("--tag", "money", "--limit", "2") == [third, second]
    assert found("--state", "scheduled") == [waiting]
    assert found("--state", "waiting", "--state", "ready") == [waiting]
    assert found("--state", "failed", "--search", "ORDER: 1") == [first]
    assert found("--search", "acme") == [waiting]
    # They come by their end, and the three ran at the same time.
    assert sorted(found("--finished-from", "1h")) == sorted([third, second, first])
    assert found("--finished-until", "1h") == []
    assert found("--created-from", "2100-01-01T00:00Z") == []
    assert found("--all") == [waiting, third, second, first]
    assert found("--frame", "nowhere") == []
    assert found("--before", str(10**9), "--principal", "nobody") == []


def test_a_wrong_instant_says_how_they_are_written(desk: Desk) -> None:
    for text in ("yesterday", "2030-01-01T00:00"):
        said = desk("jobs", "list", "--created-from", text)
        assert said.code == 1
        assert "--created-from takes an instant with its time zone" in said.err


# --- everything that matches ----------------------------------------------------------------------


def test_a_bulk_action_is_counted_applied_and_recorded(everywhere: Desk) -> None:
    desk = everywhere
    ids = broken(desk, 1, 2, 3)
    filters = ("--all", "--state", "failed", "--queue", "bank")
    dry = desk("jobs", "requeue", *filters, "--dry-run")
    assert dry.out == "Would requeue 3 jobs. Nothing was changed.\n"
    assert desk("jobs", "requeue", *filters, "--dry-run", "--json").json["matched"] == 3
    some = desk("jobs", "requeue", *filters, "--limit", "2", "--yes")
    assert (some.code, some.out) == (0, "2 of 2 done.\n")
    told = desk("jobs", "requeue", *filters, "--yes", "--json").json
    assert (told["matched"], told["done"], told["skipped"], told["dry_run"]) == (1, 1, 0, False)
    assert set(told) == {
        *("matched", "exact", "done", "requested", "conflicts", "skipped", "dry_run")
    }
    assert (
        desk("jobs", "requeue", *filters, "--yes").out == "No job matches. Nothing was changed.\n"
    )
    edited = desk(
        *("jobs", "edit", "--all", "--queue", "bank", "--state", "ready", "--yes"),
        *("--due", "1h", "--priority", "-5", "--to-queue", "slow"),
    )
    assert edited.out == "3 of 3 done.\n"
    moved = desk("jobs", "list", "--queue", "slow", "--json").json
    assert {(job["priority"], job["state"]) for job in moved} == {(-5, "scheduled")}
    assert desk("jobs", "run-now", "--all", "--task", "shop.charge", "--yes").code == 0
    assert desk("jobs", "cancel", "--all", "--tag", "money", "--yes").out == "3 of 3 done.\n"
    assert desk("jobs", "delete", "--all", "--queue", "slow", "--yes").out == "3 of 3 done.\n"
    assert desk("jobs", "list", "--json").json == []
    records = desk("audit", "--json").json
    assert [record["what"] for record in records] == [
        *("jobs.delete", "jobs.cancel", "jobs.run-now", "jobs.edit", "jobs.requeue", "jobs.requeue")
    ]
    assert {record["who"].partition(":")[0] for record in records} == {"cli"}
    assert [record["count"] for record in records] == [3, 3, 3, 3, 1, 2]
    assert "queue bank" in records[-1]["subject"]
    assert len(ids) == 3


def test_a_bar_shows_progress_on_a_terminal(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    broken(desk, 1, 2, 3)
    monkeypatch.setenv("FORCE_COLOR", "1")  # as if standard error were a terminal
    said = desk("jobs", "requeue", "--all", "--queue", "bank", "--yes")
    assert said.out == "3 of 3 done.\n"
    assert "Requeue" in said.err
    assert "3/3" in said.err


@pytest.mark.parametrize(("answer", "left"), [("n", State.FAILED), ("y", State.DISCARDED)])
def test_many_are_asked_about_with_their_number(
    desk: Desk, answer: str, left: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    (job,) = broken(desk, 1)
    asked: list[str] = []

    def prompt(text: str) -> str:
        asked.append(text)
        return answer

    monkeypatch.setattr("click.termui.visible_prompt_func", prompt)
    said = desk("jobs", "discard", "--all", "--queue", "bank", "--reason", "gone")
    assert said.code == (0 if answer == "y" else 130)
    assert "Discard 1 job (queue bank)?" in said.err + "".join(asked)
    assert desk.run(desk.app.admin.jobs.get(job)).state is left


def test_jobs_whose_key_is_held_are_reported(desk: Desk) -> None:
    @desk.app.task(name="one", queue="one", unique=True, max_attempts=1)
    async def one(n: int) -> None:
        message = "no"
        raise GiveUp(message)

    one.enqueue_sync(1)
    desk.work()
    one.enqueue_sync(1)
    said = desk("jobs", "requeue", "--all", "--state", "failed", "--yes")
    assert said.code == 1
    assert said.out == "0 of 1 done.\n"
    assert "1 not changed: other jobs hold their unique keys" in said.err


# --- single ones ----------------------------------------------------------------------------------


def test_a_job_is_edited_deleted_and_made_anew(everywhere: Desk) -> None:
    desk = everywhere
    (failed,) = broken(desk, 1)
    said = desk("jobs", "requeue", failed, "--as-new")
    assert said.code == 0
    assert f"Job {failed} runs again as job " in said.out
    new = said.out.split()[-1].rstrip(".")
    assert desk.run(desk.app.admin.jobs.get(failed)).state is State.FAILED
    moved = desk("jobs", "edit", new, "--due", "2040-01-01T00:00Z", "--to-queue", "later")
    assert moved.out == f"Job {new} is due at 2040-01-01 00:00:00 UTC on later, priority 0.\n"
    assert desk("jobs", "delete", new, failed, "--yes").out.count("is deleted") == 2
    assert desk("jobs", "list", "--json").json == []
    gone = desk("jobs", "delete", new, "--yes")
    assert gone.code == 1
    assert "is stored. Check the id" in gone.err


def test_one_job_is_named_by_a_shortened_id_and_several_by_whole_ones(everywhere: Desk) -> None:
    desk = everywhere
    first, second = broken(desk, 1, 2)
    for name in (short_id(first), short_id(first).replace("…", ""), first[-8:]):
        assert desk("jobs", "show", name, "--json").json["id"] == first
        assert desk("jobs", "explain", name, "--json").json["id"] == first
        assert desk("jobs", "logs", name, "--json").json == []
    said = desk("jobs", "requeue", short_id(first))
    assert said.out == f"Job {first} is ready to run again.\n"
    assert ids_of(desk("jobs", "list", "--parent", short_id(first), "--json").json) == []
    audit = desk("audit", "--subject", f"job {short_id(first)}", "--json").json
    assert [record["subject"] for record in audit] == [f"job {first}"]
    several = desk("jobs", "requeue", short_id(first), second)
    assert several.code == 1
    assert "for several jobs give whole ids, or --all with a filter" in several.err
    unknown = desk("jobs", "show", "f" * 9)
    assert unknown.code == 1
    assert "None of the newest 100,000 jobs has an id that ends with fffffffff" in unknown.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["requeue", "--all"], "requeue which jobs? --all needs --state"),
        (["cancel", "--state", "ready", "a"], "need --all"),
        (["cancel", "a", "--dry-run"], "need --all"),
        (["cancel", "a", "--all", "--queue", "q"], "give job ids, or --all"),
        (["requeue", "--all", "--queue", "q", "--as-new"], "--as-new needs job ids"),
        (["edit", "a"], "nothing to change: give --due, --priority or --to-queue"),
        (["edit", "a" * 32, "--due", "soon"], "--due takes an instant"),
    ],
)
def test_an_invalid_command_changes_nothing(desk: Desk, words: list[str], says: str) -> None:
    said = desk("jobs", *words)
    assert said.code == 1
    assert says in said.err
    assert said.out == ""
