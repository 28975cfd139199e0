"""Scripts are functions where the server keeps them, and go by EVAL where it does not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import hiredis
import pytest
import redis

from tests.servers.valkey import ValkeyServer
from tests.storage.redis.test_durability import a_user, opened
from windlass._core.job.transition import succeed
from windlass._storage.protocol.storage import Storage
from windlass._storage.redis.io.dialer import pack_command
from windlass._storage.redis.io.scripts import LIBRARY_PREFIX, library
from windlass.errors import StorageError
from windlass.testing.conformance.steps import a_job, add, claim_one, end, enlist

Start = Callable[..., ValkeyServer]

DOCUMENTED = ("~{windlass}:*", "+@all", "-@dangerous", "+config|get", "+info")
NEEDED = ("~{windlass}:*", "+@read", "+@write", "+@scripting", "+@connection", "+time")


@pytest.fixture
def server(own_valkey: Start) -> ValkeyServer:
    return own_valkey()


def order(server: ValkeyServer, *command: Any) -> Any:
    with redis.Redis(port=server.port, protocol=2) as line:
        return line.execute_command(*command)


def called(server: ValkeyServer) -> set[str]:
    """Name the commands by which scripts were run."""
    with redis.Redis(port=server.port) as line:
        used = {name.removeprefix("cmdstat_") for name in line.info("commandstats")}
    return used & {"fcall", "evalsha", "eval"}


def libraries(server: ValkeyServer) -> list[str]:
    names = [found[1].decode() for found in order(server, "FUNCTION", "LIST")]
    return [name for name in names if name.startswith(LIBRARY_PREFIX)]


async def one_job_runs(storage: Storage) -> None:
    """Enqueue, claim and finish one job, on the connection for work and on the other one."""
    (job,) = await add(storage, a_job())
    running = await claim_one(storage)
    assert running.claim.job == job
    await end(storage, succeed(running, by="w1", result=None))
    assert not any(queue.running for queue in await storage.admin.counts())


async def test_the_library_is_loaded_at_open_and_no_script_is_sent(
    server: ValkeyServer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "windlass"):
        async with opened(server.url) as storage:
            await enlist(storage)
            await one_job_runs(storage)
    assert called(server) == {"fcall"}
    assert libraries(server) == [library().name]
    (said,) = [line for line in caplog.messages if "scripts of Redis" in line]
    assert f"functions of the library {library().name}" in said


async def test_a_library_that_is_gone_is_loaded_again(server: ValkeyServer) -> None:
    async with opened(server.url) as storage:
        await enlist(storage)
        for _ in range(3):
            order(server, "FUNCTION", "FLUSH")
            await one_job_runs(storage)
        order(server, "FUNCTION", "FLUSH")
        jobs = await asyncio.gather(*(add(storage, a_job()) for _ in range(50)))
    assert len({job for (job,) in jobs}) == 50
    assert called(server) == {"fcall"}


async def test_processes_that_load_at_the_same_time_share_the_library(server: ValkeyServer) -> None:
    async with opened(server.url) as one, opened(server.url) as other:
        await enlist(one)
        order(server, "FUNCTION", "FLUSH")
        await asyncio.gather(*(add(storage, a_job()) for storage in (one, other) for _ in range(9)))
    assert called(server) == {"fcall"}
    assert libraries(server) == [library().name]


async def test_a_restarted_server_still_has_the_library(server: ValkeyServer) -> None:
    async with opened(server.url) as storage:
        await enlist(storage)
        server.restart()
        await one_job_runs(storage)
    assert libraries(server) == [library().name]


async def test_libraries_of_other_versions_stay_and_can_be_deleted_while_in_use(
    server: ValkeyServer,
) -> None:
    older = LIBRARY_PREFIX + "0" * 16
    order(server, "FUNCTION", "LOAD", library().text.replace(library().name, older))
    async with opened(server.url) as storage:
        await enlist(storage)
        await one_job_runs(storage)
        assert sorted(libraries(server)) == sorted([older, library().name])
        order(server, "FUNCTION", "DELETE", older)
        order(server, "FUNCTION", "DELETE", library().name)
        await one_job_runs(storage)
    assert libraries(server) == [library().name]


# --- servers that refuse ------------------------------------------------------------------------


@pytest.mark.parametrize("refused", ["-function", "-fcall", "-function|load"])
async def test_a_user_who_may_not_use_functions_gets_scripts_by_eval(
    server: ValkeyServer, refused: str, caplog: pytest.LogCaptureFixture
) -> None:
    url = a_user(server, *DOCUMENTED, refused)
    with caplog.at_level(logging.DEBUG, "windlass"):
        async with opened(url) as storage:
            await enlist(storage)
            await asyncio.gather(*(add(storage, a_job(queue="other")) for _ in range(20)))
            await one_job_runs(storage)
    assert "evalsha" in called(server)
    (said,) = [line for line in caplog.messages if "scripts of Redis" in line]
    assert "EVALSHA" in said
    assert "no permission" in said


async def test_a_server_that_does_not_know_functions_gets_scripts_by_eval(
    own_valkey: Start,
) -> None:
    server = own_valkey(rename_command="FCALL nothing-that-anybody-calls")
    async with opened(server.url) as storage:
        await enlist(storage)
        await one_job_runs(storage)
    assert called(server) == {"evalsha", "eval"}


async def test_a_full_server_that_takes_no_library_gets_scripts_by_eval(
    server: ValkeyServer,
) -> None:
    async with opened(server.url) as storage:
        await enlist(storage)
        running = await claimed(storage)
        order(server, "FUNCTION", "FLUSH")
        order(server, "CONFIG", "SET", "maxmemory", "1")
        await end(storage, succeed(running, by="w1", result=None))
    assert "eval" in called(server)


async def claimed(storage: Storage) -> Any:
    await add(storage, a_job())
    return await claim_one(storage)


async def test_the_url_can_switch_functions_off(server: ValkeyServer) -> None:
    async with opened(f"{server.url}?functions=off") as storage:
        await enlist(storage)
        await one_job_runs(storage)
    assert called(server) == {"evalsha", "eval"}
    assert libraries(server) == []


async def test_what_the_user_may_not_do_is_refused_in_both_forms(server: ValkeyServer) -> None:
    url = a_user(server, *DOCUMENTED, "-zadd")
    with pytest.raises(StorageError, match="does not permit"):
        async with opened(url) as storage:
            await storage.jobs.insert([a_job()])


@pytest.mark.parametrize("rules", [DOCUMENTED, NEEDED])
async def test_the_documented_rules_are_enough_for_functions(
    server: ValkeyServer, rules: tuple[str, ...]
) -> None:
    async with opened(a_user(server, *rules), durability="local") as storage:
        await enlist(storage)
        await one_job_runs(storage)
    assert called(server) == {"fcall"}


async def test_a_library_that_a_proxy_loads_elsewhere_is_given_up(own_valkey: Start) -> None:
    server, other = own_valkey(), own_valkey()
    async with (
        loads_elsewhere(server.port, other.port) as port,
        opened(f"redis://127.0.0.1:{port}") as storage,
    ):
        await enlist(storage)
        await one_job_runs(storage)
    assert libraries(other) == [library().name]
    assert "evalsha" in called(server)


@asynccontextmanager
async def loads_elsewhere(port: int, other: int) -> AsyncIterator[int]:
    """Listen as a proxy of two servers does that sends FUNCTION LOAD to the wrong one."""
    serving: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.create_task(serve(reader, writer)))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        here = await asyncio.open_connection("127.0.0.1", port)
        there = await asyncio.open_connection("127.0.0.1", other)
        requests = hiredis.Reader()
        with suppress(ConnectionError):
            while heard := await reader.read(65536):
                requests.feed(heard)
                while (command := requests.gets()) is not False:
                    answers, asks = there if command[0] == b"FUNCTION" else here
                    asks.write(pack_command(command))
                    writer.write(await whole_reply(answers))
        for line in (here, there):
            line[1].close()
        writer.close()

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as listening:
        yield listening.sockets[0].getsockname()[1]
    await asyncio.gather(*serving)


async def whole_reply(reader: asyncio.StreamReader) -> bytes:
    reply, whole = hiredis.Reader(), b""
    while True:
        heard = await reader.read(65536)
        if not heard:
            raise ConnectionError("the server is gone")
        whole += heard
        reply.feed(heard)
        if reply.gets() is not False:
            return whole
