"""``windlass stats``."""

from __future__ import annotations

from tests.cli.fixtures import Desk
from windlass._app.parts import parts_of
from windlass.testing.conformance.steps import enlist

GIB = 2.0**30
HOST = {
    "cpu": 0.25,
    "memory_used": 2 * GIB,
    "memory_total": 8 * GIB,
    "disk_used": 30 * GIB,
    "disk_total": 120 * GIB,
}
STORAGE = {"size": 1.5 * 2**20, "jobs_ready": 1200, "jobs_failed": 3, "write_p95": 0.004}


def measured(desk: Desk) -> None:
    async def beat() -> None:
        storage = await parts_of(desk.app).storage()
        await enlist(storage, "w1")
        readings = {"web-1": HOST, "mac": {"disk_used": GIB, "disk_total": 2 * GIB}, "": STORAGE}
        await storage.workers.beat("w1", readings=readings)

    desk.run(beat())


def test_hosts_are_shown_with_their_last_values(everywhere: Desk) -> None:  # METR-8, API-3
    desk = everywhere
    assert "no measurements" in desk("stats", "hosts").out
    measured(desk)
    mac, web = desk("stats", "hosts").rows
    assert (mac[0], web[0]) == ("mac", "web-1")
    assert mac[2:6] == ["–", "–", "–", "–"]
    assert web[2:] == ["25%", "25%", "25%", "2 GiB of 8 GiB (25%)", "30 GiB of 120 GiB (25%)"]
    (only,) = desk("stats", "hosts", "--host", "web-1").rows
    assert only[1:3] == ["25%", "25%"]
    (told,) = desk("stats", "hosts", "--host", "web-1", "--step", "5m", "--json").json
    assert (told["source"], told["latest"]["mean"]) == ("web-1", HOST)
    assert told["step"] == "PT300S"


def test_the_storage_is_shown_over_time(everywhere: Desk) -> None:  # API-3
    desk = everywhere
    assert "no measurements" in desk("stats", "storage").out
    measured(desk)
    (row,) = desk("stats", "storage").rows
    assert row[1:] == ["1.5 MiB", "1,200", "–", "–", "3", "–", "4 ms"]
    told = desk("stats", "storage", "--since", "15m", "--json").json
    assert told["latest"]["mean"] == STORAGE
    assert 15 <= len(told["points"]) <= 16


def test_a_wrong_step_or_instant_is_refused(desk: Desk) -> None:
    assert "whole minutes" in desk("stats", "hosts", "--step", "10s").err
    assert "--since takes an instant" in desk("stats", "storage", "--since", "soon").err
    assert "widen the step" in desk("stats", "storage", "--since", "47h", "--step", "1m").err
    assert "storage" in desk("stats", "storag").err
