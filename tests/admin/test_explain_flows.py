"""``app.admin.flows.explain``, on every backend."""

from __future__ import annotations

from typing import Any

import pytest

from tests.admin.fixtures import admin_of
from windlass._admin.explain import flows as explain_flows
from windlass._core.job.job import JobId
from windlass._storage.protocol.storage import Storage
from windlass.admin import Cause
from windlass.testing.conformance.flows.steps import Plan, act, run, run_all, settle, start
from windlass.testing.conformance.steps import a_note, claim


async def causes(storage: Storage, plan: Plan) -> list[Cause]:
    return list((await admin_of(storage).flows.explain(plan.id)).causes)


async def cancel(storage: Storage, job: JobId) -> None:
    await admin_of(storage).jobs.cancel(job)
    await settle(storage)


def in_small_pages(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each page of members have two jobs."""
    members = storage.flows.members

    async def small(*given: Any, **keywords: Any) -> Any:
        return await members(*given, **{**keywords, "limit": 2})

    monkeypatch.setattr(storage.flows, "members", small)


async def test_a_failed_job_is_found_on_a_late_page(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan()
    jobs = plan.part("rows", 20)
    plan.part("late", after=["rows"])
    await start(storage, plan)
    last = jobs[-1].id
    for job in jobs[:-1]:
        await cancel(storage, job.id)
    await run_all(storage, "rows")
    in_small_pages(storage, monkeypatch)
    (cause,) = await causes(storage, plan)
    assert cause.evidence["job"] == last
    assert f"Job {last}: It failed for good" in cause.sentence
    monkeypatch.setattr(explain_flows, "_PAGES", 3)
    (cause,) = await causes(storage, plan)
    assert cause.evidence["job"] == jobs[0].id  # no further than that, and then a cancelled one


async def test_a_cancelled_job_is_named_and_not_those_that_it_stopped(storage: Storage) -> None:
    plan = Plan()
    (first,) = plan.part("a")
    plan.part("b", after=["a"])
    await start(storage, plan)
    await cancel(storage, first.id)
    (cause,) = await causes(storage, plan)
    assert (cause.evidence["job"], cause.evidence["cause"]) == (first.id, "cancelled")
    assert cause.fix == f"`windlass flows retry {plan.id}`"


async def test_a_blocked_job_is_followed_to_the_root_of_a_long_chain(storage: Storage) -> None:
    plan = Plan()
    (root,) = plan.part("0")
    for number in range(1, 12):
        plan.part(str(number), after=[str(number - 1)])
    await start(storage, plan)
    (last,) = plan.jobs["11"]
    cause = (await admin_of(storage).jobs.explain(last.id)).causes[0]
    assert cause.evidence["job"] == root.id
    assert cause.evidence["parts"] == [str(number) for number in range(10, -1, -1)]


async def test_a_running_flow_is_explained_by_what_it_waits_for_first(storage: Storage) -> None:
    plan = Plan()
    plan.part("bad")
    plan.part("slow")
    await start(storage, plan)
    await run(storage, "bad", limit=1)
    await claim(storage, 1)
    told = await causes(storage, plan)
    assert [(cause.code, cause.evidence["name"]) for cause in told] == [
        ("part_open", "slow"),
        ("part_failed", "bad"),
    ]
    (bad,) = plan.jobs["bad"]
    assert told[1].fix == f"`windlass jobs requeue {bad.id}`"


async def test_a_flow_that_was_never_complete_is_to_be_started_again(storage: Storage) -> None:
    plan = Plan(sealed=True)
    plan.part("rows", 2)
    await start(storage, plan)
    (cause,) = await causes(storage, plan)
    assert cause.code == "flow_sealed"
    assert f"`windlass flows cancel {plan.id}`" in cause.fix
    await storage.flows.act([plan.id], "cancel", a_note(what="flows.cancel"))
    assert "flow_sealed" not in [cause.code for cause in await causes(storage, plan)]
    await settle(storage)
    told = await causes(storage, plan)
    assert told[0].code == "flow_cancelled"
    assert "it cannot be retried" in told[0].sentence
    assert [cause.fix for cause in told if "retry" in cause.fix] == []
    assert "start it again" in told[0].fix
    assert await act(storage, plan, "retry") == "wrong_state"
