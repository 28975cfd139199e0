"""Operating a PostgreSQL store: what people ask costs the same however much is stored, and a store
of before is taken over as it is.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import asyncpg
import pytest

from tests.storage.postgres.explain import Session, met
from windlass._core.job.state import Shown, State
from windlass._core.job.unique import UniqueKey
from windlass._core.limits.limit import LimitSpec
from windlass._storage.postgres import open_postgres
from windlass._storage.postgres.storage import PostgresStorage
from windlass._storage.protocol.actions import ActionResult, Cancel, Delete, Edit, Requeue, RunNow
from windlass._storage.protocol.journal import EventRecord, LogChunk, LogLine
from windlass._storage.protocol.lists.job_list import Cursor, JobFilter
from windlass._storage.shared import migrations
from windlass.errors import StoreBusy
from windlass.testing.conformance.steps import (
    a_job,
    a_note,
    a_worker,
    add,
    claim,
    enlist,
    failed,
    ids,
    limited,
    look,
    obeyed,
    started,
    succeeded,
)

ENDED = """
INSERT INTO jobs (id, state, priority, due, created_at, finished_at, max_attempts, budget, queue,
                  task, worker, payload)
SELECT gen_random_uuid(), $2, 0, now(), now(), now() - i * interval '1 second', 5, 5, $1, 'conform',
       'w9', convert_to(repeat('x', 3000), 'UTF8')
  FROM generate_series(1, $3::integer) AS i
"""
FIND = """
SELECT seqs, next, reached
  FROM find_jobs(NULL, NULL, 10, ROW($1::smallint[], $2::text[], $3, NULL, NULL, NULL, NULL,
    $4, NULL, NULL, $5, NULL, NULL, NULL, NULL, NULL, NULL, NULL)::job_filter)
