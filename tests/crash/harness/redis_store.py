"""A prefix on a Redis server: counters and fences as they stand, jobs as people see them.

A record of bytes that only the backend can take apart is not worth a second reader; whether the
lines, sets and counters agree with the records is.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

import redis

from tests.crash.harness.store import Ended, Store, StoredJob, StoredRollup, StoredWorker
from windlass._core.job.job import Attempt, JobRecord
from windlass._core.job.state import State
from windlass._core.values.instants import to_us
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._storage.protocol.storage import Storage
from windlass._storage.redis import open_redis
from windlass._storage.redis.io.layout import VERBS
from windlass._storage.redis.io.records import StateRecord, state_record_of

T = TypeVar("T")
_PAGE = 1_000
_STATES = list(State)


class RedisStore(Store):
    """A plain connection, and a storage of the product's own for what only it can read."""

    def __init__(self, url: str, prefix: str) -> None:
        self._url, self._name = url, prefix
        self._prefix = f"{{{prefix}}}:"
        self._client = redis.Redis.from_url(url)
        self._runner = asyncio.Runner()
        self._storage: Storage | None = None

    def close(self) -> None:
        if self._storage is not None:
            self._runner.run(self._storage.close())
        self._runner.close()
        self._client.close()

    def _ask(self, ask: Callable[[Storage], Awaitable[T]]) -> T:
        async def run() -> T:
            if self._storage is None:
                self._storage = await open_redis(self._url, prefix=self._name)
            return await ask(self._storage)

        return self._runner.run(run())

    def exists(self) -> bool:
        return bool(self._client.exists(self._key("epoch")))

    def _key(self, name: str) -> str:
        return self._prefix + name

    def _hash(self, name: str) -> dict[bytes, bytes]:
        return cast("dict[bytes, bytes]", self._client.hgetall(self._key(name)))

    # --- jobs ---

    def jobs(self) -> list[StoredJob]:
        found = self._found()
        fences = {key.hex(): state_record_of(record) for key, record in self._hash("state").items()}
        return [_stored(job, fences.get(job.id)) for job in found]

    def job(self, job_id: str) -> StoredJob:
        return next(job for job in self.jobs() if job.id == job_id)

    def _found(self) -> list[JobRecord]:
        """Every job there is, page by page: no page is larger than the backend's own bound."""

        async def ask(storage: Storage) -> list[JobRecord]:
            found: list[JobRecord] = []
            wanted = JobFilter()
            while True:
                page = await storage.admin.find(wanted, limit=_PAGE)
                found += page
                if page.next is None:
                    return found
                wanted = JobFilter(before=page.next)

        found = self._ask(ask)
        stored = self._client.hlen(self._key("jobs"))
        assert len(found) == stored, f"{len(found)} of {stored} jobs were found"
        return found[::-1]

    def history(self) -> list[Ended]:
        async def ask(storage: Storage) -> list[tuple[int, Attempt]]:
            return [
                (job.seq, attempt)
                for job in found
                for attempt in await storage.admin.history(job.id)
            ]

        found = self._found()
        return [
            Ended(
                seq,
                attempt.claim_number,
                str(attempt.verb),
                attempt.worker,
                to_us(attempt.started_at),
                to_us(attempt.ended_at),
                attempt.error.kind if attempt.error else None,
            )
            for seq, attempt in self._ask(ask)
        ]

    def claims_at_death(self, pid: int) -> set[tuple[str, int]]:
        """Those that nobody has ended yet: to look through every history takes too long."""
        held: set[tuple[str, int]] = set()
        for worker in self.workers_of(pid):
            running = self._client.smembers(self._key(f"running:{worker.id}"))
            for job in cast("set[bytes]", running):
                record = cast("bytes | None", self._client.hget(self._key("state"), job))
                if record is not None:
                    held.add((job.hex(), state_record_of(record).number))
        return held

    def workers(self) -> list[StoredWorker]:
        newest_first = self._ask(lambda s: s.workers.workers())
        return [
            StoredWorker(row.start.id, row.start.pid, row.state.value)
            for row in reversed(newest_first)
        ]

    def rollups(self) -> list[StoredRollup]:
        async def ask(storage: Storage) -> list[StoredRollup]:
            now = await storage.now()
            since = now.replace(year=now.year - 1)
            return [
                StoredRollup(
                    to_us(rollup.minute),
                    rollup.queue,
                    rollup.task,
                    "",
                    json.dumps(dict(rollup.counts)),
                    json.dumps(dict(rollup.wait)),
                    json.dumps(dict(rollup.run)),
                )
                for rollup in await storage.admin.rollups(since, now.replace(year=now.year + 1))
            ]

        return self._ask(ask)

    def ready(self) -> int:
        return int(self._client.zcard(self._key("ready:default")))

    def unfinished(self) -> int:
        return sum(
            int(count) for name, count in self._hash("counts").items() if name[:1] in {b"0", b"1"}
        )

    def oldest_beat(self) -> int:
        rows = self._ask(lambda s: s.workers.workers())
        return min(to_us(row.beat_at) for row in rows if row.state.value == "live")

    def held_keys(self) -> list[str]:
        return [key.decode() for key in self._hash("keys")]

    def is_sound(self) -> bool:
        """Counters say what the records say, and nothing runs that no set knows."""
        jobs = self._found()
        states = Counter(f"{_STATES.index(job.state)}{job.queue}" for job in jobs)
        counted = {name.decode(): int(n) for name, n in self._hash("counts").items() if int(n)}
        running = Counter(job.worker for job in jobs if job.state is State.RUNNING)
        holders = {
            name.decode(): int(self._client.scard(self._key("running:") + name.decode()))
            for name in cast("set[bytes]", self._client.smembers(self._key("holders")))
        }
        kept = int(self._client.zcard(self._key("all")))
        return states == counted and running == holders and kept == len(jobs)


def _stored(job: JobRecord, fence: StateRecord | None) -> StoredJob:
    ended = fence is not None and fence.ended_number
    return StoredJob(
        seq=job.seq,
        id=job.id,
        queue=job.queue,
        task=job.task,
        state=_STATES.index(job.state),
        attempt=job.attempt,
        claim_number=job.claim_number,
        ended_number=fence.ended_number if fence and ended else None,
        ended_verb=VERBS[fence.ended_verb].value if fence and ended else None,
        worker=job.worker,
        started_at=to_us(job.started_at) if job.started_at else None,
        finished_at=to_us(job.finished_at) if job.finished_at else None,
        error_kind=job.error.kind if job.error else None,
        result=job.result,
    )
