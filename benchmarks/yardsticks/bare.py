"""The yardstick: the least that drains a durable queue, with nothing of Windlass in it.

One SQLite file, one table, one thread. Claim a batch, run one asyncio task per job with a timeout
and a decoded payload, store the batch's end fenced by worker and claim number, repeat. No
history, no heartbeat, no retries, no prefetch. What Windlass loses against it is what its
features cost, so this file stays as it is: a better yardstick would make old figures lie. The
database lies in a temporary folder; TMPDIR chooses the disk.

    python -m benchmarks.yardsticks.bare --jobs 20000 --rounds 3 [--json] [--durability full|normal]
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import apsw
import msgspec

try:
    import uvloop as fastest
except ImportError:
    fastest = asyncio  # type: ignore[misc]

Durability = Literal["full", "normal"]
Rows = list[tuple[bytes, int, bytes, int]]  # uid, due, payload, created
BATCH = 200  # jobs per claim, and slots: a batch ends before the next is claimed
INSERT_BATCH = 1000
WORKER = "w0123456789ab"

# States: 0 ready, 2 running, 3 succeeded. Every job here is due, so no index of future ones.
SCHEMA = """CREATE TABLE jobs (
  id INTEGER PRIMARY KEY, uid BLOB NOT NULL UNIQUE, queue TEXT NOT NULL, name TEXT NOT NULL,
  state INTEGER NOT NULL, priority INTEGER NOT NULL, due INTEGER NOT NULL, payload BLOB NOT NULL,
  key TEXT, attempt INTEGER NOT NULL DEFAULT 0, max_attempts INTEGER NOT NULL,
  claim_number INTEGER NOT NULL DEFAULT 0, timeout INTEGER, created_at INTEGER NOT NULL,
  started_at INTEGER, finished_at INTEGER, worker TEXT, result BLOB, error TEXT, tags TEXT,
  parent BLOB, trace TEXT) STRICT;
CREATE INDEX jobs_ready ON jobs(queue, priority, due, id) WHERE state = 0;
CREATE INDEX jobs_running ON jobs(worker, id) WHERE state = 2;
CREATE INDEX jobs_finished ON jobs(finished_at, id) WHERE state >= 3;
CREATE UNIQUE INDEX jobs_key ON jobs(key) WHERE key IS NOT NULL AND state < 3;"""
INSERT = """INSERT INTO jobs(uid, queue, name, state, priority, due, payload, max_attempts,
  created_at) VALUES """
ROW = "(?, 'default', 'noop', 0, 0, ?, ?, 5, ?)"
CLAIM = """UPDATE jobs SET state = 2, worker = ?, started_at = ?, attempt = attempt + 1,
  claim_number = claim_number + 1
WHERE id IN (SELECT id FROM jobs WHERE state = 0 AND queue = 'default'
             ORDER BY priority, due, id LIMIT ?)
