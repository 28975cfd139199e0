"""What only the SQLite backend promises of operating: what looks cost, and that old files open."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

from windlass._core.job.job import AttemptError, JobId
from windlass._core.job.outcome import GaveUp, Raised
from windlass._core.job.state import Shown, State, Verb
from windlass._core.job.transition import Transition
from windlass._core.limits.limit import LimitSpec
from windlass._core.values.instants import to_us
from windlass._storage.protocol.actions import Delete, Requeue
from windlass._storage.protocol.journal import LogChunk, LogLine
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._storage.protocol.storage import Storage
from windlass._storage.shared import migrations as migrate
from windlass._storage.sqlite import SqliteStorage, open_sqlite
from windlass._storage.sqlite.io import guards
from windlass._storage.sqlite.io.connection import MemorySource
from windlass._storage.sqlite.io.writer import Writer
from windlass._storage.sqlite.storage import open_in_memory
from windlass.errors import StorageReplaced
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    HOUR,
    OOPS,
    a_job,
    a_note,
    add,
    claim,
    ended,
    enlist,
    every,
    failed,
    happened,
    keyed,
    limited,
    obeyed,
    started,
    succeeded,
)

THEN = to_us(datetime(2029, 12, 31, tzinfo=UTC))


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def storage(tmp_path: Path, clock: VirtualClock) -> AsyncIterator[SqliteStorage]:
    storage = await open_sqlite(tmp_path / "jobs.db", clock=clock)
    await enlist(storage)
    yield storage
    await storage.close()


async def run(storage: SqliteStorage, sql: str, *values: object) -> list[Any]:
    return await storage._db.write(lambda connection, _: connection.execute(sql, values).fetchall())


MANY = """
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
INSERT INTO jobs (id, state, ready, queue, task, priority, due, max_attempts, budget, created_at,
                  finished_at, error_kind, error_message, payload)
SELECT randomblob(16), ?2, iif(?2 = 0, 1, NULL), ?3, 'bulk', i % 3, ?4 + i, 1, 1, ?4 + i,
       iif(?2 < 2, NULL, ?4 + i), iif(?2 = 3, 'Bulk' || (i % 7), NULL), 'no', zeroblob(?5)
  FROM n
