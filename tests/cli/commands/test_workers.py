"""``windlass workers``."""

from __future__ import annotations

import io
import sys
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from tests.architecture.source import ROOT
from tests.cli.fixtures import Desk
from windlass._app.parts import parts_of
from windlass._core.job.job import NewJob
from windlass._storage.protocol.jobs import Want
from windlass._storage.protocol.storage import Storage
from windlass._system.seams import new_job_id
from windlass.testing.conformance.steps import a_worker

FIELDS = {
    "id",
    "state",
    "host",
    "pid",
    "version",
    "queues",
    "slots",
    "running",
    "memory",
    "tasks",
    "clock_skew",
    "lease",
    "started_at",
    "beat_at",
    "beat_age",
    "ended_at",
}


async def registered(storage: Storage, worker: str, **said: Any) -> None:
    await storage.workers.register(msgspec.structs.replace(a_worker(worker), **said))


async def a_crew(desk: Desk) -> None:
    """One at work, one that fell silent, one buried and one that has left."""
    storage = await parts_of(desk.app).storage()
    await storage.jobs.insert([NewJob(id=new_job_id(), task="slow")])
    await registered(storage, "gone", host="h\x1b[2J")
    await storage.workers.leave("gone", [])
    await registered(storage, "dead")
    await storage.workers.bury(["dead"])
    await registered(storage, "silent", lease=timedelta(microseconds=1))
    await registered(storage, "live", queues=["default", "mail"], lease=timedelta(hours=1))
    await storage.jobs.claim("live", [Want("default", 1)], total=1)


def test_workers_are_listed_live_and_dead(everywhere: Desk) -> None:
    desk = everywhere
    desk.run(a_crew(desk))
    told = {worker["id"]: worker for worker in desk("workers", "list", "--json").json}
    assert {name: worker["state"] for name, worker in told.items()} == {
        "live": "live",
        "silent": "silent",
        "dead": "dead",
        "gone": "gone",
    }
    assert all(set(worker) == FIELDS for worker in told.values())
    live = told["live"]
    assert (live["queues"], live["slots"], live["running"]) == (["default", "mail"], 10, 1)
    assert (live["host"], live["pid"], live["version"]) == ("host", 1, "0")
    assert live["ended_at"] is None
    assert told["gone"]["ended_at"] is not None
    assert live["beat_age"] >= 0
    rows = {row[0]: row for row in desk("workers", "list").rows}
    assert rows["live"][1:7] == ["live", "host", "1", "0", "default, mail", "1 of 10"]
    assert rows["live"][7] == "–"
    assert rows["live"][8].endswith(" ago")
    assert rows["gone"][2] == "h\\x1b[2J"


def test_without_workers_the_next_step_is_said(everywhere: Desk) -> None:
    said = everywhere("workers", "list")
    assert said.code == 0
    assert said.out.startswith(("SQLite", "PostgreSQL", "Valkey", "Redis"))
    assert "windlass worker MODULE:APP" in said.out
    assert everywhere("workers", "list", "--json").json == []


def test_the_page_tells_every_field() -> None:
    text = (ROOT / "docs" / "operating" / "workers.md").read_text(encoding="utf-8")
    assert [field for field in FIELDS if f"`{field}`" not in text] == []


def states(desk: Desk) -> dict[str, str]:
    return {one["id"]: one["state"] for one in desk("workers", "list", "--json").json}


def test_workers_are_quieted_resumed_and_stopped(everywhere: Desk) -> None:
    desk = everywhere
    desk.run(a_crew(desk))
    said = desk("workers", "quiet", "live")
    assert "The next heartbeat delivers the request" in said.out
    assert said.code == 0
    assert "Asked worker live to take no new jobs." in said.out
    assert states(desk)["live"] == "quiet"
    assert desk("workers", "resume", "live", "--json").json == {
        "order": "resume",
        "workers": ["live"],
    }
    assert states(desk)["live"] == "live"
    assert "Asked worker live to stop" in desk("workers", "stop", "live", "--yes").out
    assert states(desk)["live"] == "stopping"
    (order, *_) = desk("audit", "--json").json
    assert (order["what"], order["subject"]) == ("workers.stop", "worker live")


def test_all_matching_live_workers_get_the_command(
    everywhere: Desk,
) -> None:
    desk = everywhere
    desk.run(a_crew(desk))
    desk.run(_another(desk))
    assert desk("workers", "quiet", "--all", "--json").json["workers"] == ["other", "live"]
    told = desk("workers", "resume", "--all", "--queue", "mail", "--json").json
    assert told["workers"] == ["live"]
    told = desk("workers", "stop", "--all", "--host", "elsewhere", "--yes", "--json").json
    assert told["workers"] == ["other"]
    nobody = desk("workers", "quiet", "--all", "--queue", "none")
    assert nobody.code == 1
    assert "windlass workers list" in nobody.err


async def _another(desk: Desk) -> None:
    await registered(
        await parts_of(desk.app).storage(), "other", host="elsewhere", lease=timedelta(hours=1)
    )


def test_a_stop_asks_for_confirmation_and_wrong_options_are_refused(
    everywhere: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = everywhere
    desk.run(a_crew(desk))
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    assert desk("workers", "stop", "live").code != 0
    assert states(desk)["live"] == "live"
    assert "is dead" in desk("workers", "quiet", "dead").err
    assert "name workers, or give --all" in desk("workers", "quiet", "live", "--all").err
    assert "need --all" in desk("workers", "quiet", "live", "--queue", "mail").err
    assert "give the worker" in desk("workers", "quiet").err


def test_a_sweep_releases_the_jobs_of_a_dead_worker(everywhere: Desk) -> None:
    desk = everywhere

    async def two_workers() -> None:
        storage = await parts_of(desk.app).storage()
        await storage.jobs.insert([NewJob(id=new_job_id(), task="slow")])
        await registered(storage, "live", lease=timedelta(hours=1))
        await registered(storage, "dead", lease=timedelta(hours=1))
        await storage.jobs.claim("dead", [Want("default", 1)], total=1)

    async def one_dies() -> None:
        storage = await parts_of(desk.app).storage()
        await storage.workers.bury(["dead"])

    desk.run(two_workers())
    assert desk("workers", "sweep", "--json").json == {"dead": [], "released": 0, "promoted": 0}
    desk.run(one_dies())
    said = desk("workers", "sweep")
    assert said.out == ("Declared 0 workers dead.\nReleased 1 job, marked 0 due jobs ready.\n")
    assert desk("workers", "sweep", "--json").json["released"] == 0
