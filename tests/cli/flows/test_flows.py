"""``windlass flows``, on every durable backend."""

from __future__ import annotations

import io

import pytest

from tests.cli.fixtures import Desk
from windlass import Flow
from windlass._cli.flows.answers import answer_text
from windlass._cli.flows.graphs import as_dot, as_mermaid, as_text
from windlass._core.flows.flow import Edge, FlowRecord, FlowState, NewPart, PartKind, PartRecord
from windlass._core.flows.plan import complete
from windlass._core.job.job import FlowId
from windlass._storage.protocol.actions import ActionResult
from windlass._storage.protocol.flows import FlowGraph
from windlass.testing._clock import START


def a_chain(desk: Desk, name: str = "import") -> tuple[str, list[str]]:
    """Start a flow of two jobs in a row; its id, and those of its jobs."""
    flow = Flow(name, key=name)
    first = flow.add(desk.pay.call(1), name="first")
    second = flow.add(desk.pay.call(2), after=first, name="second")
    run = desk.app.blocking.start(flow)
    return run.id, [first.id, second.id]


def test_flows_are_listed_and_shown(everywhere: Desk) -> None:
    desk = everywhere
    assert "has no such flows" in desk("flows", "list").out
    flow, _ = a_chain(desk)
    (listed,) = desk("flows", "list", "--json").json
    assert (listed["id"], listed["name"], listed["state"]) == (flow, "import", "running")
    assert (listed["total"], listed["open"], listed["key"]) == (2, 2, "import")
    assert desk("flows", "list", "--state", "failed", "--json").json == []
    (row,) = desk("flows", "list").rows
    assert row[1:6] == ["import", "running", "2", "0", "0"]
    shown = desk("flows", "show", flow)
    assert [line.split()[:3] for line in shown.out.splitlines()[-2:]] == [
        ["0", "first", "active"],
        ["1", "second", "blocked"],
    ]
    parts = desk("flows", "show", flow, "--json").json["parts"]
    assert [part["name"] for part in parts] == ["first", "second", "end"]
    assert parts[1]["after"] == [{"part": 0, "strict": True}]


def test_a_flow_is_cancelled_and_retried(everywhere: Desk) -> None:
    desk = everywhere
    to = f"jobs requeue --url {desk.url} JOB`"
    flow, _ = a_chain(desk)
    still = desk("flows", "retry", flow)
    assert still.code == 1
    assert f"still runs: wait for its end, or requeue single jobs with `windlass {to}" in still.err
    assert desk("flows", "cancel", flow, "--yes").out == (
        f"Cancel requested for flow {flow}, with 2 jobs not ended. Workers cancel waiting jobs and "
        f"ask running ones to stop.\n"
    )
    desk.work()
    assert desk("flows", "list", "--json").json[0]["state"] == "cancelled"
    again = desk("flows", "cancel", flow, "--yes")
    assert again.code == 1
    assert again.err == f"Error: Flow {flow} has ended: there is nothing to cancel.\n"
    assert desk("flows", "retry", flow, "--json").json == {"flow": flow, "answer": "done"}
    desk.work()
    assert desk("flows", "list", "--json").json[0]["state"] == "succeeded"
    ended = desk("flows", "retry", flow)
    assert (ended.code, "has succeeded: there is nothing to retry" in ended.err) == (1, True)
    whats = [record["what"] for record in desk("audit", "--json").json]
    assert whats[:2] == ["flows.retry", "flows.cancel"]


@pytest.mark.parametrize(
    ("state", "asked", "said"),
    [
        (FlowState.CANCELLED, True, "was never stored whole, so none of its jobs has run: start"),
        (FlowState.RUNNING, True, "is being cancelled: wait for its end."),
        (
            FlowState.RUNNING,
            False,
            f"`windlass flows cancel {'0' * 32}`, then start the flow again",
        ),
    ],
)
def test_a_flow_that_is_not_stored_whole_cannot_be_retried(
    state: FlowState, *, asked: bool, said: str
) -> None:
    flow = FlowRecord(
        id=FlowId("0" * 32),
        number=1,
        name="f",
        state=state,
        created_at=START,
        cancel_requested=asked,
        sealed=True,
    )
    assert said in answer_text("retry", ActionResult.WRONG_STATE, flow)


def test_jobs_are_listed_by_their_flow(everywhere: Desk) -> None:
    flow, jobs = a_chain(everywhere)
    a_chain(everywhere, "another")
    for name in (flow, f"{flow[:8]}…{flow[-6:]}"):
        listed = everywhere("jobs", "list", "--flow", name, "--json").json
        assert [job["id"] for job in listed] == jobs[::-1]


