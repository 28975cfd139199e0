"""What only the SQLite backend promises: its file, its schema, what its operations cost."""

from __future__ import annotations

import asyncio
import signal
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

import apsw
import msgspec
import pytest

from windlass._core.job import transition
from windlass._core.job.job import AttemptError, ClaimedJob, JobId, LimitUse, NewJob
from windlass._core.job.state import State, Verb
from windlass._core.job.unique import OnConflict, UniqueKey
from windlass._core.limits.breaker import Breaker
from windlass._core.limits.limit import LimitSpec, Rate
from windlass._core.stats.rollup import bucket_of
from windlass._core.values.instants import from_us, to_us
from windlass._storage.protocol.jobs import Want
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._storage.shared import migrations as migrate
from windlass._storage.sqlite import SqliteStorage, open_sqlite
from windlass._storage.sqlite.io import checkpoints
from windlass._storage.sqlite.jobs.apply import apply, histogram
from windlass._storage.sqlite.jobs.claim import ClaimOperation
from windlass._storage.sqlite.jobs.claimed_jobs import claimed_jobs
from windlass._storage.sqlite.jobs.insert import insert
from windlass._storage.sqlite.limits.budgets import SqliteBudgets
from windlass.errors import ConfigError, InvalidArgument, StorageError
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    a_job,
    a_worker,
    add,
    at_most,
    claim_one,
    enlist,
    keyed,
    limited,
    requeue,
    seeded,
)

SECOND = timedelta(seconds=1)
NOW = to_us(datetime(2030, 1, 1, tzinfo=UTC))
REPLACING = (OnConflict.REPLACE, OnConflict.REPLACE_ARGUMENTS, OnConflict.REPLACE_DUE)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
async def storage(file: Path) -> AsyncIterator[SqliteStorage]:
    storage = await open_sqlite(file)
    yield storage
    await storage.close()


@pytest.fixture
def connection() -> Iterator[apsw.Connection]:
    """A bare database with a live worker ``w1``: operations are functions of a connection."""
    connection = apsw.Connection(":memory:")
    migrations = migrate.find_migrations("windlass._storage.sqlite.migrations")
    migrate.apply_sqlite(connection, migrations, from_us(NOW))
    connection.execute(
        "INSERT INTO workers (id, host, pid, version, queues, slots, lease, beat_boot,"
        " beat_since_boot, lock_boot, lock_device, lock_inode, started_at, beat_at)"
        " VALUES ('w1', '', 0, '', '[]', 1, 1, '', 0, '', 0, 0, 0, 0)"
    )
    yield connection
    connection.close()


def look(file: Path, sql: str) -> list[Any]:
    """What another process sees."""
    connection = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


class OwnSchema:
    """Of whatever version, it is known."""

    last_known = 10**6

    def refuse_newer(self, connection: apsw.Connection) -> NoReturn:
        raise AssertionError(connection)


def take(connection: apsw.Connection, limit: int, now: int = NOW) -> ClaimOperation:
    wants = [Want("default", limit)]
    return ClaimOperation(OwnSchema(), "w1", wants, total=limit).run(connection, now)


def define(connection: apsw.Connection, *specs: LimitSpec) -> None:
    for spec in specs:
        text = msgspec.json.encode(spec).decode()
        connection.execute("INSERT INTO limits VALUES (?, ?)", (spec.name, text))


# --- the file ---------------------------------------------------------------------------------


async def test_the_files_are_private(file: Path, storage: SqliteStorage) -> None:
    storage.hold_worker_lock("w1")
    modes = {
        path.relative_to(file.parent).as_posix(): stat.S_IMODE(path.stat().st_mode)
        for path in file.parent.rglob("*")
    }
    assert modes == {
        "jobs.db": 0o600,
        "jobs.db-wal": 0o600,
        "jobs.db-shm": 0o600,
        "jobs.db-lock": 0o600,
        "jobs.db-workers": 0o700,
        "jobs.db-workers/w1": 0o600,
    }


