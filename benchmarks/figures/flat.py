"""Flat: a claim must not cost more because the file is full.

Files with 20 queues and 3 priorities hold as many waiting as scheduled as finished jobs: few of
each, or very many. They are built by bulk statements through the schema that the product itself
has made; on servers through the store itself. Contiguous: the jobs of one queue and priority lie
side by side, as after one large ``enqueue_many``. Interleaved: neighbours in the table belong to
different queues, priorities and states, so a hundred jobs lie on a hundred pages. What is timed is
``JobStore.claim`` of 100 jobs as a worker calls it, as safely stored as by default; few and many
alternate.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from datetime import timedelta
from typing import Literal

import apsw

from benchmarks.child import run
from benchmarks.figure import Figure, Target, percentile
from benchmarks.sizes import Sizes
from benchmarks.stage import Stage
from benchmarks.worker import App
from windlass._app.parts import parts_of
from windlass._core.job.job import JobId, NewJob
from windlass._core.job.transition import succeed
from windlass._storage.protocol.jobs import Want
from windlass._storage.protocol.storage import Storage
from windlass._storage.protocol.workers import WorkerStart
from windlass._system.seams import new_job_ids

__all__ = ["build", "build_by_store", "claim_in_turn", "enlist", "measure"]

Order = Literal["contiguous", "interleaved"]

QUEUES, CLAIM = 20, 100
_BUILDER = "w-build"
_BITE = 6_000
"""Rows that are stored before those among them that are to be finished are."""

# Rows i of three kinds: 0 waiting, 1 scheduled, 2 finished.
_SHAPES: dict[Order, str] = {
    "contiguous": """
        SELECT i, i / :each AS kind, (i % :each) * 20 / :each AS queue,
               (i % :each) * 60 / :each % 3 AS priority FROM numbers""",
    "interleaved": """
        SELECT i, i % 3 AS kind, i / 3 % 20 AS queue, i / 60 % 3 AS priority FROM numbers""",
}
_BUILD = """
    WITH RECURSIVE numbers(i) AS (
        SELECT 0 UNION ALL SELECT i + 1 FROM numbers WHERE i + 1 < 3 * :each
    ),
    shape AS ({shape})
    INSERT INTO jobs (id, state, ready, queue, task, priority, due, attempt, max_attempts, budget,
                      claim_number, worker, created_at, started_at, finished_at, ended_number,
                      ended_verb, ended_by, payload)
    SELECT unhex(printf('%016x', i) || hex(randomblob(8))),
           iif(kind = 2, 2, 0), CASE kind WHEN 0 THEN 1 WHEN 1 THEN 0 END,
           printf('queue-%02d', queue), 'noop', priority,
           :now + iif(kind = 1, 86400000000 + i, i - 3600000000), iif(kind = 2, 1, 0), 5, 5,
           iif(kind = 2, 1, 0), iif(kind = 2, 'w0123456789ab', NULL), :now - 3600000000,
           iif(kind = 2, :now, NULL), iif(kind = 2, :now + i, NULL), iif(kind = 2, 1, NULL),
           iif(kind = 2, 'succeed', NULL), iif(kind = 2, 'w0123456789ab', NULL), :payload
      FROM shape"""
_PAYLOAD = (
    b'{"recipient":"12345@example.com","subject":"Your order is on its way",'
    b'"template_name":"shipped","user":12345}'
)


async def measure(stage: Stage) -> list[Figure]:
    """Both orders, one queue at a time and all of them."""
    sizes, place, listener = stage
    figures: list[Figure] = []
    for order in ("contiguous", "interleaved"):
        with place.scratch() as few, place.scratch() as many:
            for url, each in ((few, sizes.few_rows), (many, sizes.many_rows)):
                listener.step(f"{order}: building {3 * each:,} rows")
                way = build if place.backend == "sqlite" else build_by_store
                await run(way, url=url, each=each, order=order)
                place.settle(url)
            listener.step(f"{order}: claiming")
            samples = await run(claim_in_turn, urls=[few, many], claims=sizes.claims)
        figures += _figures(order, sizes, *samples)
    return figures


def _figures(
    order: str, sizes: Sizes, few: dict[str, list[float]], many: dict[str, list[float]]
) -> list[Figure]:
    target = Target("at most", 2.0, "ratio")
    if order == "interleaved":
        target = Target("under", 10.0)
    return [
        Figure(
            name=f"flat_{order}_{served}",
            title=f"claim of {CLAIM}, {order}, {titles}",
            measured=statistics.median(many[served]) * 1000,
            unit="ms",
            yardstick=statistics.median(few[served]) * 1000,
            yardstick_name=f"{sizes.few_rows:,} each",
            target=target,
            note=f"{sizes.many_rows:,} waiting, scheduled and finished each; "
            f"p95 {percentile(many[served], 0.95) * 1000:.1f} ms",
        )
        for served, titles in (("one", "one queue"), ("all", f"{QUEUES} queues"))
    ]


# --- in processes of their own ----------------------------------------------------------------


async def build(url: str, each: int, order: Order) -> str:
    """Make a file with the product's schema, and rows in it."""
    async with App(url).windlass:
        pass
    connection = apsw.Connection(url.removeprefix("sqlite:///"))
    connection.execute("PRAGMA synchronous = OFF; PRAGMA cache_size = -500000").fetchall()
    values = {"each": each, "now": time.time_ns() // 1000, "payload": _PAYLOAD}
    connection.execute(_BUILD.format(shape=_SHAPES[order]), values)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()
    return "built"


async def build_by_store(url: str, each: int, order: Order) -> str:
    """Store the same rows by the ways that jobs go. Those to be finished come first in their
    queues.
    """
    app = App(url).windlass
    storage = await parts_of(app).storage()
    queues = [f"queue-{number:02}" for number in range(QUEUES)]
    await enlist(storage, queues, _BUILDER)
    for start in range(0, 3 * each, _BITE):
        rows = [_shape(i, each, order) for i in range(start, min(start + _BITE, 3 * each))]
        ids = new_job_ids(len(rows))
        news = [_new(job, *row) for job, row in zip(ids, rows, strict=True)]
        for first in range(0, len(news), 1000):
            await storage.jobs.insert(news[first : first + 1000])
        finishing = Counter(queue for kind, queue, _ in rows if kind == 2)
        await _finish(storage, {queues[queue]: n for queue, n in finishing.items()})
    await storage.workers.leave(_BUILDER, [])
    await app.close()
    return "built"


def _shape(i: int, each: int, order: Order) -> tuple[int, int, int]:
    """Kind, queue and priority of row i: see `_SHAPES`."""
    if order == "interleaved":
        return i % 3, i // 3 % QUEUES, i // 60 % 3
    # Finished ones first: a claim would find the others.
    return (2, 0, 1)[i // each], i % each * QUEUES // each, i % each * 60 // each % 3


def _new(job: JobId, kind: int, queue: int, priority: int) -> NewJob:
    return NewJob(
        id=job,
        task="noop",
        queue=f"queue-{queue:02}",
        payload=_PAYLOAD,
        priority=-1 if kind == 2 else priority,
        delay=timedelta(days=1) if kind == 1 else None,
    )


async def _finish(storage: Storage, queues: dict[str, int]) -> None:
    """Claim exactly these, which are the best in their queues, and end them."""
    while queues:
        wants = [Want(queue, min(count, 500)) for queue, count in queues.items()]
        reply = await storage.jobs.claim(_BUILDER, wants, total=500)
        await storage.jobs.apply([succeed(job, by=_BUILDER, result=None) for job in reply.jobs])
        for queue, count in Counter(job.queue for job in reply.jobs).items():
            queues[queue] -= count
        queues = {queue: count for queue, count in queues.items() if count}


async def claim_in_turn(urls: list[str], claims: int) -> list[dict[str, list[float]]]:
    """Seconds per claim on each file: of one queue after the other, and of all at once."""
    apps = [App(url).windlass for url in urls]
    storages = [await parts_of(app).storage() for app in apps]
    queues = [f"queue-{number:02}" for number in range(QUEUES)]
    for storage in storages:
        await enlist(storage, queues)
    samples: list[dict[str, list[float]]] = [{"one": [], "all": []} for _ in urls]
    for number in range(claims + 2):
        for storage, mine in zip(storages, samples, strict=True):
            # Half a turn apart, so that neither empties what the other is about to ask for.
            here, there = number % QUEUES, (number + QUEUES // 2) % QUEUES
            one = await _claim(storage, [queues[here]])
            every = await _claim(storage, [*queues[there:], *queues[:there]])
            if number >= 2:  # the first ones prepare their statements
                mine["one"].append(one)
                mine["all"].append(every)
    for app in apps:
        await app.close()
    return samples


async def enlist(storage: Storage, queues: list[str], worker: str = "w-bench") -> None:
    """Register a worker to claim for."""
    boot, device, inode = storage.hold_worker_lock(worker)
    start = WorkerStart(
        id=worker,
        host="here",
        pid=1,
        version="0",
        queues=queues,
        slots=CLAIM,
        lease=timedelta(minutes=10),
        boot_id=boot,
        lock_device=device,
        lock_inode=inode,
    )
    await storage.workers.register(start)


async def _claim(storage: Storage, queues: list[str]) -> float:
    wants = [Want(queue, CLAIM) for queue in queues]
    began = time.perf_counter()
    reply = await storage.jobs.claim("w-bench", wants, total=CLAIM)
    seconds = time.perf_counter() - began
    if len(reply.jobs) != CLAIM:
        raise AssertionError(f"claimed {len(reply.jobs)} of {CLAIM}")
    return seconds