"""


async def many(
    storage: SqliteStorage, count: int, *, state: int = 2, queue: str = "bulk", size: int = 2
) -> None:
    """So many jobs of one kind, written at once."""
    await run(storage, MANY, count, state, queue, THEN, size)


async def steps_of(storage: SqliteStorage, op: Callable[[], Any]) -> int:
    """How many steps SQLite takes for a look, in tens."""
    steps = 0

    def count() -> bool:
        nonlocal steps
        steps += 1
        return False

    storage._db.read(lambda connection, _: connection.set_progress_handler(count, 10))
    await op()
    storage._db.read(lambda connection, _: connection.set_progress_handler(None))
    return steps


async def pages_read(storage: SqliteStorage, op: Callable[[], Any]) -> int:
    """How many pages a look brings into an empty cache."""

    def misses(connection: apsw.Connection, _: int) -> int:
        connection.release_memory()
        return connection.status(apsw.SQLITE_DBSTATUS_CACHE_MISS, reset=True)[0]

    storage._db.read(misses)
    await op()
    return storage._db.read(misses)


IO = Path("/proc/self/io")


def bytes_read() -> int:
    """By this process, so far. SQLite reads large values past its own cache."""
    return int(IO.read_text(encoding="ascii").split()[1])


# --- finding ----------------------------------------------------------------------------------


async def test_who_looks_is_not_shown_a_file_that_has_gone_and_sees_it_when_it_is_back(
    storage: SqliteStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = 0.0
    monkeypatch.setattr(guards, "monotonic", lambda: seconds)
    await add(storage, a_job())
    path, away = tmp_path / "jobs.db", tmp_path / "away.db"
    assert len(await storage.workers.workers()) == 1
    path.rename(away)
    path.write_bytes(away.read_bytes())  # a copy: what is done from now on is not in it
    seconds = 1.5
    for _ in range(2):
        with pytest.raises(StorageReplaced, match="deleted or replaced"):
            await storage.workers.workers()
    away.rename(path)
    assert len(await storage.workers.workers()) == 1


async def test_a_look_gives_up_after_so_many_rows_and_the_next_goes_on(
    storage: SqliteStorage,
) -> None:
    old = await add(storage, *[a_job(task="rare") for _ in range(3)])
    await many(storage, 20_001)
    wanted = JobFilter(task="rare")
    page = await storage.admin.find(wanted, limit=5)
    assert len(page) == 0
    assert page.next is not None
    assert page.reached == datetime(2029, 12, 31, microsecond=2, tzinfo=UTC)
    page = await storage.admin.find(JobFilter(task="rare", before=page.next), limit=5)
    assert [job.id for job in page] == old[::-1]
    assert (page.next, page.reached) == (None, None)


async def test_jobs_of_rare_states_are_found_at_once_however_old(
    storage: SqliteStorage, clock: VirtualClock
) -> None:
    await storage.limits.define([LimitSpec(name="one", concurrency=1)])
    dead = await failed(storage)
    running = (await started(storage)).claim.job
    await add(storage, a_job(queue="odd"))
    (back,) = await claim(storage, queue="odd")
    await happened(storage, back, Raised(OOPS))
    later, ready, laned = await add(
        storage, a_job(queue="odd", delay=HOUR), a_job(queue="odd"), limited("one", queue="odd")
    )
    await many(storage, 20_001)
    await many(storage, 10_001, state=0)
    looks: dict[JobId, JobFilter] = {
        dead: JobFilter(states=[State.FAILED]),
        running: JobFilter(states=[State.RUNNING]),
        later: JobFilter(shown=[Shown.SCHEDULED]),
        back.claim.job: JobFilter(shown=[Shown.RETRYING]),
    }
    for job, wanted in looks.items():
        page = await storage.admin.find(wanted, limit=5)
        assert [found.id for found in page] == [job]
        assert page.next is None
    waiting = JobFilter(states=[State.WAITING], queue="odd")
    assert len(await storage.admin.find(waiting, limit=9)) == 4
    mixed = JobFilter(shown=[Shown.READY, Shown.RETRYING], queue="odd")
    assert {job.id for job in await storage.admin.find(mixed, limit=9)} == {
        back.claim.job,
        ready,
        laned,
    }
    window = JobFilter(finished_from=clock.now() - HOUR)
    assert [job.id for job in await storage.admin.find(window, limit=9)] == [dead]


async def test_looking_for_a_rare_state_is_as_cheap_among_many_jobs(
    storage: SqliteStorage,
) -> None:
    await failed(storage)

    async def look() -> None:
        await storage.admin.find(JobFilter(states=[State.FAILED]), limit=5)

    await many(storage, 10)
    few = await steps_of(storage, look)
    await many(storage, 20_000)
    assert await steps_of(storage, look) <= few + 1


@pytest.mark.skipif(not IO.exists(), reason="the kernel says how much is read")
async def test_large_payloads_are_read_only_of_what_matches(storage: SqliteStorage) -> None:
    await many(storage, 300, size=100_000)
    await storage.maintenance.tidy()
    writer = storage._db._writer
    assert isinstance(writer, Writer)
    checkpoints = writer.transactor.source.checkpoints
    assert checkpoints is not None
    checkpoints.close()  # its thread reads pages, too
    before = bytes_read()
    assert len(await storage.admin.find(JobFilter(task="rare"), limit=5)) == 0
    assert bytes_read() - before < 3_000_000, "of thirty"


async def test_a_search_for_text_reads_so_many_rows_and_so_many_bytes(
    storage: SqliteStorage,
) -> None:
    (old,) = await add(storage, a_job(payload=b'["needle"]'))
    await many(storage, 2_000)
    assert len(await storage.admin.find(JobFilter(text="NEEDLE"), limit=5)) == 0
    assert await every(storage, JobFilter(text="NEEDLE")) == [old]
    await run(storage, "DELETE FROM jobs WHERE task = 'bulk'")
    await many(storage, 40, size=1_000_000)
    page = await storage.admin.find(JobFilter(text="needle"), limit=5)
    assert len(page) == 0
    assert page.reached is not None
    assert await every(storage, JobFilter(text="needle")) == [old]


async def test_the_holder_of_a_key_comes_first_and_once(
    storage: SqliteStorage, clock: VirtualClock
) -> None:
    holder = await failed(storage, keyed("k"))
    newer = [await failed(storage, keyed("k")) for _ in range(2)]
    note = a_note()
    await storage.orders.order(Requeue(), [holder], note)
    await many(storage, 20_001)
    first = await storage.admin.find(JobFilter(key="k"), limit=1)
    assert [job.id for job in first] == [holder]
    for limit in (1, 2, 5):
        found = await every(storage, JobFilter(key="k"), limit=limit)
        assert sorted(found) == sorted([holder, *newer])


async def test_a_row_with_broken_tags_stops_no_search(storage: SqliteStorage) -> None:
    (good, bad) = await add(storage, a_job(tags=("a",)), a_job(tags=("a",)))
    await run(storage, "UPDATE jobs SET tags = '[\"a' WHERE id = unhex(?1)", bad)
    assert await every(storage, JobFilter(tag="a")) == [good]


# --- counting ---------------------------------------------------------------------------------


async def test_capped_counts_are_as_cheap_among_many_jobs(storage: SqliteStorage) -> None:
    async def look() -> None:
        await storage.admin.counts(cap=10)

    for state in (0, 2, 3):
        await many(storage, 20, state=state)
    few = await steps_of(storage, look)
    for state in (0, 2, 3):
        await many(storage, 5_000, state=state)
    assert await steps_of(storage, look) <= few + 1
    (capped,) = await storage.admin.counts(cap=10)
    assert (capped.ready, capped.succeeded, capped.failed, capped.cap) == (10, 10, 10, 10)
    (exact,) = await storage.admin.counts()
    assert (exact.ready, exact.succeeded, exact.failed, exact.cap) == (5_020, 5_020, 5_020, None)


async def test_the_oldest_is_found_wherever_it_stands(
    storage: SqliteStorage, clock: VirtualClock
) -> None:
    await storage.limits.define([LimitSpec(name="one", concurrency=1)])

    async def oldest() -> datetime | None:
        (counts,) = await storage.admin.counts(cap=2)
        return counts.oldest_due

    now = clock.now()
    assert await storage.admin.counts() == []
    await add(storage, a_job(delay=HOUR))
    assert await oldest() is None
    await add(storage, a_job(priority=-5), *[a_job(priority=p, at=now - HOUR) for p in (7, 9)])
    assert await oldest() == now - HOUR
    await add(storage, limited("one", priority=-7), limited("one", at=now - 2 * HOUR))
    assert await oldest() == now - 2 * HOUR
    suspect = await started(storage, a_job(priority=-9, at=now - 3 * HOUR))
    alone = Transition(Verb.RETRY, suspect.claim, "w1", error=OOPS, lost=2, solo=True)
    await ended(storage, alone)
    await run(storage, "UPDATE jobs SET due = ?1 WHERE ready = 3", to_us(now - 4 * HOUR))
    assert await oldest() == now - 4 * HOUR
    clock.advance(2 * HOUR)
    (counts,) = await storage.admin.counts()
    assert (counts.ready, counts.scheduled, counts.retrying) == (7, 0, 1)


# --- errors -----------------------------------------------------------------------------------


async def test_errors_are_grouped_without_a_look_at_a_row(storage: SqliteStorage) -> None:
    await many(storage, 2_000, state=3, size=5_000)

    async def look() -> None:
        found = await storage.admin.errors()
        assert [group.count for group in found.groups] == [286] * 5 + [285] * 2
        assert found.complete

    assert await pages_read(storage, look) < 100


# --- what is written down ---------------------------------------------------------------------


async def test_deleting_jobs_asks_the_journal_only_where_there_is_one(
    storage: SqliteStorage, clock: VirtualClock
) -> None:
    seen: list[str] = []

    def trace(_: apsw.Cursor, sql: str, __: object) -> bool:
        seen.append(sql)
        return True

    def watch(connection: apsw.Connection, _: int) -> None:
        connection.exec_trace = trace

    await storage._db.write(watch)
    await obeyed(storage, Delete(), await failed(storage))
    assert not [sql for sql in seen if "DELETE FROM logs" in sql or "DELETE FROM events" in sql]
    job = await started(storage)
    line = LogLine(clock.now(), 20, "half way")
    await storage.journal.append_logs([LogChunk(job.claim, 1, [line])])
    await succeeded(storage, job)
    await obeyed(storage, Delete(), job.claim.job)
    assert [sql for sql in seen if "DELETE FROM logs" in sql]
    assert not [sql for sql in seen if "DELETE FROM events" in sql]
    assert await run(storage, "SELECT * FROM logs") == []


# --- rollups ----------------------------------------------------------------------------------


async def test_hours_are_merged_in_bites_and_those_that_are_cost_nothing(
    storage: SqliteStorage, clock: VirtualClock
) -> None:
    for worker in ("w1", "w2"):
        await enlist(storage, worker)
    for _ in range(6):
        for worker in ("w1", "w2"):
            await succeeded(storage, await started(storage, worker=worker))
        clock.advance(timedelta(minutes=10))
    since, until = clock.now() - HOUR, clock.now() + HOUR
    before = await storage.admin.rollups(since, until)
    compact = storage.maintenance.compact_rollups
    assert await compact(older_than=HOUR, limit=100) == 0
    clock.advance(2 * HOUR)
    saved = [await compact(older_than=HOUR, limit=5) for _ in range(4)]
    assert saved == [4, 5, 2, 0]
    (after,) = await storage.admin.rollups(since, until)
    assert after.minute == before[0].minute
    assert (
        after.counts
        == {"succeed": sum(rollup.counts["succeed"] for rollup in before)}
        == {"succeed": 12}
    )
    assert await run(storage, "SELECT count(*) FROM rollups") == [(1,)]


# --- health -----------------------------------------------------------------------------------


async def test_a_file_says_how_it_is(storage: SqliteStorage, tmp_path: Path) -> None:
    await many(storage, 100, size=10_000)
    said = await storage.health()
    files = [tmp_path / "jobs.db", tmp_path / "jobs.db-wal"]
    assert said["size"] == sum(file.stat().st_size for file in files)
    assert said["wal"] == files[1].stat().st_size > 1_000_000
    assert (said["durability"], said["network_filesystem"]) == ("full", "no")
    assert {"version", "filesystem", "free_disk"} <= said.keys()


async def test_a_file_says_how_it_is_set_up(storage: SqliteStorage) -> None:  # DBH-4
    said = await storage.health()
    assert (said["journal_mode"], said["synchronous"]) == ("wal", "full")
    assert (said["busy_timeout"], said["pool"]) == (30, "1 writer, 2 readers")


async def test_a_database_in_memory_says_how_large_it_is() -> None:
    storage = await open_in_memory(MemorySource())
    said = await storage.health()
    assert {"version", "size"} <= said.keys()
    assert isinstance(said["size"], int)
    assert said["size"] > 0
    await storage.close()


# --- files of an earlier schema ---------------------------------------------------------------


async def test_a_file_of_the_third_schema_is_migrated_with_its_jobs(tmp_path: Path) -> None:
    file = tmp_path / "jobs.db"
    connection = apsw.Connection(str(file))
    connection.pragma("journal_mode", "wal")
    migrations = migrate.find_migrations("windlass._storage.sqlite.migrations")[:3]
    migrate.apply_sqlite(connection, migrations, datetime(2029, 12, 31, tzinfo=UTC))
    connection.execute(MANY, (1, 3, "old", THEN, 2))
    connection.execute(MANY, (1, 0, "old", THEN, 2))
    connection.execute(
        "INSERT INTO workers (id, host, pid, version, queues, slots, lease, beat_boot,"
        " beat_since_boot, lock_boot, lock_device, lock_inode, started_at, beat_at)"
        " VALUES ('w0', 'h', 1, '0', '[]', 1, 1, '', 0, '', 0, 0, 0, 0)"
    )
    connection.close()

    storage: Storage = await open_sqlite(file, clock=VirtualClock())
    (worker,) = await storage.workers.workers()
    assert (worker.start.tasks, worker.start.clock, worker.memory) == ((), None, None)
    (group,) = (await storage.admin.errors()).groups
    assert (group.kind, group.frame, group.count, group.text) == ("Bulk1", "", 1, "no")
    (dead,) = await storage.admin.find(JobFilter(error="Bulk1", frame=""), limit=5)
    assert dead.id == group.job
    assert await obeyed(storage, Requeue(), dead.id) == ["done"]
    await enlist(storage)
    jobs = await claim(storage, 5, queue="old")
    assert len(jobs) == 2
    raised = AttemptError("ValueError", "no", 'File "jobs/mail.py", line 1, in send\n')
    await happened(storage, jobs[0], GaveUp(raised))
    (group,) = (await storage.admin.errors()).groups
    assert (group.kind, group.frame) == ("ValueError", "jobs/mail.py send")
    await storage.close()
