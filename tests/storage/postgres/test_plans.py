"""What every statement inside the functions costs: which index it walks, how many rows it meets.

The server explains each statement that a function runs, as it ran. Tables are small and analysed
in one world, where a planner left to itself reads them whole, and large in the other: what a
session has planned in the first must be right when it is in the second.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from tests.storage.postgres.explain import FILL, Session, met
from windlass._core.limits.breaker import Breaker
from windlass._core.limits.limit import LimitSpec
from windlass._storage.postgres import open_postgres
from windlass._storage.postgres.storage import PostgresStorage
from windlass.testing.conformance.steps import a_job, a_worker, limited

MANY = 3000


@pytest.fixture
async def store(postgres_schema: tuple[str, str]) -> AsyncIterator[PostgresStorage]:
    url, schema = postgres_schema
    storage = await open_postgres(url, schema=schema)
    await storage.workers.register(a_worker())
    await storage.limits.define(
        [
            LimitSpec(name="db", concurrency=2),
            LimitSpec(name="one", concurrency=1),
            LimitSpec(name="shop", breaker=Breaker(failures=3)),
        ]
    )
    yield storage
    await storage.close()


@pytest.fixture
async def session(
    store: PostgresStorage, postgres_schema: tuple[str, str]
) -> AsyncIterator[Session]:
    assert store.shared
    url, schema = postgres_schema
    connection = await asyncpg.connect(url)
    session = Session(connection)
    await session.begin(schema)
    # A few rows, and statistics that say so: the smaller the table, the better a scan looks.
    await session.fill("default", 5)
    await connection.execute("ANALYZE")
    yield session
    await connection.close()


async def everything(session: Session, check: Any) -> None:
    """Every operation of the jobs' half, each followed by ``check(what)``."""
    calls = {
        "is_claimable": ("SELECT is_claimable(NULL, $1)", ["default", "limited", "none"]),
        "outlook": ("SELECT * FROM outlook(NULL, $1)", ["default", "limited", "none"]),
        "is_active": ("SELECT is_active(NULL, $1)", ["none"]),
        "limit_states": ("SELECT * FROM limit_states($1)", "one"),
        "breaker_states": ("SELECT * FROM breaker_states($1)", ["one", "none"]),
    }
    await session.run(FILL, "default", None, None, None, 3)
    check("insert")
    await session.run(FILL, "limited", None, "db", None, 3)
    check("insert limited")
    rows = await session.claim(3)
    check("claim")
    await session.run("SELECT report_progress($1, $2, '{0.5}', '{half}')",
                      [rows[0]["seq"]], [rows[0]["number"]])  # fmt: skip
    check("report")
    await session.apply(rows, "succeed")
    check("succeed")
    rows = await session.claim(3)
    await session.run("SELECT * FROM apply_successes(NULL, true, $1, 1, 'w1', NULL)",
                      [row["seq"] for row in rows])  # fmt: skip
    check("succeed alike")
    rows = await session.claim(3)
    await session.run("SELECT * FROM delete_successes(NULL, true, $1, 1, 'w1')",
                      [row["seq"] for row in rows])  # fmt: skip
    check("succeed unkept")
    await session.apply(await session.claim(2), "retry", delay=1)
    check("retry")
    await session.apply(await session.claim(2), "fail")
    check("fail")
    rows = await session.claim(3, queue="limited")
    check("claim limited")
    await session.apply(rows, "release")
    check("release limited")
    await session.run("SELECT promote_due(NULL, true, 10)")
    check("promote")
    await session.fill("default", 2, expires=0)
    await session.run("SELECT expire_jobs(NULL, true, 10)")
    check("expire")
    known = await session.run("SELECT id FROM jobs ORDER BY seq DESC LIMIT 2")
    ids = [row["id"] for row in known]
    await session.run("SELECT cancel_jobs(NULL, true, $1)", ids)
    check("cancel")
    await session.run("SELECT * FROM settled_jobs($1)", ids)
    check("settled")
    await session.run("SELECT forget_gates(NULL, '', 10)")
    check("forget_gates")
    for what, (sql, value) in calls.items():
        await session.run(sql, value)
        check(what)


async def flow(session: Session, check: Any) -> None:
    """What holds for whole queues, breakers, keys that replace, and retention by queue."""
    await session.run("SELECT change_queue('counted', '{}', 2, NULL)")
    check("change")
    await session.fill("counted", 9)
    rows = await session.claim(3, queue="counted")
    check("claim counted")
    await session.run(
        "SELECT apply_transitions(NULL, true, $1, $2, '{throttle}', '{w1}',"
        " p_cools => ARRAY['{9}'])",
        [rows[0]["seq"]], [rows[0]["number"]],
    )  # fmt: skip
    check("throttle")
    await session.run("UPDATE queues SET cool_until = cool_until - interval '1 hour'")
    await session.apply(rows[1:], "succeed")
    check("forgive")
    await session.run("SELECT warm_queue('counted')")
    check("warm")
    await session.fill("broken", 3, limit="shop")
    rows = await session.claim(3, queue="broken")
    await session.apply(rows[:2], "fail")
    check("trip")
    await session.apply(rows[2:], "succeed")
    check("close")
    await session.run("SELECT set_gate(NULL, true, 'shop', 'shop:1', true)")
    check("reset")
    for _ in range(2):
        await session.run(
            "SELECT insert_jobs(NULL, NULL, true, ARRAY[gen_random_uuid()], '{keyed}', '{conform}',"
            " '{0}', NULL, NULL, '{5}', '{x}', p_keys => '{k}', p_windows => '{until_finished}',"
            " p_periods => '{NULL}', p_conflicts => '{replace}')"
        )
        check("replace")
    await session.run("SELECT prune(NULL, 2::smallint, 0, 2, '{other}', '{3600000000}')")
    check("prune")


