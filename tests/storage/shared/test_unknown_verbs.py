"""A stored history may hold a word that this version does not know: it is shown as it stands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest
from redis.asyncio import Redis

from windlass._admin.explain.explain import explain_facts
from windlass._admin.explain.facts import gather
from windlass._core.job.job import ClaimedJob
from windlass._core.job.outcome import Raised
from windlass._storage.postgres.storage import open_postgres
from windlass._storage.protocol.storage import Storage
from windlass._storage.redis.storage import open_redis
from windlass._storage.shared.stored_text import WorkerDescription, worker_description_of
from windlass._storage.sqlite.storage import open_sqlite
from windlass.testing.conformance.steps import OOPS, happened, look, started


async def failed_once(storage: Storage) -> ClaimedJob:
    running = await started(storage)
    await happened(storage, running, Raised(OOPS))
    return running


async def shown(storage: Storage, running: ClaimedJob) -> str:
    """The word in the history; explaining the job must go well, too."""
    (past,) = await storage.admin.history(running.claim.job)
    told = explain_facts(await gather(storage, await look(storage, running)))
    assert told.causes
    return str(past.verb)


async def test_sqlite_shows_an_unknown_verb_as_text(tmp_path: Path) -> None:
    storage = await open_sqlite(tmp_path / "jobs.db")
    running = await failed_once(storage)
    connection = apsw.Connection(str(tmp_path / "jobs.db"))
    connection.execute("UPDATE history SET verb = 'teleport'")
    connection.close()
    assert await shown(storage, running) == "teleport"
    await storage.close()


async def test_postgres_shows_an_unknown_verb_as_text(postgres_url: str) -> None:
    storage = await open_postgres(postgres_url)
    running = await failed_once(storage)
    with psycopg.connect(postgres_url) as connection:
        connection.execute("UPDATE windlass.history SET verb = 'teleport'")
    assert await shown(storage, running) == "teleport"
    await storage.close()


async def test_redis_shows_an_unknown_verb_as_text(redis_prefix: tuple[str, str]) -> None:
    url, prefix = redis_prefix
    storage = await open_redis(url, prefix=prefix)
    running = await failed_once(storage)
    server = Redis.from_url(url)
    key = f"{{{prefix}}}:history:".encode() + bytes.fromhex(running.claim.job)
    run: Any = server.execute_command
    (entry,) = await run("LRANGE", key, 0, -1)
    await run("LSET", key, 0, entry[:8] + b"\x64" + entry[9:])
    assert await shown(storage, running) == "unknown (100)"
    await server.aclose()
    await storage.close()


@pytest.mark.parametrize("text", ["", "[]", '{"pools": 3}', '{"signatures": {"a": 1}}', "\udc80"])
def test_unknown_fields_of_a_registration_are_ignored(text: str) -> None:
    assert worker_description_of(text) == WorkerDescription()
