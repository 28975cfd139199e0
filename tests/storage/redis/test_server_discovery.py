"""Finding the server that takes writes: Sentinel and Cluster, with real ones."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.servers.binaries import PATIENCE, free_port, give, launch, new_folder, until_ready
from tests.servers.valkey import ValkeyServer
from tests.storage.redis.test_durability import becomes_true, opened
from windlass._storage.redis import open_redis
from windlass._storage.redis.io.dialer import Dialer
from windlass._storage.redis.io.url import RedisNode, parse_url
from windlass.errors import StorageUnavailable
from windlass.testing.conformance.steps import a_job, add, claim_one, enlist, succeeded

Start = Callable[..., ValkeyServer]


def order(port: int, *command: str) -> Any:
    with redis.Redis(port=port, protocol=2) as line:
        return line.execute_command(*command)


class Sentinel:
    """One that watches a primary under the name ``main``, and needs nobody's agreement."""

    def __init__(self, primary: ValkeyServer, binary: Path) -> None:
        self.port = free_port()
        self._folder = folder = new_folder("sentinel")
        give(folder)
        settings = folder / "sentinel.conf"
        settings.write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {folder}\n"
            f"sentinel monitor main 127.0.0.1 {primary.port} 1\n"
            f"sentinel down-after-milliseconds main 300\nsentinel failover-timeout main 3000\n",
            encoding="ascii",
        )
        give(settings)
        log = folder / "log"
        command: list[str | Path] = [binary, settings, "--sentinel"]
        self._process = launch(command, folder, log, dies_by=signal.SIGKILL)
        until_ready(self._is_ready, self._process, log)

    def _is_ready(self) -> bool:
        try:
            return bool(order(self.port, "PING"))
        except redis.RedisError:
            return False

    def close(self) -> None:
        self._process.kill()
        self._process.wait(PATIENCE)
        shutil.rmtree(self._folder, ignore_errors=True)


@pytest.fixture
def watch() -> Iterator[Callable[[ValkeyServer], Sentinel]]:
    made: list[Sentinel] = []

    def start(primary: ValkeyServer) -> Sentinel:
        made.append(Sentinel(primary, primary._binary))
        return made[-1]

    yield start
    for sentinel in made:
        sentinel.close()


async def test_sentinel_says_where_the_primary_is_and_where_it_went(
    own_valkey: Start, watch: Callable[[ValkeyServer], Sentinel]
) -> None:
    primary = own_valkey()
    replica = own_valkey(replicaof=f"127.0.0.1 {primary.port}", replica_priority="1")
    await becomes_true(lambda: b"master_link_status:up" in _replication(replica))
    sentinel = watch(primary)
    nobody = free_port()
    url = f"redis+sentinel://127.0.0.1:{nobody},127.0.0.1:{sentinel.port}/main"
    await becomes_true(lambda: bool(order(sentinel.port, "SENTINEL", "REPLICAS", "main")))
    async with opened(url) as storage:
        await enlist(storage)
        (job,) = await add(storage, a_job())
        await becomes_true(lambda: bool(order(replica.port, "HLEN", "{windlass}:jobs")))
        primary.crash()

        async def claimed() -> bool:
            try:
                assert (await claim_one(storage)).claim.job == job
            except StorageUnavailable:
                return False
            return True

        await becomes_true(claimed, within=30)
        assert "Sentinel" in storage.describe()


async def test_a_service_that_sentinel_does_not_know_is_said(
    own_valkey: Start,
    watch: Callable[[ValkeyServer], Sentinel],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("windlass._storage.redis.io.connection.RETRY_SECONDS", 0.2)
    sentinel = watch(own_valkey())
    with pytest.raises(StorageUnavailable, match="knows no service 'other'"):
        await open_redis(f"redis+sentinel://127.0.0.1:{sentinel.port}/other")


async def test_on_a_cluster_everything_is_in_one_slot_and_followed_there(
    own_valkey: Start,
) -> None:
    settings = {"cluster_enabled": "yes", "databases": "1"}
    nodes = [own_valkey(**settings, cluster_port=str(free_port())) for _ in range(2)]
    first, second = (node.port for node in nodes)
    order(first, "CLUSTER", "ADDSLOTSRANGE", "0", "8191")
    order(second, "CLUSTER", "ADDSLOTSRANGE", "8192", "16383")
    order(second, "CONFIG", "SET", "cluster-require-full-coverage", "no")
    _, bus = order(second, "CONFIG", "GET", "cluster-port")
    order(first, "CLUSTER", "MEET", "127.0.0.1", str(second), bus.decode())
    for port in (first, second):
        whole = partial(_says, port, b"cluster_slots_assigned:16384", b"cluster_state:ok")
        await becomes_true(whole, within=30)
    for prefix in ("one", "two", "three"):  # slots of both nodes are among them
        url = f"redis+cluster://127.0.0.1:{first}"
        async with opened(url, prefix=prefix) as storage:
            await enlist(storage)
            await add(storage, a_job())
            await succeeded(storage, await claim_one(storage))
    assert order(first, "DBSIZE")
    assert order(second, "DBSIZE")


def _says(port: int, *words: bytes) -> bool:
    with redis.Redis(port=port, protocol=2) as line:
        line.response_callbacks.clear()
        said = bytes(line.execute_command("CLUSTER", "INFO"))
    return all(word in said for word in words)


def _replication(server: ValkeyServer) -> bytes:
    with redis.Redis(port=server.port) as line:
        line.response_callbacks.clear()
        return bytes(line.execute_command("INFO", "replication"))


async def test_the_sentinel_asked_last_is_not_asked_first_again() -> None:
    """A node that was cut off from its cluster answers, too, and is wrong for ever."""
    dialer = Dialer(parse_url("redis+cluster://a,b,c"), "{windlass}:")
    asked: list[str] = []

    async def question(node: RedisNode) -> RedisNode:
        asked.append(node.host)
        if node.host == "c":
            raise ConnectionError
        return node

    for _ in range(4):
        await dialer._ask(question)
    assert asked == ["a", "b", "c", "a", "b"]
