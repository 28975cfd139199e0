"""What the doctor says about running flows, on every backend."""

from __future__ import annotations

from datetime import timedelta

from msgspec.structs import replace

from windlass._admin.doctor.finding import Finding
from windlass._admin.doctor.flow_checks import check_flows
from windlass._admin.doctor.work_checks import LiveWorkers
from windlass._storage.memory import MemoryDatabase, MemoryStorage
from windlass._storage.protocol.storage import Storage
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.flows.steps import Plan, start

NO_WORKER = LiveWorkers([], [])


async def found_in(
    storage: Storage, *tasks: str, later: timedelta = timedelta(0)
) -> dict[str, Finding]:
    found = await check_flows(storage, NO_WORKER, tasks, await storage.now() + later)
    return {one.name: one for one in found}


def a_chain() -> Plan:
    plan = Plan(name="import")
    plan.part("a")
    plan.part("b", after=["a"])
    return plan


async def test_flows_in_order_are_one_line(storage: Storage) -> None:
    assert await found_in(storage) == {}
    await start(storage, a_chain())
    (finding,) = (await found_in(storage, "a", "b")).values()
    assert finding == Finding("flows", "ok", "1 flow running, 1 counted again.")


async def test_flows_that_run_for_long_or_have_unknown_tasks_are_named(storage: Storage) -> None:
    plan = a_chain()
    await start(storage, plan)
    found = await found_in(storage, "a", later=timedelta(days=2))
    assert set(found) == {"flow_age", "flow_task"}
    assert "the oldest: 'import', for 2 d" in found["flow_age"].text
    assert f"windlass flows explain {plan.id}" in found["flow_age"].fix
    assert "waits for jobs of task 'b', which no live worker has" in found["flow_task"].text


async def test_a_flow_whose_next_jobs_do_not_come_is_named(storage: Storage) -> None:
    plan = Plan(name="import", sealed=True)
    plan.part("a")
    await start(storage, plan)
    assert set(await found_in(storage, "a", later=timedelta(minutes=4))) == {"flows"}
    found = await found_in(storage, "a", later=timedelta(minutes=6))
    assert set(found) == {"flow_sealed"}
    assert f"the oldest: 'import' ({plan.id})" in found["flow_sealed"].text
    assert f"`windlass flows cancel {plan.id}`" in found["flow_sealed"].fix


async def test_wrong_counts_and_jobs_that_are_not_placed_are_named(
    storage: Storage, clock: VirtualClock
) -> None:
    plan, other = a_chain(), MemoryStorage(MemoryDatabase(clock))
    await start(other, plan)
    graph = await other.flows.graph(plan.id)
    assert graph is not None
    ended = replace(graph.parts[0], open=0, succeeded=1)
    # A flow whose jobs are gone: no write of this code leaves one behind.
    await storage.moving.restore([replace(graph, parts=[ended, *graph.parts[1:]])])
    found = await found_in(storage, "a", "b")
    assert set(found) == {"flow_counts", "flow_stuck"}
    assert f"flow {plan.id}, a: succeeded is 1, and 0 jobs are" in found["flow_counts"].text
    assert "windlass flows recount --repair" in found["flow_counts"].fix
    assert f"'import' ({plan.id})" in found["flow_stuck"].text
    assert "windlass worker MODULE:APP" in found["flow_stuck"].fix
