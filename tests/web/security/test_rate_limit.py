"""Orders that come too fast wait; people and scripts do not notice that there is a bound."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from tests.web.fixtures import BROWSER, TOKENS, Clock, Room, form_token, opened, shop, stocked
from windlass import Rate
from windlass._app.parts import parts_of
from windlass._core.job.job import JobId, NewJob
from windlass._web.app import Dashboard
from windlass._web.security.authentication import HostAuthentication
from windlass._web.security.credentials import token_line
from windlass._web.security.rate_limit import DEFAULT_ACTION_RATE, ActionRateLimit
from windlass._web.security.roles import Role

FEW = Rate(10, 1.0, burst=5)
PAUSE = "/queues/pause?queue=mail"
ORDER = "/api/v1/queues/pause"
MAIL = {"queue": "mail"}


@pytest.fixture
async def room() -> AsyncIterator[Room]:
    async with opened(rate=FEW) as one:
        await stocked(one)
        yield one


def program(room: Room, role: Role = Role.ADMIN) -> httpx.AsyncClient:
    client = room.client()
    client.headers["authorization"] = f"Bearer {TOKENS[role]}"
    return client


def test_a_burst_passes_and_then_one_at_a_time_for_each_person_and_for_all() -> None:
    clock = Clock()
    pace = ActionRateLimit(FEW, clock)
    assert [pace.wait("ada") for _ in range(5)] == [0.0] * 5
    assert [round(pace.wait("ada"), 6) for _ in range(50)] == [
        0.1
    ] * 50  # refused ones cost nothing
    clock.now += 0.1
    assert pace.wait("ada") == 0.0
    assert pace.wait("ada") > 0
    others = [pace.wait(f"person {n}") for n in range(40)]
    assert others == [0.0] * 24 + [pytest.approx(0.02)] * 16  # of all, five times as many
    clock.now += 1.0
    assert pace.wait("grace") == 0.0


def test_idle_clients_are_forgotten() -> None:
    clock = Clock()
    pace = ActionRateLimit(Rate(1000, 1.0, burst=10_000), clock)
    for n in range(10_000):
        pace.wait(f"person {n}")
    clock.now += 60
    pace.wait("one more")
    assert list(pace._spent) == ["one more"]


def test_the_bound_is_far_above_what_people_and_scripts_need() -> None:
    assert DEFAULT_ACTION_RATE.n / DEFAULT_ACTION_RATE.per.total_seconds() >= 10
    assert DEFAULT_ACTION_RATE.burst >= 50


async def test_a_person_who_acts_too_fast_must_wait_and_nothing_is_done(
    room: Room,
) -> None:
    async with await room.logged_in() as admin, await room.logged_in() as elsewhere:
        here = {"token": form_token((await admin.get("/queues")).text)}
        there = {"token": form_token((await elsewhere.get("/queues")).text)}
        for n in range(5):  # in two browsers: it is one person
            client, form = (admin, here) if n % 2 else (elsewhere, there)
            assert (await client.post(PAUSE, data=form, headers=BROWSER)).status_code == 303
        await room.app.admin.queues.resume("mail")
        answer = await admin.post(PAUSE, data=here, headers=BROWSER)
        assert answer.status_code == 429
        assert answer.headers["retry-after"] == "1"
        assert "Send it again in 1 s" in answer.text
        assert 'http-equiv="refresh"' not in answer.text  # an order is not repeated by itself
        assert not (await room.app.admin.queues.get("mail")).paused
        assert (await admin.get("/queues")).status_code == 200  # whoever only reads is not counted
        async with await room.logged_in(Role.OPERATOR) as other:
            form = {"token": form_token((await other.get("/queues")).text)}
            assert (await other.post(PAUSE, data=form, headers=BROWSER)).status_code == 303
        room.clock.now += 0.2
        assert (await admin.post(PAUSE, data=here, headers=BROWSER)).status_code == 303
        assert (await admin.post(PAUSE, data=here, headers=BROWSER)).status_code == 303
        assert (await admin.post(PAUSE, data=here, headers=BROWSER)).status_code == 429
        assert (await admin.post("/logout", data=here, headers=BROWSER)).status_code == 303


async def test_a_program_gets_the_same_answer_and_a_bulk_action_counts_once(room: Room) -> None:
    storage = await parts_of(room.app).storage()
    await storage.jobs.insert(
        [NewJob(id=JobId(f"{n:032x}"), task="send", queue="mail") for n in range(50, 90)]
    )
    async with program(room, Role.OPERATOR) as operator:
        many = {"order": "cancel", "filter": {"queue": "mail"}}
        done = await operator.post("/api/v1/orders", json=many)
        assert done.json()["done"] == 40
        for _ in range(4):
            assert (await operator.post(ORDER, json=MAIL)).status_code == 200
        answer = await operator.post(ORDER, json=MAIL)
        assert answer.status_code == 429
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["code"] == "too_fast"
        assert answer.headers["retry-after"] == "1"
        room.clock.now += 10
        assert (await operator.post(ORDER, json=MAIL)).status_code == 200


async def test_refused_requests_are_not_counted(room: Room) -> None:
    async with await room.logged_in() as admin, program(room, Role.VIEWER) as viewer:
        form = {"token": form_token((await admin.get("/queues")).text)}
        elsewhere = {"sec-fetch-site": "cross-site", "origin": "http://evil.test"}
        for _ in range(10):  # another site cannot use up what a person may order
            assert (await admin.post(PAUSE, data=form, headers=elsewhere)).status_code == 403
            assert (await admin.post(PAUSE, data={}, headers=BROWSER)).status_code == 403
            assert (await viewer.post(ORDER, json=MAIL)).status_code == 403
        assert (await admin.post(PAUSE, data=form, headers=BROWSER)).status_code == 303


async def test_anonymous_people_are_counted_by_address() -> None:
    async with opened(rate=FEW, door=HostAuthentication(lambda _: "admin")) as room:

        async def codes(address: str) -> list[int]:
            transport = httpx.ASGITransport(room.asgi, client=(address, 1))
            async with httpx.AsyncClient(transport=transport, base_url="http://x.test") as client:
                form = {"token": form_token((await client.get(PAUSE)).text)}
                return [(await client.post(PAUSE, data=form)).status_code for _ in range(6)]

        assert await codes("203.0.113.1") == [303] * 5 + [429]
        assert await codes("203.0.113.2") == [303] * 5 + [429]


async def test_the_bound_is_a_setting_of_the_dashboard() -> None:
    async with shop() as app:
        line = token_line("ci", Role.OPERATOR, TOKENS[Role.OPERATOR])
        asgi = app.dashboard([line], action_rate=Rate(1, 3600, burst=2))
        made = asgi.state.windlass_dashboard
        assert isinstance(made, Dashboard)
        headers = {"authorization": f"Bearer {TOKENS[Role.OPERATOR]}"}
        transport = httpx.ASGITransport(asgi)
        async with httpx.AsyncClient(transport=transport, base_url="http://x.test") as client:
            codes = [
                (await client.post(ORDER, json=MAIL, headers=headers)).status_code for _ in "123"
            ]
        assert codes == [200, 200, 429]