"""
MANY = 21_000


@pytest.fixture
async def store(postgres_schema: tuple[str, str]) -> AsyncIterator[PostgresStorage]:
    url, schema = postgres_schema
    storage = await open_postgres(url, schema=schema)
    await storage.workers.register(a_worker())
    await storage.limits.define([LimitSpec(name="one", concurrency=1)])
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
    await connection.execute("ANALYZE")
    yield session
    await connection.close()


# --- what it costs --------------------------------------------------------------------------------


def dearest(session: Session) -> float:
    """The most rows of a table that one step of the last call has met; nothing was read whole."""
    steps = [node for node in session.nodes() if "Relation Name" in node]
    assert {node["Relation Name"] for node in steps if node["Node Type"] == "Seq Scan"} == set()
    return max(map(met, steps), default=0)


async def filled(session: Session) -> None:
    """Many ended jobs, the few others older than all of them, and statistics of an empty table."""
    await session.fill("default", 30)
    await session.fill("limited", 30, limit="one")
    await session.fill("elsewhere", 1000, limit="one")
    await session.fill("default", 30, delay=3_600_000_000)
    await session.run(ENDED, "default", 3, 5)
    await session.apply(await session.claim(5), "retry", delay=3_600_000_000)
    await session.claim(3)
    await session.run("UPDATE jobs SET key = 'k', key_window = 'until_finished' WHERE seq = 1")
    await session.run("INSERT INTO keys (key, seq) VALUES ('k', 1)")
    await session.run(ENDED, "default", 2, MANY)


async def test_jobs_of_rare_states_are_found_however_old_they_are(session: Session) -> None:
    await session.run(FIND, None, None, None, None, None)  # planned while there is nothing
    await filled(session)
    for states, shown, queue, many in (
        ([3], None, None, 5),
        ([3], None, "default", 5),
        ([1], None, None, 3),
        ([0], None, "limited", 10),
        ([0, 1, 3], None, "default", 10),
        (None, ["retrying"], None, 5),
        (None, ["retrying"], "default", 5),
        (None, ["scheduled"], "default", 10),
        (None, ["ready"], "limited", 10),
        (None, ["failed", "running"], None, 8),
    ):
        ((found, _, reached),) = await session.run(FIND, states, shown, queue, None, None)
        assert (len(found), reached) == (many, None), (states, shown, queue)
        assert dearest(session) < 200


async def test_jobs_of_a_worker_and_holders_of_a_key_are_on_the_first_page(
    session: Session, store: PostgresStorage
) -> None:
    await filled(session)
    ((running, _, _),) = await session.run(FIND, [1], None, None, None, "w1")
    for wanted, many in ((JobFilter(worker="w1"), 5 + 3), (JobFilter(key="k"), 1)):
        page = await store.admin.find(wanted, limit=10)
        assert page.next is not None
        assert page.reached is not None
        if wanted.worker is not None:
            assert [job.seq for job in page] == running
        met_once = [job.seq for job in page] + await rest(store, wanted, page.next)
        assert len(met_once) == len(set(met_once)) == many


async def rest(store: PostgresStorage, wanted: JobFilter, before: Cursor | None) -> list[int]:
    """What the further pages bring."""
    found: list[int] = []
    while before is not None:
        page = await store.admin.find(
            JobFilter(worker=wanted.worker, key=wanted.key, before=before), limit=10
        )
        found += [job.seq for job in page]
        before = page.next
    return found


async def test_a_walk_ends_soon_where_many_match_and_at_a_bound_where_none_does(
    session: Session, store: PostgresStorage
) -> None:
    await filled(session)
    ((found, further, _),) = await session.run(FIND, None, None, None, None, None)
    assert (len(found), further) == (10, found[-1])
    assert dearest(session) <= 500
    ((found, further, reached),) = await session.run(FIND, None, None, "limited", None, None)
    assert found == []
    assert reached is not None
    assert dearest(session) <= 20_000
    page = await store.admin.find(JobFilter(queue="limited", before=further), limit=100)
    assert (len(page), page.next, page.reached) == (30, None, None)


async def test_a_page_reads_no_payload_of_a_job_that_does_not_match(session: Session) -> None:
    """Whole rows are not handed to a function: that would read what lies outside of them."""
    await session.run(ENDED, "default", 2, 100)
    await session.run(FIND, None, None, "other", None, None)
    walked = [node for node in session.nodes("is_wanted") if node.get("Relation Name") == "jobs"]
    assert walked
    assert all("is_wanted" not in node.get("Filter", "") for node in walked)


async def test_counts_with_a_cap_count_no_further_however_many_there_are(
    session: Session, store: PostgresStorage
) -> None:
    await session.run("SELECT * FROM count_up_to(NULL, 10)")
    await filled(session)
    await session.run("SELECT * FROM count_up_to(NULL, 10)")
    assert dearest(session) <= 500, "the heads of the lanes, for the one that waits for longest"
    (counts, _, lanes) = await store.admin.counts(cap=10)
    assert (counts.queue, counts.ready, counts.scheduled) == ("default", 10, 10)
    assert (counts.running, counts.succeeded, counts.failed, counts.retrying) == (3, 10, 5, 5)
    assert (lanes.queue, lanes.ready, lanes.cap) == ("limited", 10, 10)
    exact = await store.admin.counts()
    assert (exact[0].ready, exact[0].succeeded, exact[2].ready) == (22, MANY, 30)
    assert (exact[0].oldest_due, exact[2].oldest_due) == (counts.oldest_due, lanes.oldest_due)


async def test_errors_read_a_bounded_number_of_failed_jobs(
    session: Session, store: PostgresStorage
) -> None:
    await session.run("SELECT * FROM error_groups(NULL, NULL, NULL, 20)")
    await session.run(ENDED, "default", 3, 400)
    for queue in (None, "default"):
        await session.run("SELECT * FROM error_groups($1, NULL, NULL, 20)", queue)
        assert dearest(session) <= 21
    assert not (await store.admin.errors(look=20)).complete
    assert (await store.admin.errors(look=400)).complete


async def test_an_action_changes_the_named_jobs_and_no_others(session: Session) -> None:
    await session.fill("default", 1000)
    await session.fill("limited", 1000, limit="one")
    rows = await session.run("SELECT id FROM jobs WHERE seq % 100 = 7 ORDER BY seq")
    sql = "SELECT order_jobs(NULL, $1, $2, $3, 'x', NULL, 3, 'other')"
    orders = ("run_now", "edit", "cancel", "requeue", "discard", "delete")
    for number, order in enumerate(orders):
        note = f'{{"id":"{number}","who":"","what":"","subject":"","detail":""}}'
        asked = [row["id"] for row in rows]
        ((answers,),) = await session.run(sql, order, asked, note)
        assert set(answers) == {"wrong_state" if order == "discard" else "done"}, order
        assert dearest(session) <= 2 * len(rows)


async def test_records_and_events_are_found_by_their_indexes(
    session: Session, store: PostgresStorage
) -> None:
    (job,) = await add(store, a_job())
    at = await store.now()
    events = [EventRecord(at=at, kind="seen", job=job, task="t", queue="q") for _ in range(300)]
    assert await store.journal.append_events(events) == 300
    for number in range(300):
        await store.admin.pause("q", audit=a_note(subject=f"queue {number % 2}"))
    for sql in (
        "SELECT * FROM list_audits(5, 100, NULL)",
        "SELECT * FROM list_audits(5, 100, 'queue 1')",
        "SELECT * FROM read_events(now() - interval '1 day', now() + interval '1 day', 5, NULL)",
        "SELECT * FROM read_events(now() - interval '1 d', now() + interval '1 d', 5, NULL, true)",
        "SELECT prune_audits(NULL, 0, 5)",
        "SELECT prune_events(NULL, 0, 5)",
        "SELECT compact_rollups(NULL, 0, 5)",
        "SELECT sweep_traces(10)",
        "SELECT * FROM read_logs(gen_random_uuid(), 0, 0)",
    ):
        assert len(await session.run(sql)) in {0, 1, 5}, sql
        assert dearest(session) <= 6, sql


async def test_gauges_are_found_by_their_indexes(session: Session, store: PostgresStorage) -> None:
    put = "SELECT keep_gauges(now() - $1 * interval '1 minute', $2::text::jsonb)"
    for minute in range(400):
        await session.run(put, float(minute), '{"a": {"cpu": [1, 0.5, 0.5]}}')
    for sql in (
        "SELECT * FROM read_gauges(now() - interval '3 minutes', now(), NULL)",
        "SELECT * FROM read_gauges(now() - interval '3 minutes', now(), 'a')",
        "SELECT compact_gauges(NULL, 0, 3)",
        "SELECT prune_gauges(NULL, 0, 3)",
    ):
        await session.run(sql)
        assert dearest(session) <= 6, sql


async def test_an_older_worker_beats_and_reads_events_with_fewer_arguments(
    session: Session, store: PostgresStorage
) -> None:
    await enlist(store, "w1")
    ((live,),) = await session.run("SELECT live FROM beat(NULL, 'w1', 5)")
    assert live
    assert await session.run("SELECT * FROM read_events(now(), now(), 5, NULL)") == []


# --- what only a server with many connections can get wrong --------------------------------------


async def test_of_many_equal_actions_one_takes_effect(
    postgres_schema: tuple[str, str], store: PostgresStorage
) -> None:
    url, schema = postgres_schema
    others = [await open_postgres(url, schema=schema) for _ in range(4)]
    jobs = [await failed(store) for _ in range(5)]
    answers = await asyncio.gather(*(obeyed(other, Requeue(), *jobs) for other in others))
    for one in zip(*answers, strict=True):
        assert sorted(one) == [ActionResult.DONE] + 3 * [ActionResult.WRONG_STATE]
    for other in others:
        await other.close()


WAITING = """
SELECT count(*) FROM pg_stat_activity
 WHERE wait_event_type = 'Lock' AND query LIKE '%order_jobs%' AND datname = current_database()
