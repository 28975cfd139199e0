"""A PostgreSQL whose commits wait for a standby that is not there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.servers.binaries import give
from tests.servers.postgres import PostgresServer
from windlass._storage.postgres import open_postgres
from windlass._system.seams import monotonic
from windlass.errors import StorageUnavailable
from windlass.testing.conformance.steps import a_job

_WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


def ask(server: PostgresServer, *statements: str) -> Any:
    """Run statements that wait for nobody; the first value of the last one."""
    with psycopg.connect(server.url, autocommit=True) as line:
        line.execute("SET synchronous_commit = local")
        *_, last = (line.execute(statement.encode()) for statement in statements)
        return (last.fetchone() or [None])[0] if last.description else None


async def seen(condition: Callable[[], bool]) -> bool:
    """Look again and again, for at most ten seconds."""
    for _ in range(200):
        if condition():
            return True
        await asyncio.sleep(0.05)
    return False


async def test_enqueueing_gives_up_after_its_five_seconds_and_leaves_nothing_waiting(
    own_postgres: Callable[..., PostgresServer],
) -> None:
    server = own_postgres()
    storage = await open_postgres(server.url)
    ask(server, "ALTER SYSTEM SET synchronous_standby_names = 'nobody'", "SELECT pg_reload_conf()")
    assert await seen(lambda: ask(server, "SHOW synchronous_standby_names") == "nobody")
    began, jobs = monotonic(), [a_job() for _ in range(3)]
    inserts = [asyncio.create_task(storage.jobs.insert([job])) for job in jobs]
    for insert in inserts:
        with pytest.raises(StorageUnavailable, match="may have taken effect nevertheless"):
            await insert
    assert monotonic() - began < 9  # also those that came after another one
    assert await seen(lambda: not ask(server, _WAITING))
    # What was cancelled had been committed here: the error promises nothing.
    assert ask(server, "SELECT count(*) FROM windlass.jobs") >= 1
    ask(server, "ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
    await storage.close()


async def test_a_promoted_standby_is_noticed_and_nothing_is_promised(
    own_postgres: Callable[..., PostgresServer], caplog: pytest.LogCaptureFixture
) -> None:
    server = own_postgres()
    grant = "GRANT CREATE ON DATABASE postgres TO shop"
    ask(server, "CREATE ROLE shop LOGIN", grant)
    storage = await open_postgres(server.url.replace("postgres@", "shop@"))
    await storage.jobs.insert([a_job()])
    server.stop()
    # What becomes of a primary that is started as a standby and promoted: a new timeline.
    (server._cluster / "standby.signal").touch()
    give(server._cluster / "standby.signal")
    server.start()
    ask(server, "SELECT pg_promote()")
    await storage.jobs.insert([a_job()])
    told = [text for text in caplog.messages if "timeline" in text]
    assert len(told) == 1
    assert "(00000001 → 00000002): a standby was promoted" in told[0]
    assert "may be missing" in told[0]
    assert not any("nothing is lost" in text for text in caplog.messages)
    await storage.admin.get([])  # on another connection
    await storage.maintenance.promote(1)
    assert len([text for text in caplog.messages if "timeline" in text]) == 1
    await storage.close()


async def test_another_server_in_its_place_is_noticed(
    own_postgres: Callable[..., PostgresServer], caplog: pytest.LogCaptureFixture
) -> None:
    first, second = own_postgres(), own_postgres()
    storage = await open_postgres(first.url)
    await (await open_postgres(second.url)).close()
    await storage.jobs.insert([a_job()])
    first.stop()
    second.stop()
    second.port = first.port
    second.start()
    await storage.jobs.insert([a_job()])
    assert len([text for text in caplog.messages if "is another server than before" in text]) == 1
    await storage.close()