RETURNING id, claim_number, payload"""
# By {id: claim number}. The plus keeps the planner from the running index: 15 times slower here.
FINISH = """UPDATE jobs SET state = 3, finished_at = ? FROM json_each(?) AS done
WHERE jobs.id = CAST(done.key AS INTEGER) AND jobs.claim_number = done.value
  AND jobs.worker = ? AND +jobs.state = 2"""


class Payload(msgspec.Struct):  # noqa: D101 -- about 110 bytes of JSON
    recipient: str
    subject: str
    template_name: str
    user: int


_decode = msgspec.json.Decoder(Payload).decode
_encode = msgspec.json.Encoder().encode


def _rows(jobs: int) -> Rows:
    rows = []
    for number in range(jobs):
        now = time.time_ns() // 1000
        uuid7 = now // 1000 << 80 | 7 << 76 | random.getrandbits(12) << 64 | 2 << 62
        uuid7 |= random.getrandbits(62)
        payload = Payload(f"{number}@example.com", "Your order is on its way", "shipped", number)
        rows.append((uuid7.to_bytes(16, "big"), now, _encode(payload), now))
    return rows


@contextmanager
def _file(durability: Durability) -> Iterator[apsw.Connection]:
    with tempfile.TemporaryDirectory() as folder:
        connection = apsw.Connection(str(Path(folder) / "bare.db"))
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        connection.execute(f"PRAGMA synchronous = {durability}; PRAGMA journal_mode = WAL")
        connection.execute(SCHEMA)
        yield connection
        connection.close()


@contextmanager
def filled(jobs: int, durability: Durability) -> Iterator[apsw.Connection]:
    """Make a file with this many jobs; afterwards each of them must have been finished once."""
    with _file(durability) as connection:
        _insert_by_executemany(connection, _rows(jobs))
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        yield connection
        done = "SELECT count(*) FROM jobs WHERE state = 3 AND claim_number = 1"
        if connection.execute(done).get != jobs:
            raise AssertionError("jobs were left behind")


def _claim(connection: apsw.Connection) -> list[tuple[Any, ...]]:
    return connection.execute(CLAIM, (WORKER, time.time_ns() // 1000, BATCH)).fetchall()


def _finish(connection: apsw.Connection, claimed: list[tuple[Any, ...]]) -> None:
    fence = _encode({job: claim_number for job, claim_number, _ in claimed}).decode()
    connection.execute(FINISH, (time.time_ns() // 1000, fence, WORKER))


async def _noop(payload: Payload) -> None:
    """Do nothing."""


async def _run(payload: bytes) -> None:
    async with asyncio.timeout(30):
        await _noop(_decode(payload))


async def _drain(connection: apsw.Connection) -> None:
    while claimed := _claim(connection):
        for task in [asyncio.create_task(_run(payload)) for _, _, payload in claimed]:
            await task
        _finish(connection, claimed)


def drain(jobs: int, durability: Durability = "full") -> float:
    """Jobs per second through the whole bare loop."""
    with filled(jobs, durability) as connection:
        began = time.perf_counter()
        with asyncio.Runner(loop_factory=fastest.new_event_loop) as runner:
            runner.run(_drain(connection))
        return jobs / (time.perf_counter() - began)


def claim_and_finish(jobs: int, durability: Durability = "full") -> float:
    """Jobs per second through the same two statements, running nothing in between."""
    with filled(jobs, durability) as connection:
        began = time.perf_counter()
        while claimed := _claim(connection):
            _finish(connection, claimed)
        return jobs / (time.perf_counter() - began)


def _insert_by_executemany(connection: apsw.Connection, rows: Rows) -> None:
    for start in range(0, len(rows), INSERT_BATCH):
        with connection:
            connection.executemany(INSERT + ROW, rows[start : start + INSERT_BATCH])


def _insert_by_values(connection: apsw.Connection, rows: Rows) -> None:
    for start in range(0, len(rows), INSERT_BATCH):
        batch = rows[start : start + INSERT_BATCH]
        connection.execute(INSERT + ",".join([ROW] * len(batch)), list(chain.from_iterable(batch)))


def insert(jobs: int, durability: Durability = "full") -> float:
    """Rows per second into the same table, a thousand at a time; the better of two ways."""
    rows, rates = _rows(jobs), []
    for way in (_insert_by_executemany, _insert_by_values):
        with _file(durability) as connection:
            began = time.perf_counter()
            way(connection, rows)
            rates.append(jobs / (time.perf_counter() - began))
    return max(rates)


def main() -> None:
    parser = argparse.ArgumentParser(description="The least that drains a durable queue.")
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--durability", choices=["full", "normal"], default="full")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    measured: dict[str, list[float]] = {"drain": [], "claim_and_finish": [], "insert": []}
    for _ in range(asked.rounds):  # alternating, so that a slow minute falls on all of them
        for name, figures in measured.items():
            figures.append(globals()[name](asked.jobs, asked.durability))
    medians = {name: statistics.median(figures) for name, figures in measured.items()}
    share = medians["drain"] / medians["claim_and_finish"]
    if asked.json:
        print(_encode(vars(asked) | medians | {"share": share, "loop": fastest.__name__}).decode())
        return
    print(f"{asked.jobs:,} jobs, {asked.rounds} rounds, {asked.durability}, {fastest.__name__}")
    print(f"  bare drain      {medians['drain']:>9,.0f}/s   {share:.0%} of claim + finish alone")
    print(f"  claim + finish  {medians['claim_and_finish']:>9,.0f}/s   batches of {BATCH}")
    print(f"  insert          {medians['insert']:>9,.0f}/s   batches of {INSERT_BATCH}")


if __name__ == "__main__":
    main()
