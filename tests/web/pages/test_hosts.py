"""Hosts: CPU, memory and disk of the machines that run workers."""

from __future__ import annotations

import html
import json
import re
from typing import Any

from tests.web.fixtures import Room, opened, stocked
from tests.web.page_text import links, words
from tests.web.security.hostile_texts import HOSTILE
from windlass._app.parts import parts_of
from windlass._web.security.roles import Role

GIB = 2.0**30


def a_host(cpu: float) -> dict[str, float]:
    return {
        "cpu": cpu,
        "memory_used": 6 * GIB,
        "memory_total": 8 * GIB,
        "disk_used": 10 * GIB,
        "disk_total": 100 * GIB,
    }


async def measured(room: Room, **hosts: dict[str, float]) -> None:
    storage = await parts_of(room.app).storage()
    await storage.workers.beat("w1", readings=hosts)


def charts(page: str) -> list[dict[str, Any]]:
    """The data of the charts of a page."""
    return [json.loads(html.unescape(found)) for found in re.findall(r'data-chart="(.*?)"', page)]


async def test_hosts_show_their_last_values_and_a_chart_of_each() -> None:  # METR-8, API-3
    async with opened() as room, await room.logged_in(Role.VIEWER) as viewer:
        assert "No measurement yet" in (await viewer.get("/hosts")).text
        await stocked(room)
        await measured(room, box=a_host(0.25), other=a_host(0.5))
        page = (await viewer.get("/hosts")).text
        read = words(page)
        assert "box 1 25 % 75 % of 8 GiB 10 % of 100 GiB" in read
        assert "other 0 50 %" in read
        cpu, memory, disk = charts(page)
        assert [line["label"] for line in cpu["series"]] == ["box", "other"]
        assert (cpu["unit"], cpu["series"][1]["values"][-1]) == ("%", 50.0)
        assert (memory["series"][0]["values"][-1], disk["series"][0]["values"][-1]) == (75.0, 10.0)
        (one,) = links(page, "/hosts?host=box")
        only = words((await viewer.get(one)).text)
        assert "25 %" in only
        assert "50 %" not in only
        assert "No measurement of nowhere" in (await viewer.get("/hosts?host=nowhere")).text


async def test_a_host_of_another_system_shows_what_it_reports() -> None:
    async with opened() as room, await room.logged_in(Role.VIEWER) as viewer:
        await stocked(room)
        await measured(room, mac={"disk_used": GIB, "disk_total": 2 * GIB})
        page = (await viewer.get("/hosts?range=7d")).text
        assert "mac 0 – – 50 % of 2 GiB" in words(page)
        assert [len(told["series"]) for told in charts(page)] == [0, 0, 1]
        assert "not reported by this system" in page


async def test_charts_show_the_busiest_of_many_hosts() -> None:
    async with opened() as room, await room.logged_in(Role.VIEWER) as viewer:
        await stocked(room)
        await measured(room, **{f"host-{n}": a_host(n / 10) for n in range(9)})
        page = (await viewer.get("/hosts")).text
        assert "the 6 busiest of 9 hosts" in words(page)
        labels = [line["label"] for line in charts(page)[0]["series"]]
        assert labels == [f"host-{n}" for n in range(3, 9)]
        assert "host-0 0 0 %" in words(page)


async def test_hostile_names_of_hosts_are_escaped() -> None:
    async with opened() as room, await room.logged_in() as admin:
        await stocked(room)
        for text in HOSTILE:
            await measured(room, **{text[:100] or "x": a_host(0.1)})
        page = (await admin.get("/hosts")).text
        assert "<script>alert" not in page
        assert len(charts(page)) == 3