async def test_a_reopened_file_has_its_jobs_lanes_and_budgets(file: Path) -> None:
    first = await open_sqlite(file)
    await at_most(first, api=1)
    plain, running, parked = await add(first, a_job(), limited("api"), limited("api"))
    await first.jobs.claim("w1", [Want("default", 10)], total=2)
    await first.close()

    second = await open_sqlite(file)
    assert [job and job.state for job in await second.admin.get([plain, running, parked])] == [
        State.RUNNING,
        State.RUNNING,
        State.WAITING,
    ]
    assert not (await second.jobs.claim("w1", [Want("default", 10)], total=9)).jobs
    (held,) = [c for c in (await second.workers.beat("w1")).holding if c.job == running]
    await second.jobs.apply([transition.Transition(Verb.SUCCEED, held, "w1")])
    assert (await claim_one(second)).claim.job == parked
    await second.close()


async def test_full_is_the_default_and_normal_can_be_had(file: Path) -> None:
    for durability, synchronous in ((None, 2), ("normal", 1)):
        given: dict[str, Any] = {} if durability is None else {"durability": durability}
        storage = await open_sqlite(file, **given)
        assert await storage._db.write(lambda c, _: c.pragma("synchronous")) == synchronous
        await storage.close()


async def test_less_durability_is_refused(file: Path) -> None:
    with pytest.raises(ConfigError, match="could damage the file"):
        await open_sqlite(file, durability="off")  # type: ignore[arg-type]
    assert not file.exists()


async def test_two_storages_on_one_file_hear_of_each_other(file: Path) -> None:
    here, there = await open_sqlite(file), await open_sqlite(file)
    heard = asyncio.Event()
    unsubscribe = here.wakeups.subscribe(heard.set)
    # The watcher may not have begun to look yet; a hint that was missed is no loss.
    async with asyncio.timeout(30):
        while not heard.is_set():
            await add(there, a_job())
            await asyncio.wait([asyncio.ensure_future(heard.wait())], timeout=0.05)
    unsubscribe()
    await here.close()
    await there.close()


async def test_closing_twice_is_safe_and_using_a_closed_one_is_told(storage: SqliteStorage) -> None:
    await storage.close()
    await storage.close()
    with pytest.raises(StorageError, match="closed"):
        await storage.jobs.insert([a_job()])
    with pytest.raises(StorageError, match="closed"):
        await storage.admin.counts()


async def test_reading_leaves_no_read_open_that_keeps_the_write_ahead_file_growing(
    file: Path, storage: SqliteStorage
) -> None:
    await enlist(storage)
    ids = await add(storage, a_job(), a_job())
    await storage.admin.get(ids)
    await storage.admin.counts()
    await storage.jobs.settled(ids)
    await storage.jobs.outlook(["default"])
    await storage.workers.orphans(1)
    assert look(file, "PRAGMA wal_checkpoint(TRUNCATE)")[0][0] == 0, "somebody was busy reading"
    assert Path(f"{file}-wal").stat().st_size == 0


