"""Flows for programs."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.web.api.test_api import V1, problem, program
from tests.web.fixtures import A_FLOW, Room, opened, stocked
from windlass import Flow
from windlass._app.parts import parts_of
from windlass._core.job.job import FlowId
from windlass._storage.memory import MemoryStorage
from windlass._web.api import truncation
from windlass._web.security.roles import Role


@pytest.fixture
async def room() -> AsyncIterator[Room]:
    async with opened() as one:
        await stocked(one)
        yield one


async def started(room: Room, name: str, key: str | None = None) -> str:
    flow = Flow(name, key=key)
    flow.add(room.app.tasks["pay"].call(1))
    return (await room.app.start(flow)).id


async def test_flows_are_listed_newest_first_page_by_page(room: Room) -> None:
    for number in range(4):
        await started(room, f"flow {number}")
    async with program(room, Role.VIEWER) as viewer:
        first = (await viewer.get(f"{V1}/flows?size=3")).json()
        assert [one["name"] for one in first["flows"]] == ["flow 3", "flow 2", "flow 1"]
        rest = (await viewer.get(f"{V1}/flows?size=3&before={first['next']}")).json()
        assert [one["name"] for one in rest["flows"]] == ["flow 0", "order 7"]
        assert rest["next"] is None


async def test_flows_are_found_by_state_name_key_and_tenant(room: Room) -> None:
    await started(room, "import", key="import:42")
    cancelled = await started(room, "other")
    await room.app.admin.flows.cancel(cancelled)
    await (await room.app.admin._session.storage()).flows.settle(10)
    async with program(room, Role.VIEWER) as viewer:
        for query, names in {
            "state=cancelled": ["other"],
            "state=cancelled&state=running&name=other": ["other"],
            "name=import": ["import"],
            "key=import:42": ["import"],
            "tenant=acme": [],
        }.items():
            found = (await viewer.get(f"{V1}/flows?{query}")).json()
            assert [one["name"] for one in found["flows"]] == names, query
        for query in ("state=asleep", "nam=import", "size=0", "before=x"):
            assert problem(await viewer.get(f"{V1}/flows?{query}"), 422)["code"] == "invalid"


async def test_a_flow_is_shown_with_its_parts(room: Room) -> None:
    async with program(room, Role.VIEWER) as viewer:
        told = (await viewer.get(f"{V1}/flows/{A_FLOW}")).json()
        assert (told["flow"]["name"], told["flow"]["state"]) == ("order 7", "running")
        assert [part["name"] for part in told["parts"]] == ["pay", "ship", "end"]
        assert told["parts"][1]["after"] == [{"part": 0, "strict": True}]
        assert told["parts"][1]["blocked"] == 1
        assert told["next"] is None
        (member,) = await room.app.admin.flows.members(A_FLOW, 1)
        job = (await viewer.get(f"{V1}/jobs/{member.id}")).json()
        assert (job["flow"]["flow"], job["flow"]["part"], job["blocked"]) == (A_FLOW, 1, True)
        for unknown in ("0" * 32, "x", "0" * 500):
            assert problem(await viewer.get(f"{V1}/flows/{unknown}"), 404)["code"] == "not_found"


async def test_the_parts_of_a_large_flow_come_in_several_answers(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(truncation.fit_answer, "__defaults__", (300,))
    async with program(room, Role.VIEWER) as viewer:
        names: list[str] = []
        first: int | None = 0
        while first is not None:
            told = (await viewer.get(f"{V1}/flows/{A_FLOW}?first={first}")).json()
            names += [part["name"] for part in told["parts"]]
            first = told["next"]
    assert names == ["pay", "ship", "end"]


async def test_an_operator_cancels_and_retries(room: Room) -> None:
    async with program(room, Role.OPERATOR) as operator:
        refused = problem(await operator.post(f"{V1}/flows/{A_FLOW}/retry"), 409)
        assert refused["code"] == "conflict"
        assert "only a failed or cancelled flow can be retried" in refused["detail"]
        told = (await operator.post(f"{V1}/flows/{A_FLOW}/cancel")).json()
        assert told["cancel_requested"]
        await (await room.app.admin._session.storage()).flows.settle(10)
        problem(await operator.post(f"{V1}/flows/{A_FLOW}/cancel"), 409)
        again = (await operator.post(f"{V1}/flows/{A_FLOW}/retry")).json()
        assert again["state"] == "running"
        problem(await operator.post(f"{V1}/flows/{'0' * 32}/cancel"), 404)
    audits = [one.note for one in await room.app.admin.audit.list(subject=f"flow {A_FLOW}")]
    assert [one.what for one in audits][:1] == ["flows.retry"]
    assert {one.who for one in audits} == {"dashboard:the-operator"}


async def test_a_retry_is_refused_while_another_flow_holds_the_key(room: Room) -> None:
    first = await started(room, "first", key="import:42")
    await room.app.admin.flows.cancel(first)
    await (await room.app.admin._session.storage()).flows.settle(10)
    await started(room, "second", key="import:42")
    async with program(room) as admin:
        refused = problem(await admin.post(f"{V1}/flows/{first}/retry"), 409)
        assert "another running flow holds its key" in refused["detail"]


async def test_a_viewer_is_refused_actions(room: Room) -> None:
    async with program(room, Role.VIEWER) as viewer:
        for action in ("cancel", "retry", "recount"):
            problem(await viewer.post(f"{V1}/flows/{A_FLOW}/{action}"), 403)
    assert not (await room.app.admin.flows.get(A_FLOW)).flow.cancel_requested


async def test_an_operator_lets_the_jobs_of_a_flow_be_counted_again(room: Room) -> None:
    storage = await parts_of(room.app).storage()
    assert isinstance(storage, MemoryStorage)
    async with program(room, Role.OPERATOR) as operator:
        told = (await operator.post(f"{V1}/flows/{A_FLOW}/recount", json={"repair": True})).json()
        assert told == {"wrong": [], "repaired": False}
        storage.flows._db.flows.by_id[FlowId(A_FLOW)].parts[0].counts.put("succeeded", 1)
        told = (await operator.post(f"{V1}/flows/{A_FLOW}/recount")).json()
        assert told["repaired"] is False
        assert [text.partition(": ")[2] for text in told["wrong"]] == [
            "succeeded is 1, and 0 jobs are"
        ]
        told = (await operator.post(f"{V1}/flows/{A_FLOW}/recount", json={"repair": True})).json()
        assert (len(told["wrong"]), told["repaired"]) == (1, True)
        assert not (await storage.flows.recount()).wrong
        problem(await operator.post(f"{V1}/flows/{'0' * 32}/recount"), 404)
    audits = [one.note for one in await room.app.admin.audit.list(subject=f"flow {A_FLOW}")]
    assert [(one.what, one.detail) for one in audits] == [("flows.recount", "1 counts")]


async def test_jobs_are_listed_by_their_flow(room: Room) -> None:
    async with program(room, Role.VIEWER) as viewer:
        told = (await viewer.get(f"{V1}/jobs?flow={A_FLOW}")).json()
        assert [job["flow"]["flow"] for job in told["jobs"]] == [A_FLOW, A_FLOW]
        assert (await viewer.get(f"{V1}/jobs?flow={'0' * 32}")).json()["jobs"] == []
        problem(await viewer.get(f"{V1}/jobs?flow=x"), 404)