def test_counts_are_compared_with_the_jobs(everywhere: Desk) -> None:
    a_chain(everywhere)
    said = everywhere("flows", "recount")
    assert (said.code, said.out) == (0, "All counts agree.\n")
    assert everywhere("flows", "recount", "--json").json == {"wrong": [], "repaired": False}


def test_an_unknown_flow_is_refused(desk: Desk) -> None:
    for order in ("show", "explain", "cancel", "retry", "graph"):
        yes = ("--yes",) if order == "cancel" else ()
        said = desk("flows", order, "0" * 32, *yes)
        assert said.code == 1
        assert f"No flow {'0' * 32} is stored." in said.err
        assert "Give the whole id" in desk("flows", order, "what", *yes).err
    _, (first, _) = a_chain(desk)
    assert f"{first} is the id of a job: its flow is " in desk("flows", "show", first).err


def test_a_flow_is_named_by_a_short_id(everywhere: Desk) -> None:
    desk = everywhere
    flow, _ = a_chain(desk)
    other, _ = a_chain(desk, "other")
    for short in (f"{flow[:8]}…{flow[-6:]}", flow[-8:]):
        assert desk("flows", "show", short, "--json").json["id"] == flow
    assert desk("flows", "cancel", flow[-8:], "--yes").code == 0
    assert desk("flows", "show", flow, "--json").json["cancel_requested"]
    assert not desk("flows", "show", other, "--json").json["cancel_requested"]


def test_a_flow_is_explained_by_its_jobs(everywhere: Desk) -> None:
    desk = everywhere
    flow, (first, second) = a_chain(desk)
    desk("queues", "pause", "bank")
    (cause,) = desk("flows", "explain", flow, "--json").json["causes"]
    assert (cause["code"], cause["evidence"]["job"]) == ("part_open", first)
    assert "Of 1 job of first, 1 not ended." in cause["sentence"]
    assert "Queue bank is paused" in cause["sentence"]
    (cause,) = desk("jobs", "explain", second, "--json").json["causes"]
    assert (cause["evidence"]["job"], cause["evidence"]["cause"]) == (first, "queue_paused")
    desk("queues", "resume", "bank")
    desk("jobs", "cancel", first, "--yes")
    desk.work()
    told = desk("flows", "explain", flow)
    assert "state failed" in " ".join(told.out.split())
    assert f"windlass flows retry --url {desk.url} {flow}" in told.out
    assert "Of 1 job of first, 1 cancelled or expired." in told.out


def test_a_blocked_job_is_explained_by_what_it_waits_for(everywhere: Desk) -> None:
    _, (first, second) = a_chain(everywhere)
    (cause,) = everywhere("jobs", "explain", second, "--json").json["causes"]
    assert cause["code"] == "after_jobs"
    assert "It waits for 1 of 1 job of first, in flow import." in cause["sentence"]
    assert first in cause["sentence"]


def test_actions_on_members_say_what_their_flow_does(everywhere: Desk) -> None:
    desk = everywhere
    flow, (first, second) = a_chain(desk)
    assert "blocked" in desk("jobs", "list").out
    assert "write --state scheduled" in desk("jobs", "list", "--state", "blocked").err
    assert second in desk("jobs", "list", "--state", "scheduled", "--flow", flow).out
    assert "after other jobs of its flow" in desk("jobs", "show", second).out
    for words in (("run-now",), ("edit", "--due", "1h")):
        refused = desk("jobs", words[0], second, *words[1:])
        assert refused.code == 1
        assert f"it waits for other jobs of its flow {flow}" in refused.err
    edited = desk("jobs", "edit", second, "--priority", "3")
    said = f"Job {second} runs after other jobs of its flow, on bank, priority 3.\n"
    assert (edited.code, edited.out) == (0, said)
    assert "which is deleted as a whole" in desk("jobs", "delete", second, "--yes").err
    desk("jobs", "cancel", first, "--yes")
    desk.work()
    (cause,) = desk("jobs", "explain", second, "--json").json["causes"]
    assert "Its flow cancelled it" in cause["sentence"]
    assert "after first, which failed" in cause["sentence"]
    refused = desk("jobs", "requeue", second)
    retry = f"`windlass flows retry --url {desk.url} {flow}`"
    assert f"Requeue the job that failed, or {retry}" in refused.err
    assert desk("jobs", "requeue", first).code == 0
    desk.work()
    assert desk("flows", "show", flow, "--json").json["state"] == "succeeded"


