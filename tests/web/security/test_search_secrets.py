"""Searching tells nothing of what a viewer may not see, whatever is asked and however often."""

from __future__ import annotations

import itertools
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.web.fixtures import Room, opened
from windlass import Secret, Windlass
from windlass._app.parts import parts_of
from windlass._core.job.job import AttemptError
from windlass._core.job.outcome import GaveUp
from windlass._storage.protocol.lists.job_list import JobFilter, ListOrder, Page
from windlass._web.security.roles import Role
from windlass.testing.conformance.steps import claim, enlist, happened

V1 = "/api/v1"
PIN = "qxz9"
"""No letter of it stands in anything that is shown."""
LETTERS = "qxz9#"
WRONG = "#"
"""In no text at all."""


def pays(url: str) -> Windlass:
    app = Windlass(url)

    @app.task(name="pay", queue="money")
    async def pay(amount: int, card: Secret[str], note: str = "") -> None: ...

    return app


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
async def room(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Room]:
    """A few jobs of which two hide the same number, one in its error and its names as well."""
    urls = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path}/jobs.db"}
    url = urls.get(request.param) or request.getfixturevalue(f"{request.param}_url")
    async with opened(lambda: pays(url)) as one:
        pay = one.app.tasks.find("pay")
        assert pay is not None
        named = pay.options(key=f"pay-{PIN}", tags=(f"of-{PIN}",), correlation_id=f"c-{PIN}")
        calls = [pay.call(amount, "0000", note="lunch") for amount in range(8)]
        calls.insert(2, pay.call(5, PIN, note="gift"))
        calls.insert(6, named.call(5, PIN, note="gift"))
        await one.app.enqueue_many(calls)
        storage = await parts_of(one.app).storage()
        await enlist(storage)
        for job in await claim(storage, 100, queue="money"):
            if job.tags and f"of-{PIN}" in job.tags:
                error = AttemptError("Declined", f"no card {PIN} here", "")
                await happened(storage, job, GaveUp(error))
        yield one


class Watched:
    """What a viewer can learn of one question: every answer, and what it cost the store."""

    def __init__(self, room: Room, client: httpx.AsyncClient, admin: Any) -> None:
        self._room, self._client = room, client
        self._looks: list[object] = []
        self._find = admin.find
        admin.find = self._looked

    async def _looked(self, wanted: JobFilter, *, limit: int) -> Page:
        page: Page = await self._find(wanted, limit=limit)
        self._looks.append((wanted.before, limit, len(page), page.next, page.reached))
        return page

    async def learned(self, **asked: str) -> list[Any]:
        self._looks.clear()
        seen: list[Any] = []
        for size in ("1", "3", "50"):
            answer = await self._client.get(f"{V1}/jobs", params={**asked, "size": size})
            body = answer.json()
            seen.append([[job["id"] for job in body["jobs"]], body["next"], body["reached"]])
        seen.append((await self._client.get(f"{V1}/jobs/count", params=asked)).json())
        page = (await self._client.get("/jobs", params=asked)).text
        seen.append(re.findall(r"before=\d+|/jobs/[0-9a-f]{32}", page))
        return [*seen, *self._looks]


async def watched(room: Room) -> Watched:
    storage = await parts_of(room.app).storage()
    return Watched(room, await room.logged_in(Role.VIEWER), storage.admin)


async def test_a_hidden_value_cannot_be_found_out_by_searching(room: Room) -> None:
    viewer = await watched(room)
    for known in range(len(PIN)):
        nothing = await viewer.learned(text=PIN[:known] + WRONG)
        for letter in LETTERS:
            guess = PIN[:known] + letter
            assert await viewer.learned(text=guess) == nothing, guess
    for name, before in (("key", "pay/pay-"), ("tag", "of-"), ("correlation_id", "c-")):
        right = await viewer.learned(**{name: before + PIN})
        assert right == await viewer.learned(**{name: before + WRONG}), name
        assert right[0] == [[], None, None]
    shown = await viewer.learned(text="GIFT")
    assert [len(found) for found, *_ in shown[:3]] == [1, 2, 2]


@pytest.mark.parametrize("backend", ["postgres", "redis"])
async def test_hidden_matches_do_not_move_the_end_of_a_look(
    backend: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass._storage.postgres.admin.admin.LOOKED_AT", 12)
    monkeypatch.setattr("windlass._storage.redis.admin.find.JOBS_PER_SCAN", 12)
    monkeypatch.setattr("windlass._storage.redis.admin.find._LOOKED_AT", 5)
    monkeypatch.setattr("windlass._storage.redis.admin.find._AT_ONCE", 2)
    monkeypatch.setattr("windlass._storage.shared.text_search._FIRST", 2)
    async with pays(request.getfixturevalue(f"{backend}_url")) as app:
        pay = app.tasks["pay"]
        calls = [pay.call(amount, "0000") for amount in range(30)]
        hiding = pay.options(tags=(f"of-{PIN}",), correlation_id=f"c-{PIN}", principal=f"p-{PIN}")
        for place in (3, 19, 20, 22, 23, 24, 28):
            calls[place] = hiding.call(place, PIN)
        calls[26] = pay.options(key=f"pay-{PIN}").call(26, PIN)
        await app.enqueue_many(calls)
        find = (await parts_of(app).storage()).admin.find
        words = {"key": "pay/pay-", "tag": "of-", "correlation_id": "c-", "principal": "p-"}
        for (name, before), limit, order, states in itertools.product(
            words.items(), (1, 2, 3, 25), (ListOrder.NEWEST, ListOrder.OLDEST), (None, ["waiting"])
        ):
            seen = []
            for end in (PIN, WRONG):
                told: dict[str, Any] = {
                    name: before + end,
                    "order": order,
                    "states": states,
                    "as_shown": True,
                }
                page = await find(JobFilter(**told), limit=limit)
                seen.append((len(page), page.next, page.reached))
            assert seen[0] == seen[1], (name, limit, order, states)
            assert seen[0][0] == 0
            assert seen[0][1] is not None
        shown = await find(JobFilter(task="pay", tag="secret:card", as_shown=True), limit=12)
        assert [len(shown), shown.reached] == [12, None]