async def test_no_statement_of_a_function_reads_a_whole_table(session: Session) -> None:
    found: dict[str, str] = {}

    def check(what: str) -> None:
        for node in session.nodes():
            if node["Node Type"] in {"Seq Scan", "Hash Join", "Merge Join"}:
                found[f"{what}: {node['Node Type']}"] = str(node.get("Relation Name"))

    await everything(session, check)
    await flow(session, check)
    assert found == {}


async def test_a_session_that_planned_on_empty_tables_stays_quick_on_full_ones(
    session: Session,
) -> None:
    found: dict[str, float] = {}

    def nothing(_: str) -> None:
        """The first time is for planning."""

    def check(what: str) -> None:
        for node in session.nodes():
            # Rows that a call was given, or made, are as many as it was given.
            if met(node) > 600 and node["Node Type"] not in {"Function Scan", "Aggregate"}:
                found[f"{what}: {node['Node Type']} {node.get('Index Name', '')}"] = met(node)

    await everything(session, nothing)
    await flow(session, nothing)
    await session.fill("default", MANY)
    await session.fill("default", MANY, delay=3_600_000_000)
    await session.fill("elsewhere", MANY, delay=1)  # due by now, and nobody asks there
    await session.fill("limited", MANY, limit="one")
    await session.fill("other", MANY)
    for _ in range(MANY // 1000):
        await session.apply(await session.claim(1000, queue="other"), "succeed")
    await everything(session, check)
    await flow(session, check)
    assert found == {}


async def test_a_claim_walks_the_index_of_the_ready_jobs_and_does_not_sort(
    session: Session,
) -> None:
    assert len(await session.claim(3)) == 3
    picked = list(session.nodes("j.key_window, coalesce("))
    assert [node["Node Type"] for node in picked] == [
        "Aggregate",
        "Subquery Scan",
        "Limit",
        "LockRows",
        "Index Scan",
    ]
    assert picked[-1]["Index Name"] == "jobs_ready"


async def test_a_finish_finds_its_jobs_by_number_not_among_all_that_run(session: Session) -> None:
    """The index of running jobs matches the fence and holds every dead entry: a trap."""
    rows = await session.claim(3)
    await session.run("SELECT * FROM apply_successes(NULL, true, $1, 1, 'w1', NULL)",
                      [row["seq"] for row in rows])  # fmt: skip
    used = {node["Index Name"] for node in session.nodes("UPDATE jobs") if "Index Name" in node}
    assert used == {"jobs_pkey"}


async def test_a_claim_takes_no_lock_of_limits_where_there_are_no_lanes(
    session: Session, store: PostgresStorage
) -> None:
    await session.claim(1)
    assert not list(session.nodes("lock_limits"))
    await store.jobs.insert([a_job(queue="mixed"), limited("db", queue="mixed")])
    await session.claim(1, queue="mixed")
    assert list(session.nodes("lock_limits"))


WRITE = """
SELECT put_schedules(NULL, true, array_agg('s' || i), array_agg($1::bigint),
           array_agg('body ' || $1), array_agg(now() + i * interval '1 hour'),
           array_agg(NULL::text), array_agg('{' || gen_random_uuid() || '}'), array_agg(1))
  FROM generate_series(-3, $2::integer) AS i
"""


async def test_schedules_are_found_by_their_index_however_many_there_are(
    session: Session,
) -> None:
    calls = (
        ("SELECT * FROM due_schedules(NULL, 10)", {"schedules_due", "switches_pkey"}),
        ("SELECT declare_schedules(NULL, '{s1}')", {"schedules_pkey"}),
    )
    await session.run(WRITE, 0, 3)
    for _ in range(2):
        for sql, indexes in calls:
            await session.run(sql)
            steps = [node for node in session.nodes() if "Relation Name" in node]
            found = {node["Node Type"] for node in steps}
            assert not found & {"Seq Scan", "Sort", "Bitmap Heap Scan"}
            assert {node["Index Name"] for node in steps if "Index Name" in node} == indexes
            assert max(met(node) for node in steps) < 6
        await session.run(WRITE, 0, MANY)


async def test_a_write_of_one_schedule_meets_no_other(session: Session) -> None:
    await session.run(WRITE, 0, MANY)
    sql = "SELECT put_schedules(NULL, true, '{s7}', '{1}', '{x}', '{NULL}', '{NULL}', $1, '{1}')"
    rows = await session.run(sql, ["{019a0000-0000-7000-8000-000000000000}"])
    assert rows[0][0] == ['{"what": "written", "known": []}']
    steps = [node for node in session.nodes() if "Relation Name" in node]
    used = {node["Index Name"] for node in steps if "Index Name" in node}
    assert used == {"schedules_pkey", "jobs_id", "limits_pkey"}
    assert "Seq Scan" not in {node["Node Type"] for node in steps}
    assert max(met(node) for node in steps) <= 1