def test_a_cancel_without_a_terminal_says_how_to_confirm_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow, (first, _) = a_chain(desk)
    for words in (("flows", "cancel", flow), ("jobs", "delete", first)):
        monkeypatch.setattr("sys.stdin", io.StringIO())
        said = desk(*words)
        assert (said.code, "no terminal to ask on: give --yes" in said.err) == (130, True)
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    said = desk("flows", "cancel", flow)
    assert (said.code, "--yes" in said.err) == (130, False)
    assert not desk("flows", "show", flow, "--json").json["cancel_requested"]


def test_the_end_is_shown_where_callbacks_wait_for_it(desk: Desk) -> None:
    flow = Flow("told", on_ended=desk.pay.call(3))
    flow.add(desk.pay.call(1), name="first")
    run = desk.app.blocking.start(flow)
    rows = [line.split() for line in desk("flows", "show", run.id).out.splitlines()[-3:]]
    assert [row[:2] for row in rows] == [["0", "first"], ["1", "end"], ["2", "on_ended"]]
    assert rows[1][-2:] == ["all", "jobs"]
    assert rows[2][-3:] == ["end", "(any", "end)"]
    shown = desk("flows", "show", run.id, "--json").json
    assert desk("flows", "graph", run.id, "--json").json == shown


def test_a_flow_added_from_outside_leads_to_the_end(desk: Desk) -> None:
    flow, added = Flow("night", on_ended=desk.pay.call(3)), Flow("late")
    first = flow.add(desk.pay.call(1), name="first")
    second = added.add(desk.pay.call(2), name="second")
    run = desk.app.blocking.start(flow)
    desk.app.blocking.add(run, added)
    parts = desk("flows", "graph", run.id, "--json").json["parts"]
    end = next(part["number"] for part in parts if part["kind"] == "end")
    join = next(part["number"] for part in parts if part["added"] is not None)
    callback = next(part["number"] for part in parts if part["name"] == "on_ended")
    for kind, line in (("dot", "->"), ("mermaid", "-->")):
        drawn = desk("flows", "graph", run.id, "--format", kind).out
        assert f"p{join} {line} p{end}" in drawn
        assert f"p{join} {line} p{callback}" not in drawn
    listed = [one["id"] for one in desk("jobs", "list", "--flow", run.id, "--json").json]
    (waiting,) = {*listed} - {first.id, second.id}
    desk("jobs", "cancel", first.id, "--yes")
    (cause,) = desk("jobs", "explain", waiting, "--json").json["causes"]
    assert "1 of 1 job of second" in cause["sentence"]


# --- graphs ----------------------------------------------------------------------------------


@pytest.fixture
def graph() -> FlowGraph:
    asked = [
        NewPart(name="rows", task="row"),
        NewPart(name='say "<hi>"\n', after=(Edge(0),)),
        NewPart(name="audit", after=(Edge(0, strict=False),), when="failed"),
    ]
    callback = NewPart(name="on_ended", after=(Edge(0, strict=False),))
    parts = [
        PartRecord(
            number=number,
            name=part.name,
            kind=part.kind,
            task=part.task,
            when=part.when,
            after=part.after,
            total=0 if part.kind is PartKind.END else 3,
            blocked=0 if number == 0 else 3,
            open=0 if part.kind is PartKind.END else 3 - (number == 0),
            succeeded=0,
            failed=int(number == 0),
            cancelled=0,
            stopped=0,
            skipped=0,
        )
        for number, part in enumerate(complete(asked, [callback]))
    ]
    flow = FlowRecord(
        id=FlowId("0" * 32), number=1, name="f", state=FlowState.RUNNING, created_at=START
    )
    return FlowGraph(flow, parts)


def test_a_graph_is_drawn_as_text(graph: FlowGraph) -> None:
    lines = list(as_text(graph))
    assert lines[0].split() == ["rows", "failed:", "1", "of", "3", "ended,", "1", "failed"]
    assert lines[1].endswith("after rows")
    assert lines[2].endswith("after rows (any end), if it fails")
    assert lines[3].split() == ["end", "blocked"]


def test_a_graph_is_drawn_for_graphviz_and_mermaid(graph: FlowGraph) -> None:
    dot, mermaid = "\n".join(as_dot(graph)), "\n".join(as_mermaid(graph))
    assert "p0 -> p1;" in dot
    assert 'p0 -> p2 [style=dashed, label="on failure"];' in dot
    assert "p3 -> p4 [style=dashed];" in dot
    assert r'label="say \"<hi>\"\n\n0 of 3 ended"' in dot
    assert "p0 --> p1" in mermaid
    assert "p0 -. on failure .-> p2" in mermaid
    assert r"say #34;#60;hi#62;#34;\n" in mermaid
    assert "p3 -.-> p4" in mermaid  # the end, and the callback after it