"""


async def test_an_action_repeated_while_it_runs_gets_the_same_answer(
    postgres_schema: tuple[str, str], store: PostgresStorage
) -> None:
    url, schema = postgres_schema
    other = await open_postgres(url, schema=schema)
    line = await asyncpg.connect(url, server_settings={"search_path": schema})
    watcher = await asyncpg.connect(url)  # whoever is in a transaction sees what was
    (job,) = await add(store, a_job())
    note = a_note()
    async with line.transaction():
        await line.execute("SELECT 1 FROM jobs FOR UPDATE")
        both = (store, other)
        calls = [asyncio.create_task(obeyed(one, Cancel(), job, note=note)) for one in both]
        async with asyncio.timeout(2):  # less than an order waits for a row
            while await watcher.fetchval(WAITING) < len(both):
                pass  # nobody tells; asking takes its time
    assert await asyncio.gather(*calls) == 2 * [[ActionResult.DONE]]
    assert [record.count for record in await store.orders.audits(limit=5)] == [1]
    await watcher.close()
    await line.close()
    await other.close()


async def test_an_action_on_a_job_in_an_open_transaction_gives_up_and_changes_nothing(
    postgres_schema: tuple[str, str], store: PostgresStorage
) -> None:
    url, schema = postgres_schema
    jobs = await add(store, limited("one"), limited("one"))
    line = await asyncpg.connect(url, server_settings={"search_path": schema})
    async with line.transaction():
        await line.execute("SELECT 1 FROM jobs WHERE id = $1 FOR UPDATE", jobs[1])
        with pytest.raises(StoreBusy):
            await obeyed(store, Edit(priority=3), *jobs)
    assert [(await look(store, job)).priority for job in jobs] == [0, 0]
    assert await store.orders.audits(limit=5) == []
    await line.close()


async def test_records_of_deleted_jobs_are_removed(
    postgres_schema: tuple[str, str], store: PostgresStorage
) -> None:
    url, schema = postgres_schema
    running = await started(store)
    line = [LogLine(await store.now(), 20, "late")]
    await succeeded(store, running)
    await obeyed(store, Delete(), running.claim.job)
    stranger = await asyncpg.connect(url, server_settings={"search_path": schema})
    await stranger.execute("INSERT INTO logs VALUES ($1, 1, 1, '[]')", running.claim.seq)
    kept = await started(store)
    await store.journal.append_logs(
        [LogChunk(kept.claim, 1, line), LogChunk(running.claim, 2, line)]
    )
    await store.maintenance.tidy()
    assert [row["seq"] for row in await stranger.fetch("SELECT seq FROM logs")] == [kept.claim.seq]
    await stranger.close()


async def test_the_server_says_how_it_is_set_up_and_who_holds_it_back(
    postgres_schema: tuple[str, str], store: PostgresStorage
) -> None:
    url, _ = postgres_schema
    line = await asyncpg.connect(url)
    async with line.transaction(isolation="repeatable_read"):
        await line.execute("SELECT 1 FROM pg_class")
        facts = await store.health()
    await line.close()
    assert str(facts["oldest_snapshot_of"]).startswith("connection ")
    assert float(facts["oldest_snapshot"]) >= 0
    assert float(facts["size"]) > 100_000
    assert 0 < float(facts["connections"]) < float(facts["max_connections"])
    assert float(facts["connections_active"]) >= 1  # the one that asks
    assert float(facts["connections_idle"]) >= 0
    assert float(facts["connections_windlass"]) >= 1
    assert float(facts["database_size"]) >= float(facts["size"])
    assert (facts["statement_timeout"], facts["retry_for"]) == (60, 5)
    named = {"version", "durability", "synchronous_commit", "fsync", "autovacuum", "pooled"}
    assert named <= facts.keys()


# --- a store of before ----------------------------------------------------------------------------

BEFORE = """
CREATE FUNCTION beat(timestamptz, text) RETURNS integer LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION pause(text, boolean) RETURNS integer LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION change_queue(text, text, integer, text) RETURNS integer
LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION warm_queue(text) RETURNS integer LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION set_gate(timestamptz, boolean, text, text, boolean) RETURNS integer
LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION define_limits(boolean, text[], text[], bigint[], bigint[], bigint[], bigint[],
    bigint[] DEFAULT NULL, text[] DEFAULT NULL, timestamptz DEFAULT NULL) RETURNS integer
LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION write_schedules(timestamptz, boolean, text[], bigint[], text[], timestamptz[],
    text[], text[], integer[]) RETURNS integer LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION apply_transition(timestamptz, bigint, integer, text, text, bigint, boolean, bytea,
    text, text, text, integer, boolean, boolean, text, boolean, bigint[], boolean, boolean)
RETURNS integer LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION apply_transitions(timestamptz, boolean, bigint[], integer[], text[], text[],
    bytea[] DEFAULT NULL, boolean[] DEFAULT NULL, bigint[] DEFAULT NULL, boolean[] DEFAULT NULL,
    text[] DEFAULT NULL, text[] DEFAULT NULL, text[] DEFAULT NULL, integer[] DEFAULT NULL,
    boolean[] DEFAULT NULL, boolean[] DEFAULT NULL, text[] DEFAULT NULL, boolean DEFAULT false,
    text[] DEFAULT NULL, boolean[] DEFAULT NULL, text[] DEFAULT NULL, integer[] DEFAULT NULL)
RETURNS integer LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION leave_worker(timestamptz, boolean, text, bigint[], integer[], text[], text[],
    bytea[], boolean[], bigint[], boolean[], text[], text[], text[], integer[], boolean[],
    boolean[], text[], text[] DEFAULT NULL, boolean[] DEFAULT NULL, text[] DEFAULT NULL,
    integer[] DEFAULT NULL) RETURNS integer LANGUAGE sql AS 'SELECT 1';

