"""The wire that is cut on purpose does what it says, on both protocols."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import asyncpg
import pytest
import redis.asyncio as redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from tests.servers.proxy import Proxy
from tests.servers.shared import SharedServers
from tests.servers.wire_protocols import PostgresWire, RedisWire

CUT = (asyncpg.PostgresConnectionError, asyncpg.InterfaceError, OSError)


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2].partition("/")[0])


@pytest.fixture
def postgres(postgres_url: str) -> Iterator[tuple[Proxy, str]]:
    with Proxy(port_of(postgres_url), PostgresWire) as proxy:
        yield proxy, postgres_url.replace(str(port_of(postgres_url)), str(proxy.port))


@pytest.fixture
def valkey(servers: SharedServers) -> Iterator[tuple[Proxy, redis.Redis]]:
    url, number = servers.valkey()
    with Proxy(port_of(url), RedisWire) as proxy:
        retry = Retry(NoBackoff(), 0)
        yield proxy, redis.Redis(host="127.0.0.1", port=proxy.port, db=number, retry=retry)


async def test_postgres_executes_and_its_answer_is_lost(
    postgres: tuple[Proxy, str], postgres_url: str
) -> None:
    proxy, url = postgres
    direct = await asyncpg.connect(postgres_url)
    await direct.execute("CREATE TABLE effects (one int)")
    line = await asyncpg.connect(url)
    insert = "INSERT INTO effects VALUES ($1)"
    await line.execute(insert, 1)
    loss = proxy.lose_answer(lambda request: "INSERT" in request, at=2)
    await line.execute(insert, 2)
    with pytest.raises(CUT):
        await line.execute(insert, 3)
    assert loss.happened
    assert loss.request == insert
    assert [row[0] for row in await direct.fetch("SELECT one FROM effects")] == [1, 2, 3]
    await direct.close()


async def test_valkey_executes_and_its_answer_is_lost(valkey: tuple[Proxy, redis.Redis]) -> None:
    proxy, client = valkey
    async with client:
        await client.incr("effects")
        loss = proxy.lose_answer(lambda request: request.startswith("INCR"))
        with pytest.raises(redis.ConnectionError):
            await client.incr("effects")
        assert loss.happened
        assert await client.get("effects") == b"2"


async def test_a_request_that_is_cut_in_its_midst_has_no_effect(
    valkey: tuple[Proxy, redis.Redis],
) -> None:
    proxy, client = valkey
    async with client:
        await client.set("text", "short")
        proxy.cut_after(40, of="asked")
        with pytest.raises(redis.ConnectionError):
            await client.set("text", "long" * 100)
        assert await client.get("text") == b"short"


async def test_an_answer_that_is_cut_in_its_midst_is_an_error(
    postgres: tuple[Proxy, str],
) -> None:
    proxy, url = postgres
    line = await asyncpg.connect(url)
    proxy.cut_after(100, of="answered")
    with pytest.raises(CUT):
        await line.fetch("SELECT repeat('long', 1000)")


async def test_bytes_held_by_the_proxy_arrive_when_it_reopens(
    valkey: tuple[Proxy, redis.Redis],
) -> None:
    proxy, client = valkey
    async with client:
        await client.ping()
        proxy.black_hole()
        late = asyncio.ensure_future(client.incr("effects"))
        done, _ = await asyncio.wait([late], timeout=0.2)
        assert not done
        proxy.heal()
        assert await late == 1


async def test_a_cut_ends_every_connection_and_a_refusal_accepts_none(
    postgres: tuple[Proxy, str],
) -> None:
    proxy, url = postgres
    lines = [await asyncpg.connect(url) for _ in range(3)]
    assert proxy.connections == 3
    proxy.refuse()
    proxy.cut()
    for line in lines:
        with pytest.raises(CUT):
            await line.fetch("SELECT 1")
    with pytest.raises(CUT):
        await asyncpg.connect(url)
    proxy.heal()
    line = await asyncpg.connect(url)
    assert await line.fetchval("SELECT 1") == 1
    await line.close()
