"""Flat: a claim must not cost more because the file is full.

Files with 20 queues and 3 priorities hold as many waiting as scheduled as finished jobs: few of
each, or very many. They are built by bulk statements through the schema that the product itself
has made. Contiguous: the jobs of one queue and priority lie side by side, as after one large
``enqueue_many``. Interleaved: neighbours in the table belong to different queues, priorities and
states, so a hundred jobs lie on a hundred pages. What is timed is ``JobStore.claim`` of 100 jobs
as a worker calls it, on its writer thread and synced to the disk; few and many alternate.
"""

from __future__ import annotations

import statistics
import time
from datetime import timedelta
from typing import Literal

import apsw

from benchmarks.child import run
from benchmarks.figure import Figure, Target, percentile
from benchmarks.sizes import Sizes
from benchmarks.stage import Listener, scratch
from benchmarks.worker import App
from windlass.storage.protocol import Storage, Want, WorkerStart

__all__ = ["build", "claim_in_turn", "enlist", "measure"]

Order = Literal["contiguous", "interleaved"]

QUEUES, CLAIM = 20, 100

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


async def measure(sizes: Sizes, listener: Listener) -> list[Figure]:
    """Both orders, one queue at a time and all of them."""
    figures: list[Figure] = []
    for order in ("contiguous", "interleaved"):
        with scratch() as few, scratch() as many:
            for url, each in ((few, sizes.few_rows), (many, sizes.many_rows)):
                listener.step(f"{order}: building {3 * each:,} rows")
                await run(build, url=url, each=each, order=order)
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
    """A file with the product's schema, and rows in it."""
    async with App(url).windlass:
        pass
    connection = apsw.Connection(url.removeprefix("sqlite:///"))
    connection.execute("PRAGMA synchronous = OFF; PRAGMA cache_size = -500000").fetchall()
    values = {"each": each, "now": time.time_ns() // 1000, "payload": _PAYLOAD}
    connection.execute(_BUILD.format(shape=_SHAPES[order]), values)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()
    return "built"


async def claim_in_turn(urls: list[str], claims: int) -> list[dict[str, list[float]]]:
    """Seconds per claim on each file: of one queue after the other, and of all at once."""
    apps = [App(url).windlass for url in urls]
    storages = [await app.storage() for app in apps]
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


async def enlist(storage: Storage, queues: list[str]) -> None:
    """A worker to claim for."""
    boot, device, inode = storage.hold_worker_lock("w-bench")
    start = WorkerStart(
        id="w-bench",
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