INSERT INTO workers (id, host, pid, version, queues, slots, lease, lock_boot, lock_device,
                     lock_inode, started_at, beat_at)
VALUES ('w1', 'host', 1, '0', '{default}', 3, 30000000, '', 0, 0, now(), now());
INSERT INTO jobs (id, state, priority, due, created_at, started_at, finished_at, attempt,
                  claim_number, max_attempts, budget, queue, task, worker, error_kind,
                  error_message, error_traceback, payload)
VALUES ('00000000-0000-7000-8000-000000000001', 3, 0, now(), now(), now(), now(), 1, 1, 5, 5,
        'default', 'old', 'w1', 'ValueError', 'boom', 'Traceback ...', '{}');
INSERT INTO jobs (id, ready, priority, due, created_at, attempt, claim_number, max_attempts,
                  budget, queue, task, payload)
VALUES ('00000000-0000-7000-8000-000000000002', 0, 0, now() + interval '1 hour', now(), 2, 2, 5, 5,
        'default', 'old', '{}');
"""
SIGNATURES = """
SELECT proname FROM pg_proc WHERE pronamespace = $1::regnamespace
 GROUP BY proname HAVING count(*) > 1
"""


async def test_a_store_of_before_is_taken_over_with_its_errors_workers_and_functions(
    postgres_schema: tuple[str, str],
) -> None:
    url, schema = postgres_schema
    line = await asyncpg.connect(url)
    await line.execute(f'CREATE SCHEMA "{schema}"; SET search_path = "{schema}"')
    await line.execute(
        "CREATE TABLE schema_versions (version integer PRIMARY KEY, applied_at timestamptz)"
    )
    for migration in migrations.find_migrations("windlass._storage.postgres.migrations")[:9]:
        await line.execute(migration.sql)
        await line.execute("INSERT INTO schema_versions VALUES ($1)", migration.version)
    await line.execute(BEFORE)

    storage = await open_postgres(url, schema=schema)
    assert await line.fetch(SIGNATURES, schema) == []
    (worker,) = await storage.workers.workers()
    assert (worker.start.tasks, worker.start.clock, worker.memory) == ((), None, None)
    (group,) = (await storage.admin.errors()).groups
    assert (group.kind, group.frame, group.text) == ("ValueError", "", "boom")
    assert len(await storage.admin.find(JobFilter(frame="", error="ValueError"), limit=5)) == 1
    (retrying,) = await storage.admin.find(JobFilter(shown=[Shown.RETRYING]), limit=5)
    assert await obeyed(storage, RunNow(), retrying.id) == [ActionResult.DONE]
    assert ids(await claim(storage, 5)) == [retrying.id]
    # A worker of the release before says as much as it always did.
    assert await line.fetchval("SELECT live FROM beat(NULL, 'w1')")
    await line.execute("SELECT pause('default', true)")
    await line.execute("SELECT apply_transitions(NULL, true, '{2}', '{3}', '{fail}', '{w1}')")
    assert (await look(storage, retrying.id)).state is State.FAILED
    await storage.close()
    await line.close()


OLD_WRITE = "SELECT write_schedules(NULL, true, $1, $2, $3, $4, $5, $6, $7)"
OLD_INSERT = """
SELECT place, holder, replaced
  FROM insert_keyed_jobs('3s', NULL, true, $1, '{default}', '{t}', '{0}', '{NULL}', '{0}', '{5}',
                         ARRAY['[]'::bytea], NULL, '{1}', $2, '{until_finished}', '{NULL}', NULL,
                         NULL, NULL, NULL, NULL, NULL, NULL, NULL)