async def test_upkeep_shrinks_a_large_write_ahead_file(
    file: Path, storage: SqliteStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await add(storage, a_job())
    await storage.maintenance.tidy()
    assert Path(f"{file}-wal").stat().st_size > 0, "a small one is kept: it will be written again"
    monkeypatch.setattr(checkpoints, "_LARGE_WAL", 1)
    await storage.maintenance.tidy()
    assert Path(f"{file}-wal").stat().st_size == 0


# --- workers ----------------------------------------------------------------------------------


async def test_a_beat_of_another_boot_is_overdue_at_once(
    file: Path, storage: SqliteStorage
) -> None:
    await enlist(storage, "w1", "w2")
    look(file, "UPDATE workers SET beat_boot = 'before the restart' WHERE id = 'w1'")
    assert await storage.workers.overdue() == ["w1"]
    await storage.workers.beat("w1")
    assert await storage.workers.overdue() == []


async def test_a_stepped_wall_clock_makes_no_worker_overdue(file: Path) -> None:
    clock = VirtualClock()
    storage = await open_sqlite(file, clock=clock)
    await enlist(storage)
    clock.jump(clock.now() + timedelta(days=400))
    assert await storage.workers.overdue() == []
    clock.advance(31 * SECOND)
    assert await storage.workers.overdue() == ["w1"]
    await storage.close()


HOLD = """
import asyncio, sys
from windlass._storage.sqlite import open_sqlite
async def main():
    storage = await open_sqlite(sys.argv[1])
    print(*storage.hold_worker_lock("w1"), flush=True)
    sys.stdin.read()
asyncio.run(main())
"""


async def test_a_killed_worker_is_proven_dead_and_a_living_one_is_not(
    file: Path, storage: SqliteStorage
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        boot, device, inode = other.stdout.readline().decode().split()
        start = msgspec.structs.replace(
            a_worker("w1"), boot_id=boot, lock_device=int(device), lock_inode=int(inode)
        )
        assert not storage.prove_dead(start)
        other.send_signal(signal.SIGKILL)
        other.wait()
        assert storage.prove_dead(start)
        assert not storage.prove_dead(msgspec.structs.replace(start, boot_id="another"))
        assert not storage.prove_dead(msgspec.structs.replace(start, lock_inode=1))

    await storage.workers.register(start)
    await storage.workers.bury(["w1"])
    assert not storage.prove_dead(start), "buried: the file has served"


# --- the schema -------------------------------------------------------------------------------

IMPOSSIBLE = {
    "running without a worker": "state = 1, ready = NULL, worker = NULL",
    "running without a claim": "state = 1, ready = NULL, worker = 'w', started_at = 1",
    "running and ready": "state = 1, claim_number = 1, worker = 'w', started_at = 1",
    "waiting and not placed": "ready = NULL",
    "waiting and finished": "finished_at = 1",
    "finished without a time": "state = 2, ready = NULL",
    "finished and ready": "state = 3, finished_at = 1",
    "in a lane without its number": "ready = 2, limits = '[]'",
    "in a lane without limits": "ready = 2, lane = 1",
    "out of its lane with its number": "lane = 1",
    "more attempts than claims": "attempt = 1",
    "less than no attempts": "attempt = -1",
    "a claim that ended before it began": "ended_number = 1",
    "a state nobody knows": "state = 6, ready = NULL, finished_at = 1",
    "a place nobody knows": "ready = 4",
    "a key without a window": "key = 'k'",
    "an id that is none": "id = x'00'",
    "a text where a number belongs": "due = 'soon'",
}


@pytest.mark.parametrize("change", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_an_impossible_row_is_refused(connection: apsw.Connection, change: str) -> None:
    insert(connection, NOW, [a_job()])
    with pytest.raises(apsw.ConstraintError):
        connection.execute("UPDATE jobs SET " + change)  # noqa: S608 -- from the list above


def test_a_bay_closed_until_a_unit_returns_waits_for_a_unit(connection: apsw.Connection) -> None:
    with pytest.raises(apsw.ConstraintError):
        connection.execute("INSERT INTO bays VALUES (1, 'q', 'g', 1.0, NULL, 0, 0, 1)")


def test_a_number_is_never_used_again(connection: apsw.Connection) -> None:
    """A claim is fenced by it: after a delete it must not mean another job."""
    insert(connection, NOW, [a_job(), a_job()])
    (newest,) = connection.execute("SELECT max(seq) FROM jobs").fetchall()[0]
    connection.execute("DELETE FROM jobs WHERE seq = ?", (newest,))
    insert(connection, NOW, [a_job()])
    assert connection.execute("SELECT max(seq) FROM jobs").get > newest


def test_an_id_that_is_no_id_is_refused(connection: apsw.Connection) -> None:
    for wrong in ("", "xyz", "00" * 15, "0" * 33, "0 " * 16):
        with pytest.raises(InvalidArgument, match="32 hex digits"):
            insert(connection, NOW, [a_job(id=wrong)])


# --- instants and histograms ------------------------------------------------------------------


def test_instants_of_claimed_jobs_are_exact_to_the_microsecond() -> None:
    chance = seeded(7)
    at = from_us(NOW)
    for _ in range(20_000):
        due = chance.choice((chance.randrange(2**52), chance.randrange(-(10**12), 2**56)))
        row = (1, bytes(16), 1, "t", b"", 1, 5, 5, due, None, None, 0, None)
        (job,) = claimed_jobs([row], {}, {}, queue="q", started_at=at, worker="w")
        assert to_us(job.due) == due


def test_a_histogram_by_slices_counts_as_one_by_one() -> None:
    chance = seeded(8)
    for size in (0, 1, 2, 200):
        durations = [int(10 ** (chance.random() * 9)) - 3 for _ in range(size)]
        assert histogram(list(durations), {}) == Counter(map(bucket_of, durations))


# --- what operations cost ---------------------------------------------------------------------


def statements(connection: apsw.Connection, run: Callable[[], object]) -> list[str]:
    """Every statement that ``run`` executes."""
    seen: list[str] = []

    def trace(_: apsw.Cursor, sql: str, __: object) -> bool:
        seen.append(sql)
        return True

    connection.exec_trace = trace
    try:
        run()
    finally:
        connection.exec_trace = None
    return seen


def test_a_claim_without_limits_is_five_statements_and_so_is_a_finish(
    connection: apsw.Connection,
) -> None:
    insert(connection, NOW, [a_job() for _ in range(200)])
    taken: list[ClaimOperation] = []
    assert len(statements(connection, lambda: taken.append(take(connection, 200)))) == 5
    ends = [transition.succeed(job, by="w1", result=b"1") for job in taken[0].reply().jobs]
    assert len(ends) == 200
    assert len(statements(connection, lambda: apply(connection, NOW, ends))) == 5


def changed_rows(connection: apsw.Connection, table: str, run: Callable[[], object]) -> int:
    changes: list[str] = []
    connection.set_update_hook(lambda _, __, name, ___: changes.append(name))
    try:
        run()
    finally:
        connection.set_update_hook(None)
    return changes.count(table)


def test_a_unit_that_returns_touches_one_bay_and_no_lane_however_many_wait(
    connection: apsw.Connection,
) -> None:
    define(connection, LimitSpec(name="all", concurrency=1), LimitSpec(name="key", concurrency=1))
    insert(connection, NOW, [limited("all", f"key:{n}") for n in range(500)])
    (job,) = take(connection, 10).reply().jobs
    assert not take(connection, 10).claimed, "closed, and known to be"

    end = [transition.succeed(job, by="w1", result=None)]
    assert changed_rows(connection, "lanes", lambda: apply(connection, NOW, end)) == 0
    assert len(take(connection, 10).reply().jobs) == 1
    (row,) = connection.execute("SELECT count(*), min(opens_at IS NULL) FROM bays").fetchall()
    assert row == (1, 1)


def test_a_claim_on_closed_lanes_visits_none_of_them(connection: apsw.Connection) -> None:
    define(connection, LimitSpec(name="all", concurrency=1))
    insert(connection, NOW, [limited("all") for _ in range(50)])
    assert len(take(connection, 10).reply().jobs) == 1
    again = statements(connection, lambda: take(connection, 10))
    assert not [sql for sql in again if "FROM holds" in sql or "FROM jobs\n WHERE lane" in sql]


def reads_of(connection: apsw.Connection, run: Callable[[], object]) -> int:
    """How many statements read: a trace of many writes in one call has one entry for each row."""
    return len([sql for sql in statements(connection, run) if "\nSELECT" in f"\n{sql}"])


@pytest.mark.parametrize(
    "spec",
    [
        LimitSpec(name="key", concurrency=2),
        LimitSpec(name="key", rate=Rate(1000, per=timedelta(seconds=1), burst=1000)),
    ],
    ids=["concurrency", "rate"],
)
def test_what_is_read_for_limited_jobs_does_not_grow_with_their_lanes(
    connection: apsw.Connection, spec: LimitSpec
) -> None:
    def reads_for(lanes: int) -> tuple[int, int, int]:
        taken: list[ClaimedJob] = []

        def start() -> None:
            taken[:] = take(connection, lanes).reply().jobs

        def finish() -> None:
            ends = [transition.succeed(job, by="w1", result=None) for job in taken]
            apply(connection, NOW, ends)

        jobs = [limited(f"key:{n}") for _ in range(2) for n in range(lanes)]
        stored = reads_of(connection, lambda: insert(connection, NOW, jobs))
        started = reads_of(connection, start)
        assert len(taken) == lanes
        finished = reads_of(connection, finish)
        start()
        finish()
        assert not connection.execute("SELECT count(*) FROM lanes").get
        return stored, started, finished

    define(connection, spec)
    assert reads_for(5) == reads_for(60)


def test_lanes_are_made_in_the_order_of_their_jobs(connection: apsw.Connection) -> None:
    define(connection, LimitSpec(name="key", concurrency=2))
    insert(connection, NOW, [limited(f"key:{n * 7 % 50}") for n in range(50)])
    rows = connection.execute("SELECT key FROM lanes ORDER BY id").fetchall()
    assert [key for (key,) in rows] == [f"key:{n * 7 % 50}" for n in range(50)]


def test_a_claim_that_visits_too_many_closed_lanes_says_to_ask_again(
    connection: apsw.Connection,
) -> None:
    define(connection, LimitSpec(name="key", concurrency=1))
    keys = [f"key:{n:03}" for n in range(100)]
    insert(connection, NOW, [limited(key) for key in keys])
    assert len(take(connection, 100).reply().jobs) == 100
    insert(connection, NOW, [limited(key) for key in keys])
    (last,) = insert(connection, NOW, [a_job()])

    first = take(connection, 1).reply()
    assert not first.jobs
    assert first.next_at == from_us(NOW), (
        "64 closed lanes were visited; the others stand before the job"
    )
    second = take(connection, 1).reply()
    assert [job.claim.job for job in second.jobs] == [last.id]


def test_a_hold_that_was_left_behind_counts_for_nothing(connection: apsw.Connection) -> None:
    define(connection, LimitSpec(name="api", concurrency=1))
    insert(connection, NOW, [limited("api")])
    connection.execute("INSERT INTO holds VALUES ('api', 1, 7), ('api', 999, 1)")
    assert len(take(connection, 1).reply().jobs) == 1


# --- lanes follow their jobs ------------------------------------------------------------------


async def test_whatever_happens_lanes_have_their_heads_and_closed_bays_are_closed(
    file: Path,
) -> None:
    clock = VirtualClock()
    storage = await open_sqlite(file, clock=clock, durability="normal")
    await enlist(storage)
    for seed in range(12):
        await Walk(storage, clock, seed).run(60)
    await storage.close()


class Walk:
    """Random steps on limited jobs, and after each a look at what must hold."""

    def __init__(self, storage: SqliteStorage, clock: VirtualClock, seed: int) -> None:
        self._storage, self._clock, self._chance = storage, clock, seeded(seed)
        self._held: list[ClaimedJob] = []
        self._ids: list[JobId] = []

    async def run(self, steps: int) -> None:
        await self._storage.limits.define([self._spec("x"), self._spec("y")])
        doings = (self._insert, self._insert, self._claim, self._claim, self._claim)
        more = (self._end, self._end, self._wait, self._cancel, self._redefine, self._requeue)
        rare = (self._spend_or_reset, self._replace)
        for _ in range(steps):
            await self._chance.choice((*doings, *more, *rare))()
            await self._storage._db.write(verify_lanes)

    def _spec(self, name: str) -> LimitSpec:
        rate = Rate(self._chance.choice((1, 3)), SECOND, self._chance.choice((1, 4)))
        most = self._chance.choice((1, 2, 5))
        kind = self._chance.randrange(4)
        if kind == 3:
            return LimitSpec(name=name, breaker=Breaker(self._chance.choice((1, 2)), 2 * SECOND))
        return LimitSpec(
            name=name, rate=rate if kind else None, concurrency=most if kind != 1 else None
        )

    async def _insert(self) -> None:
        jobs: list[NewJob] = []
        for _ in range(self._chance.randrange(1, 6)):
            names = self._chance.choice((("x",), ("y",), ("x", "y"), ("x:k",), ("x:k", "y:l")))
            costs = (1.0, 1.0, 2.0, 0.5)
            jobs.append(
                a_job(
                    limits=tuple(
                        LimitUse(*name.partition(":")[::2], self._chance.choice(costs))
                        for name in names
                    ),
                    priority=self._chance.choice((0, 0, 1)),
                    delay=self._chance.choice((None, None, SECOND)),
                    expires=self._chance.choice((None, None, None, 2 * SECOND)),
                )
            )
        self._ids += await add(self._storage, *jobs)

    async def _claim(self) -> None:
        limit = self._chance.choice((1, 3, 20))
        reply = await self._storage.jobs.claim("w1", [Want("default", limit)], total=limit)
        self._held += reply.jobs

    async def _end(self) -> None:
        self._chance.shuffle(self._held)
        ending = [self._held.pop() for _ in range(min(3, len(self._held)))]
        await self._storage.jobs.apply([self._chance.choice(self._ends(job)) for job in ending])

    def _ends(self, job: ClaimedJob) -> list[transition.Transition]:
        return [
            transition.succeed(job, by="w1", result=None),
            transition.release(job, by="w1"),
            transition.snooze(job, by="w1", delay=SECOND),
            transition.retry(job, by="w1", error=AttemptError("E", ""), delay=timedelta(0)),
            transition.throttle(job, by="w1", delay=SECOND, drains=True),
        ]

    async def _wait(self) -> None:
        self._clock.advance(self._chance.choice((0.1, 0.4, 1, 3)))

    async def _cancel(self) -> None:
        if self._ids:
            await self._storage.jobs.cancel(self._chance.choices(self._ids, k=2))

    async def _requeue(self) -> None:
        jobs = await self._storage.admin.get(self._ids)
        ended = [job.id for job in jobs if job is not None and job.state is State.CANCELLED]
        await requeue(self._storage, *ended[:2])

    async def _spend_or_reset(self) -> None:
        limits = self._storage.limits
        spend = self._chance.choice((limits.drain, limits.reset))
        await spend(self._chance.choice("xy"), self._chance.choice(("", "", "k")))

    async def _replace(self) -> None:
        unique = UniqueKey("key", on_conflict=self._chance.choice(REPLACING))
        cost = self._chance.choice((0.5, 1.0, 3.0))
        limits = (LimitUse(self._chance.choice("xy"), "", cost),)
        # Not among those that are cancelled and requeued: another may hold the key by then.
        await self._storage.jobs.insert([a_job(limits=limits, unique=unique)])

    async def _redefine(self) -> None:
        await self._storage.limits.define([self._spec(self._chance.choice("xy"))])


def verify_lanes(connection: apsw.Connection, now: int) -> None:
    """Heads are the first of what stands there; nobody waits for a gate that would let them in."""
    lanes: list[Any] = connection.execute(
        "SELECT lanes.id, head_priority, head_due, head_seq,"
        " (SELECT min((priority + 40000) || printf(' %020d %010d', due, seq)) FROM jobs"
        "   WHERE lane = lanes.id AND ready = 2) FROM lanes"
    ).fetchall()
    for lane, priority, due, seq, best in lanes:
        assert best == f"{priority + 40000} {due:020} {seq:010}", f"head of lane {lane}"
    stray = "SELECT count(*) FROM jobs WHERE ready = 2 AND lane NOT IN (SELECT id FROM lanes)"
    assert connection.execute(stray).get == 0

    gates = SqliteBudgets(connection, now)
    bays: list[Any] = connection.execute(
        "SELECT id, gate, cost, opens_at, head_priority, head_due, head_seq FROM bays"
    ).fetchall()
    for bay, gate, cost, opens_at, *head in bays:
        best = connection.execute(
            "SELECT head_priority, head_due, head_seq FROM lanes WHERE bay = ? ORDER BY 1, 2, 3",
            (bay,),
        ).fetchall()
        assert best, f"bay {bay} is empty"
        assert tuple(head) == best[0], f"head of bay {bay}"
        name, _, key = gate.partition(":")
        if opens_at is None or opens_at > now:
            shut = gates.shut([LimitUse(name, key, max(0.0, cost))])
            assert shut is not None, f"bay {bay} waits for {gate}, which is open"


# --- what somebody else wrote -----------------------------------------------------------------


def spoil(file: Path, job: JobId, **columns: Any) -> None:
    """Write something into a row behind the storage's back; bytes are written as text."""
    connection = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.set_busy_timeout(5000)
        new = ", ".join(
            f"{column} = CAST(? AS TEXT)" if isinstance(value, bytes) else f"{column} = ?"
            for column, value in columns.items()
        )
        sql = f"UPDATE jobs SET {new} WHERE id = unhex(?)"  # noqa: S608 -- ours
        connection.execute(sql, (*columns.values(), job))
    finally:
        connection.close()


async def test_an_instant_beyond_the_calendar_in_the_file_stops_no_claim(
    file: Path, storage: SqliteStorage
) -> None:
    await enlist(storage)
    far, odd, wanted = await add(storage, a_job(delay=SECOND), a_job(), a_job())
    spoil(file, far, due=2**63 - 1)
    spoil(file, odd, due=-(2**63), expires_at=2**63 - 1)
    reply = await storage.jobs.claim("w1", [Want("default", 10)], total=10)
    assert [job.claim.job for job in reply.jobs] == [odd, wanted]
    assert reply.next_at is not None
    assert len(await storage.admin.find(JobFilter(), limit=10)) == 3


DAMAGE = {
    "backoff": "{not json",
    "tags": '{"of": "another shape"}',
    "task": b"caf\xe9",
    "tenant": b"\xff\xfe",
    "error_message": b"\xc3",
    "on_failure": '{"queue": "no task"}',
}


@pytest.mark.parametrize("column", DAMAGE)
async def test_a_row_that_cannot_be_read_fails_alone(
    file: Path, storage: SqliteStorage, column: str
) -> None:
    await enlist(storage)
    before, damaged, after = await add(storage, a_job(), keyed("k"), a_job())
    spoil(file, damaged, error_kind="Error", **{column: DAMAGE[column]})
    reply = await storage.jobs.claim("w1", [Want("default", 10)], total=10)
    assert [job.claim.job for job in reply.jobs] == [before, after]
    job = (await storage.admin.get([damaged]))[0]
    assert job is not None
    assert job.state is State.FAILED
    assert job.error is not None
    assert job.error.kind == "Damaged"
    assert f"'{column}'" in job.error.message
    (answer,) = await storage.jobs.insert([keyed("k")])
    assert answer.created


@pytest.mark.parametrize("limits", ["[{}]", "7", "{", b"\xff", "[]"])
@pytest.mark.parametrize("solo", [False, True])
@pytest.mark.parametrize("later", [False, True])
async def test_limits_that_cannot_be_read_fail_their_job_alone(
    file: Path, storage: SqliteStorage, limits: str | bytes, *, solo: bool, later: bool
) -> None:
    await enlist(storage)
    await storage.limits.define([LimitSpec(name="db", concurrency=5)])
    delay = timedelta(hours=1) if later else None
    job = a_job(delay=delay) if solo else limited("db", delay=delay)
    damaged, other = await add(storage, job, limited("db", delay=delay))
    spoil(file, damaged, limits=limits, **({"solo": 1, "ready": 0 if later else 3} if solo else {}))
    if later:
        for job_id in (damaged, other):
            spoil(file, job_id, due=0)
    claims = [
        await storage.jobs.claim("w1", [Want("default", 10)], total=10, solo=alone)
        for alone in (True, False, False)
    ]
    assert [job.claim.job for reply in claims for job in reply.jobs] == [other]
    states = [job.state for job in await storage.admin.get([damaged, other]) if job]
    assert states == [State.FAILED, State.RUNNING]
    await requeue(storage, damaged)
    assert not (await storage.jobs.claim("w1", [Want("default", 10)], total=10)).jobs
    assert [job.state for job in await storage.admin.get([damaged]) if job] == [State.FAILED]


async def test_a_running_row_that_cannot_be_read_is_ended_like_any_other(
    file: Path, storage: SqliteStorage
) -> None:
    await enlist(storage)
    await storage.limits.define([LimitSpec(name="db", concurrency=5)])
    await add(storage, limited("db"), limited("db"))
    reply = await storage.jobs.claim("w1", [Want("default", 10)], total=10)
    spoil(file, reply.jobs[0].claim.job, limits="{", tags="{", backoff="7", tenant=b"\xff")
    await storage.workers.bury(["w1"])
    orphans = await storage.workers.orphans(10)
    assert [job.claim for job in orphans] == [job.claim for job in reply.jobs]
    releases = [transition.release(job, by="w1") for job in orphans]
    applied = await storage.jobs.apply(releases)
    assert [answer.verb for answer in applied.answers] == [Verb.RELEASE] * 2


async def test_what_can_be_read_of_a_damaged_row_is_shown(
    file: Path, storage: SqliteStorage
) -> None:
    (damaged,) = await add(storage, a_job(task="t", tags=("a",)))
    spoil(file, damaged, limits="{", tags="{", backoff="7", tenant=b"a\xff")
    for jobs in (
        await storage.admin.get([damaged]),
        await storage.admin.find(JobFilter(), limit=9),
    ):
        (job,) = jobs
        assert job is not None
        assert (job.task, job.tags, job.backoff, job.limits) == ("t", (), None, ())
        assert job.tenant == "a\N{REPLACEMENT CHARACTER}"


async def test_a_database_of_something_else_is_refused_and_left_as_it_was(file: Path) -> None:
    connection = apsw.Connection(str(file))
    connection.execute("CREATE TABLE customers (name)")
    connection.close()
    before = file.read_bytes()
    with pytest.raises(StorageError, match="customers"):
        await open_sqlite(file)
    assert file.read_bytes() == before
    assert [path.name for path in file.parent.iterdir()] == [file.name]


async def test_a_promotion_of_nothing_takes_no_write_lock(
    file: Path, storage: SqliteStorage
) -> None:
    await add(storage, a_job(), a_job(delay=timedelta(days=1)))
    stranger = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READWRITE)
    stranger.execute("BEGIN IMMEDIATE")
    async with asyncio.timeout(30):
        assert await storage.maintenance.promote(100) == 0
    stranger.close()
