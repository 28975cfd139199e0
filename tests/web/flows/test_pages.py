"""Flows: the list, one flow with its picture, one part, and the place of a job."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from tests.web.fixtures import A_FLOW, BROWSER, Room, form_fields, opened
from tests.web.graph.fixtures import a_flow
from tests.web.page_text import links, words
from tests.web.security.hostile_texts import HOSTILE
from windlass import Flow, Windlass, ended
from windlass._core.flows.flow import FlowState
from windlass._web.pages.flows.flow_list import FlowLine
from windlass._web.security.roles import Role
from windlass.testing import drain


def works() -> Windlass:
    app = Windlass("memory://")

    @app.task(name="shop.fetch", max_attempts=1)
    async def fetch(number: int = 0) -> int:
        if number < 0:
            raise ValueError(number)
        return number

    @app.task(name="shop.tell")
    async def tell(number: int = 0) -> None: ...

    return app


@pytest.fixture
async def room() -> AsyncIterator[Room]:
    async with opened(works) as one:
        yield one


async def started(room: Room, *numbers: int, name: str = "import 42", **options: str) -> str:
    """Start a flow that fetches each number and then tells of it; return its id."""
    fetch, tell = room.app.tasks["shop.fetch"], room.app.tasks["shop.tell"]
    flow = Flow(name, on_failed=tell.call(1), **options)  # type: ignore[arg-type]
    rows = flow.map_calls([fetch.call(number) for number in numbers], name="rows")
    flow.add(tell.call(2), after=rows, name="told")
    flow.add(tell.call(3), after=ended(rows), name="cleanup")
    return (await room.app.start(flow)).id


# --- the list --------------------------------------------------------------------------------


async def test_flows_are_listed_with_state_counts_and_progress(room: Room) -> None:
    async with await room.logged_in(Role.VIEWER) as viewer:
        assert "No flow yet" in (await viewer.get("/flows")).text
        first = await started(room, 1, 2, 3, key="import:42")
        page = (await viewer.get("/flows")).text
        assert links(page, "/flows/0") == [f"/flows/{first}"]
        assert "running 0 of 5 ended 0 % import:42" in words(page)
        await drain(room.app)
        assert "succeeded 5 of 5 ended 100 %" in words((await viewer.get("/flows")).text)


async def test_flows_are_filtered_by_state_name_key_and_tenant(room: Room) -> None:
    await started(room, 1, name="one", key="a")
    await started(room, -1, name="two", key="b")
    await drain(room.app)
    async with await room.logged_in(Role.VIEWER) as viewer:
        for query, name, other in (
            ("state=failed", "two", "one"),
            ("state=succeeded", "one", "two"),
            ("name=one", "one", "two"),
            ("key=b", "two", "one"),
        ):
            found = (await viewer.get(f"/flows?{query}")).text
            assert f">{name}</a>" in found, query
            assert f">{other}</a>" not in found, query
        assert "No flow matches" in (await viewer.get("/flows?tenant=acme")).text
        assert (await viewer.get("/flows?state=asleep")).status_code == 400
        assert (await viewer.get("/flows?before=x")).status_code == 400


async def test_older_flows_follow_page_by_page(room: Room) -> None:
    for number in range(53):
        await started(room, 1, name=f"flow {number}.")
    async with await room.logged_in() as admin:
        first = (await admin.get("/flows")).text
        assert "flow 52." in first
        assert "flow 2." not in words(first)
        (older,) = links(first, "/flows?before=")
        second = words((await admin.get(older)).text)
        assert "flow 2." in second
        assert "No older entries" in second


def test_the_rest_is_estimated_from_the_average_so_far() -> None:
    flow = a_flow(total=10, open=6, succeeded=4)
    now = flow.created_at + timedelta(seconds=40)
    assert FlowLine(flow, now).rest == timedelta(seconds=60)
    assert FlowLine(flow, now).percent == "40 %"
    assert FlowLine(a_flow(total=10, open=10), now).rest is None
    assert FlowLine(a_flow(FlowState.FAILED, total=10, open=0), now).rest is None
    almost = a_flow(total=1000, open=1, succeeded=999)
    assert FlowLine(almost, now).percent == "99 %"


# --- one flow --------------------------------------------------------------------------------


async def test_a_flow_is_drawn_with_links_to_the_jobs_of_each_part(room: Room) -> None:
    flow = await started(room, 1, 2, 3)
    async with await room.logged_in(Role.VIEWER) as viewer:
        page = (await viewer.get(f"/flows/{flow}")).text
    svg = page[page.index("<svg width") : page.index("</svg>", page.index("<svg width"))]
    assert len(re.findall(r'<a id="box-\d+"', svg)) == 5
    assert links(svg, "/flows/") == [f"/flows/{flow}/parts/{number}" for number in (0, 1, 2, 4)]
    assert len(re.findall('class="line"', svg)) == 4
    assert len(re.findall('class="line lenient"', svg)) == 1
    assert "<title>Part rows: active, 0 of 3 ended. Show its jobs</title>" in svg
    assert '<title id="graph-title">Parts of flow import 42</title>' in svg
    assert "<desc" in svg
    assert "style=" not in page
    told = words(page)
    for row in (
        "rows shop.fetch active 0 of 3 ended nothing",
        "told shop.tell blocked 0 of 1 ended rows",
        "cleanup shop.tell blocked 0 of 1 ended rows (end only)",
        "end blocked – all parts",
        "on_failed callback, only after a failure, shop.tell blocked 0 of 1 ended end",
    ):
        assert row in told


async def test_states_are_words_too(room: Room) -> None:
    flow = await started(room, 1, -1)
    await drain(room.app)
    async with await room.logged_in(Role.VIEWER) as viewer:
        page = words((await viewer.get(f"/flows/{flow}")).text)
    assert "1 failed, 2 of 2 ended" in page
    assert "told shop.tell stopped" in page
    assert "cleanup shop.tell succeeded" in page
    assert "4 of 4 ended, 1 failed, 1 stopped" in page


async def test_a_large_flow_is_folded_and_opened_by_a_link(room: Room) -> None:
    fetch = room.app.tasks["shop.fetch"]
    flow = Flow("large")
    first = flow.add(fetch.call(0))
    for number in range(498):
        flow.add(fetch.call(number), after=first, name=f"row {number}")
    run = await room.app.start(flow)
    async with await room.logged_in(Role.VIEWER) as viewer:
        page = (await viewer.get(f"/flows/{run.id}")).text
        assert "498 parallel parts" in page
        assert len(re.findall('<a id="box-', page)) == 3
        assert "1 to 100 of 500" in words(page)
        assert len(page) < 150_000
        opened_by, everything = sorted(links(page, f"/flows/{run.id}?open="), reverse=True)
        assert everything == f"/flows/{run.id}?open=all#graph"
        assert len(re.findall('<a id="box-', (await viewer.get(everything)).text)) == 500
        whole = (await viewer.get(opened_by)).text
        assert len(re.findall('<a id="box-', whole)) == 500
        (close,) = [
            link for link in links(whole, f"/flows/{run.id}") if link.endswith(f"{run.id}#graph")
        ]
        assert "498 parallel parts" in (await viewer.get(close)).text
        assert (await viewer.get(f"/flows/{run.id}?open=nothing")).status_code == 200


async def test_an_unknown_flow_or_part_says_so(room: Room) -> None:
    flow = await started(room, 1)
    async with await room.logged_in(Role.VIEWER) as viewer:
        for path in (A_FLOW, "x", f"{A_FLOW}/parts/0", "%00", "a" * 3000):
            answer = await viewer.get(f"/flows/{path}")
            assert answer.status_code == 404, path
        for part in ("99", "x", "-1"):
            assert (await viewer.get(f"/flows/{flow}/parts/{part}")).status_code == 404


# --- actions ---------------------------------------------------------------------------------


async def test_a_failed_flow_leads_to_its_failed_jobs(room: Room) -> None:
    flow = await started(room, 1, -2, 3)
    await drain(room.app)
    async with await room.logged_in(Role.VIEWER) as viewer:
        page = (await viewer.get(f"/flows/{flow}")).text
        assert f"/flows/{flow}/parts/0?state=failed" in links(page, "/flows/")


async def test_an_operator_cancels_and_retries_under_their_name(room: Room) -> None:
    flow = await started(room, 1, 2)
    async with await room.logged_in(Role.OPERATOR) as operator:
        page = (await operator.get(f"/flows/{flow}")).text
        assert links(page, "/flows/cancel") == [f"/flows/cancel?flow={flow}"]
        assert not links(page, "/flows/retry")
        done = await room.order(operator, "/flows/cancel", {"flow": flow})
        assert done.headers["location"] == f"/flows/{flow}"
        await drain(room.app)
        page = (await operator.get(f"/flows/{flow}")).text
        assert "cancel by dashboard:the-operator" in words(page)
        assert links(page, "/flows/retry")
        assert not links(page, "/flows/cancel")
        await room.order(operator, "/flows/retry", {"flow": flow})
        await drain(room.app)
        assert (await room.app.admin.flows.get(flow)).flow.state is FlowState.SUCCEEDED
        audits = await room.app.admin.audit.list()
        assert [one.note.what for one in audits] == ["flows.retry", "flows.cancel"]
        assert links((await operator.get("/audit")).text, f"/flows/{flow}")


async def test_an_operator_lets_the_jobs_be_counted_again(room: Room) -> None:
    flow = await started(room, 1)
    async with await room.logged_in(Role.OPERATOR) as operator:
        page = (await operator.get(f"/flows/{flow}")).text
        assert links(page, "/flows/recount") == [f"/flows/recount?flow={flow}"]
        assert links(page, f"/jobs?flow={flow}")
        done = await room.order(operator, "/flows/recount", {"flow": flow})
        page = words((await operator.get(done.headers["location"])).text)
        assert "All counts agree." in page


async def test_a_late_action_is_refused_and_says_why(room: Room) -> None:
    flow = await started(room, 1)
    async with await room.logged_in() as admin:
        question = await admin.get(f"/flows/cancel?flow={flow}")
        await drain(room.app)
        late = await admin.post(
            f"/flows/cancel?flow={flow}", data=form_fields(question.text), headers=BROWSER
        )
        page = words((await admin.get(late.headers["location"])).text)
        assert "it is succeeded; only a running flow can be cancelled" in page


async def test_actions_are_confirmed_only_in_states_that_allow_them(room: Room) -> None:
    flow = await started(room, 1)
    async with await room.logged_in() as admin:
        assert (await admin.get(f"/flows/retry?flow={flow}")).status_code == 409
        assert "3 jobs have not ended." in (await admin.get(f"/flows/cancel?flow={flow}")).text
        await drain(room.app)
        for verb in ("cancel", "retry"):
            assert (await admin.get(f"/flows/{verb}?flow={flow}")).status_code == 409


async def test_a_stopped_job_offers_no_requeue(room: Room) -> None:
    flow = await started(room, -1)
    await drain(room.app)
    (failed,) = await room.app.admin.flows.members(flow, 0)
    (told,) = await room.app.admin.flows.members(flow, 1)
    async with await room.logged_in() as admin:
        assert "/jobs/requeue" in (await admin.get(f"/jobs/{failed.id}")).text
        assert "/jobs/requeue" not in (await admin.get(f"/jobs/{told.id}")).text


async def test_only_a_flow_that_runs_expires(room: Room) -> None:
    flow = await started(room, 1, expires="2h")
    async with await room.logged_in() as admin:
        page = words((await admin.get(f"/flows/{flow}")).text)
        assert "jobs that have not started then are cancelled" in page
        await drain(room.app)
        assert "Expires" not in words((await admin.get(f"/flows/{flow}")).text)


async def test_a_viewer_sees_no_buttons(room: Room) -> None:
    flow = await started(room, 1)
    async with await room.logged_in(Role.VIEWER) as viewer:
        assert "/flows/cancel" not in (await viewer.get(f"/flows/{flow}")).text
        assert (await viewer.get(f"/flows/cancel?flow={flow}")).status_code == 403


# --- parts and jobs --------------------------------------------------------------------------


async def test_the_jobs_of_a_part_are_listed_page_by_page(room: Room) -> None:
    flow = await started(room, *range(150), -1)
    await drain(room.app)
    async with await room.logged_in(Role.VIEWER) as viewer:
        first = (await viewer.get(f"/flows/{flow}/parts/0")).text
        assert "150 of 151" not in first
        assert "151 of 151 ended, 1 failed" in first
        listed = links(first, "/jobs/")
        assert len(listed) == 100
        (following,) = links(first, f"/flows/{flow}/parts/0?after=")
        rest = (await viewer.get(following)).text
        assert len({*listed, *links(rest, "/jobs/")}) == 151
        assert "failed ValueError" in words(rest)
        wrong = (await viewer.get(f"/flows/{flow}/parts/0?state=failed")).text
        assert len(links(wrong, "/jobs/")) == 1
        fine = words((await viewer.get(f"/flows/{flow}/parts/2?state=failed")).text)
        assert "No failed job here" in fine
        empty = words((await viewer.get(f"/flows/{flow}/parts/3")).text)
        assert "No jobs" in empty


async def test_the_page_of_a_job_leads_to_its_place_in_the_flow(room: Room) -> None:
    flow = await started(room, 1, 2)
    (told,) = await room.app.admin.flows.members(flow, 1)
    async with await room.logged_in() as admin:
        page = (await admin.get(f"/jobs/{told.id}")).text
        assert "Member of flow import 42 running , part told ." in words(page)
        assert "It waits for rows 2 open ." in words(page)
        assert set(links(page, "/flows/")) == {
            f"/flows/{flow}",
            f"/flows/{flow}?part=1#graph",
            f"/flows/{flow}/parts/0",
            f"/flows/{flow}/parts/1",
        }
        assert "/jobs/run-now" not in page
        shown = (await admin.get(f"/flows/{flow}?part=1")).text
        (here,) = re.findall(r'<a id="([^"]+)" class="[^"]* here"', shown)
        assert here == "box-1"
        await drain(room.app)
        page = (await admin.get(f"/jobs/{told.id}")).text
        assert "It waits for" not in page
        assert "/jobs/delete" not in page


async def test_results_that_a_job_waits_for_are_named_in_its_arguments(room: Room) -> None:
    fetch = room.app.tasks["shop.fetch"]
    flow = Flow("pending")
    first = flow.add(fetch.call(1))
    second = flow.add(fetch.call(first.result))
    await room.app.start(flow)
    async with await room.logged_in() as admin:
        page = words((await admin.get(f"/jobs/{second.id}")).text)
        assert f"<result of job {first.id}>" in html.unescape(page)
        assert "$results" not in page
        assert "Due – when the parts before it have ended" in page


async def test_members_are_listed_without_what_may_be_secret(room: Room) -> None:
    flow = await started(room, -7)
    await drain(room.app)
    (one,) = await room.app.admin.flows.members(flow, 0)
    assert (one.error_kind, one.error_message, one.result) == ("ValueError", "", None)


async def test_hostile_names_are_escaped(room: Room) -> None:
    fetch = room.app.tasks["shop.fetch"]
    async with await room.logged_in() as admin:
        for text in HOSTILE:
            name = text[:100].strip() or "x"
            flow = Flow(name, key=name)
            group = flow.group(name)
            group.add(fetch.call(1), name=name)
            flow.add(fetch.call(2), after=group, name=name)
            run = await room.app.start(flow)
            for path in ("/flows", f"/flows/{run.id}", f"/flows/{run.id}/parts/0"):
                answer = await admin.get(path)
                assert answer.status_code == 200
                assert "<script>alert" not in answer.text
                assert "<img" not in answer.text