"""
OLD_ID = UUID("01a1e573338e75b18cda60f036c138d2")
OLD_RESTORE = "SELECT id FROM restore_jobs(NULL, $1)"
OLD_JOB = """[{
    "id": "01a1e573338e75b18cda60f036c138d2", "state": 2, "solo": false, "cancel_requested": false,
    "priority": 0, "due": "2030-01-01", "created_at": "2030-01-01", "finished_at": "2030-01-01",
    "attempt": 1, "max_attempts": 5, "budget": 5, "claim_number": 1, "lost": 0, "throttled": 0,
    "queue": "default", "task": "t", "payload": "[]"
}]"""


async def test_a_process_of_the_release_before_gets_the_answers_that_it_knows(
    postgres_schema: tuple[str, str],
) -> None:
    url, schema = postgres_schema
    storage = await open_postgres(url, schema=schema)
    line = await asyncpg.connect(url)
    await line.execute(f'SET search_path = "{schema}"')

    async def write(revision: int, jobs: str | None) -> list[str]:
        body = f"body {revision}"
        args = (["s"], [revision], [body], [None], [jobs], [None], [None])
        return list(await line.fetchval(OLD_WRITE, *args))

    assert await write(0, None) == ["written"]
    assert await write(5, None) == ["stale"]
    for key in ("a", "b"):
        # Each is late at once, and gives way to the next one without a word.
        for _ in range(2):
            assert await line.fetch(OLD_INSERT, [uuid4()], [key]) == []
    held = [{"id": str(uuid4()), "task": "t", "queue": "default", "payload": "", "key": "held"}]
    await storage.jobs.insert([a_job(unique=UniqueKey("held"))])
    assert await write(1, json.dumps(held)) == ["stale"]
    assert await line.fetchval(OLD_RESTORE, OLD_JOB) == OLD_ID
    assert await line.fetchval("SELECT expire_waiting(NULL, true, 10)") == 2
    assert await line.fetchval("SELECT expire_waiting(NULL, true, 10)") == 0
    # One that does not say what it knows gets nothing from a later major version than the first.
    with pytest.raises(asyncpg.PostgresError, match="newer than the caller knows"):
        await line.fetch("SELECT * FROM claim_jobs(NULL, 'w1', '{default}', '{1}', 1, false)")
    await line.close()
    await storage.close()
