"""A storage that is away, full or closed to this worker when the worker starts."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import psycopg
import pytest
import redis

from tests.cli.processes import Running, until
from tests.cli.worker_process.test_health import READY, get
from tests.servers.binaries import free_port
from tests.servers.postgres import PostgresServer
from tests.servers.valkey import ValkeyServer
from windlass import Windlass
from windlass._app.parts import parts_of

Own = Callable[..., PostgresServer | ValkeyServer]

APP = """
import os
from windlass import Windlass

app = Windlass(os.environ["STORE"])

@app.task(name="add")
async def add(a: int, b: int) -> int:
    return a + b
"""
AWAY = "waiting for the storage: "


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "late.py").write_text(APP, encoding="utf-8")
    return tmp_path


def worker(folder: Path, url: str, *options: str) -> Running:
    return Running("worker", "late:app", *options, cwd=folder, env={"STORE": url})


def enqueue(url: str) -> Callable[[], int]:
    """Enqueue a job; what waits for its result."""
    app = Windlass(url)

    @app.task(name="add")
    async def add(a: int, b: int) -> int:
        raise NotImplementedError

    job = add.enqueue_sync(1, 2)

    def result() -> int:
        try:
            return app.blocking.result(job, 30)
        finally:
            app.blocking.run(app.close())
            parts_of(app).blocking_loop.stop()

    return result


def test_a_server_that_comes_late_is_waited_for(
    folder: Path, own_postgres: Own, own_valkey: Own
) -> None:
    """One process and two, on either server, all at the same time: it is a wait of seconds."""
    servers = [own_postgres(), own_postgres(), own_valkey(), own_valkey()]
    for server in servers:
        server.stop()
    with ExitStack() as stack:
        waiting: list[tuple[Running, int, PostgresServer | ValkeyServer]] = []
        for server, processes in zip(servers, (1, 2, 1, 2), strict=True):
            port = free_port(processes)
            options = ["--health-port", str(port), "--processes", str(processes)]
            late = stack.enter_context(worker(folder, server.url, *options))
            late.wait_for(AWAY)
            assert get(port, "/readyz") == (503, "not ready: waiting for the storage\n")
            assert get(port, "/livez")[0] == 200
            waiting.append((late, port, server))
        # Longer than one try takes: it is said once, and by one alone.
        assert not until(lambda: any(one.process.poll() is not None for one, _, _ in waiting), 8)
        for server in servers:
            server.start()
        for late, port, server in waiting:
            late.wait_for("the storage is available after")
            assert until(lambda port=port: get(port, "/readyz") == READY)
            assert enqueue(server.url)() == 3
            late.signal(signal.SIGTERM)
            assert late.wait() == 0
    for late, _, _ in waiting:
        assert late.text.count(AWAY) == 1
        assert len(re.findall("cannot be reached|does not answer", late.text)) == 1


@pytest.mark.parametrize("processes", [1, 2])
def test_the_wait_has_a_limit_where_one_is_given(folder: Path, processes: int) -> None:
    url = f"redis://127.0.0.1:{free_port()}"
    with worker(folder, url, "--wait-for-store", "1s", "--processes", str(processes)) as late:
        late.wait_for(r"does not answer.* \(gave up after 1 s: --wait-for-store\)")
        assert late.wait() == 1
    assert "started again" not in late.text


def test_a_worker_that_waits_can_be_stopped(folder: Path) -> None:
    with worker(folder, f"redis://127.0.0.1:{free_port()}") as late:
        late.wait_for(AWAY)
        late.signal(signal.SIGTERM)
        late.wait_for("stopped before it started")
        assert late.wait() == 0


def wrong_password(server: PostgresServer) -> str:
    """A server that asks for passwords, and the URL of a role with another one."""
    with psycopg.connect(server.url, autocommit=True) as line:
        line.execute("CREATE ROLE shop LOGIN PASSWORD 'right'")
    hba = server._cluster / "pg_hba.conf"
    lines = [f"host all {rule}" for rule in ("shop 127.0.0.1/32 scram-sha-256", "all all trust")]
    hba.write_text("\n".join([*lines, ""]), encoding="ascii")
    server.restart()
    return server.url.replace("postgres@", "shop:wrong@")


def test_a_wrong_password_ends_the_worker_at_once(
    folder: Path, own_postgres: Own, own_valkey: Own
) -> None:
    postgres = own_postgres()
    assert isinstance(postgres, PostgresServer)
    valkey = own_valkey(requirepass="right").url.replace("//", "//:wrong@")
    for url, said in (
        (postgres.url_of("nowhere"), "no such database"),
        (wrong_password(postgres), "refused the password"),
        (valkey, "refuses the user or the password"),
        (valkey.replace("redis:", "redis+cluster:"), "refuses the user or the password"),
    ):
        for processes in ("1", "2"):
            with worker(folder, url, "--processes", processes) as refused:
                refused.wait_for(said)
                assert refused.wait() == 1
            assert AWAY not in refused.text
            assert "started again" not in refused.text


def test_a_worker_starts_on_a_full_redis_that_has_its_jobs(folder: Path, own_valkey: Own) -> None:
    server = own_valkey()
    with worker(folder, server.url, "--until-empty") as first:
        assert first.wait() == 0
    result = enqueue(server.url)
    line = redis.Redis.from_url(server.url)
    line.config_set("maxmemory", "1mb")
    with worker(folder, server.url) as started:
        started.wait_for("cannot claim jobs, retrying: .*has no memory left")
        line.config_set("maxmemory", "0")
        assert result() == 3
    line.close()


def test_a_full_redis_without_its_jobs_is_waited_for(folder: Path, own_valkey: Own) -> None:
    server = own_valkey(maxmemory="1mb")
    line = redis.Redis.from_url(server.url)
    with worker(folder, server.url) as late:
        late.wait_for(f"{AWAY}.*has no memory left")
        line.config_set("maxmemory", "0")
        late.wait_for("the storage is available after")
        assert enqueue(server.url)() == 3
    line.close()
