"""What lies between a Redis server and its promises: a slow disk, a certificate nobody knows."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import redis

from tests.servers.valkey import ValkeyServer
from tests.storage.redis.test_durability import becomes_true
from windlass._storage.redis import open_redis
from windlass.errors import ConfigError, StorageRefused

Start = Callable[..., ValkeyServer]

_SLOW = ["-e", "trace=fsync,fdatasync", "-e", "inject=fsync,fdatasync:delay_enter=2600000"]


def delayed(line: redis.Redis) -> bool:
    """Write, and ask whether a write had to wait for a sync."""
    line.incr("other")
    return bool(line.info("persistence")["aof_delayed_fsync"])


@asynccontextmanager
async def slow_syncs(server: ValkeyServer) -> AsyncIterator[None]:
    """Every sync of the server takes 2.6 s."""
    assert server._process is not None
    if shutil.which("strace") is None:
        pytest.skip("strace is not on this machine: install the package strace")
    command = ["strace", "-f", "-q", "-o", "/dev/null", *_SLOW, "-p", str(server._process.pid)]
    slowing = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        await asyncio.sleep(0.5)
        if slowing.poll() is not None:
            pytest.skip("strace is not permitted here")
        yield
    finally:
        slowing.terminate()
        slowing.wait(10)


async def test_syncs_that_take_too_long_are_warned_of_once(
    own_valkey: Start, caplog: pytest.LogCaptureFixture
) -> None:
    server = own_valkey()
    storage = await open_redis(server.url)
    await storage.maintenance.tidy()
    line = redis.Redis(port=server.port)
    async with slow_syncs(server):
        await becomes_true(lambda: delayed(line), within=60)
    await storage.maintenance.tidy()
    await storage.maintenance.tidy()
    told = [text for text in caplog.messages if "had to wait for a sync" in text]
    assert len(told) == 1
    assert "acknowledged jobs are lost" in told[0]
    line.close()
    await storage.close()


async def test_a_certificate_that_is_not_trusted_is_said_at_once(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not on this machine")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"]
    files = ["-keyout", str(key), "-out", str(certificate), "-days", "2"]
    subprocess.run([*made, *files], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = await asyncio.start_server(
        lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context
    )
    port = server.sockets[0].getsockname()[1]
    async with asyncio.timeout(4):  # without a second try
        with pytest.raises(StorageRefused, match=r"ssl_ca_certs=/path/to/ca\.pem"):
            await open_redis(f"rediss://localhost:{port}")
        with pytest.raises(StorageRefused, match=r"certificate is not valid for '127\.0\.0\.1'"):
            await open_redis(f"rediss://127.0.0.1:{port}?ssl_ca_certs={certificate}")
    server.close()


@pytest.mark.parametrize("option", ["ssl_ca_certs", "ssl_certfile", "ssl_keyfile"])
async def test_a_file_for_tls_that_is_not_there_is_not_waited_for(
    tmp_path: Path, option: str
) -> None:
    (tmp_path / "empty.pem").touch()
    missing = {"ssl_ca_certs": ["none.pem", "empty.pem"]}.get(option, ["none.pem"])
    for name in missing:
        with pytest.raises(ConfigError, match=f"The file that {option} names"):
            await open_redis(f"rediss://localhost:1?{option}={tmp_path / name}")
