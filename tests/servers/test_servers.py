"""The servers of the tests themselves: shared, private, and gone when the run is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
import redis

from tests.crash.harness.processes import running, until
from tests.servers.postgres import PostgresServer
from tests.servers.shared import SharedServers
from tests.servers.valkey import ValkeyServer

ROOT = Path(__file__).parents[2]


def test_every_test_gets_an_empty_database(postgres_url: str, redis_url: str) -> None:
    with psycopg.connect(postgres_url) as line:
        tables = "SELECT count(*) FROM pg_stat_user_tables"
        assert line.execute(tables).fetchone() == (0,)
    with redis.Redis.from_url(redis_url) as client:
        assert client.dbsize() == 0


def test_there_is_one_server_of_each_kind(servers: SharedServers) -> None:
    assert servers.postgres() == servers.postgres()
    (first, one), (second, other) = servers.valkey(), servers.valkey()
    assert first == second
    assert one != other, "each asker gets a database of its own"


def test_postgres_keeps_what_was_committed_when_it_crashes(
    own_postgres: Callable[..., PostgresServer],
) -> None:
    server = own_postgres(durable=True)
    with psycopg.connect(server.url) as line:
        line.execute("CREATE TABLE kept AS SELECT 1 AS one")
    server.crash()
    server.start()
    with psycopg.connect(server.url) as line:
        assert line.execute("SELECT one FROM kept").fetchone() == (1,)


def test_valkey_keeps_what_it_has_written_down_when_it_is_killed(
    own_valkey: Callable[..., ValkeyServer],
) -> None:
    server = own_valkey(appendfsync="always")
    with redis.Redis.from_url(server.url) as client:
        client.set("kept", 1)
    server.crash()
    server.start()
    with redis.Redis.from_url(server.url) as client:
        assert client.get("kept") == b"1"


def test_a_paused_server_does_not_answer_and_then_continues(
    own_valkey: Callable[..., ValkeyServer], own_postgres: Callable[..., PostgresServer]
) -> None:
    valkey, postgres = own_valkey(), own_postgres()
    with psycopg.connect(postgres.url) as line, redis.Redis.from_url(valkey.url) as client:
        valkey.pause()
        postgres.pause()
        impatient = redis.Redis.from_url(valkey.url, socket_timeout=0.2, retry=None)
        with impatient, pytest.raises(redis.TimeoutError):
            impatient.ping()
        with pytest.raises(psycopg.errors.ConnectionTimeout):
            psycopg.connect(postgres.url, connect_timeout=2)
        valkey.go_on()
        postgres.go_on()
        assert client.ping()
        assert line.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.parametrize("workers", [0, 1])
def test_nothing_is_left_of_a_run_that_is_killed(tmp_path: Path, workers: int) -> None:
    """With xdist the one that is killed is not the one whose test has asked."""
    pids = tmp_path / "pids"
    (tmp_path / "test_asking.py").write_text(
        textwrap.dedent(f"""
            import os, pathlib, signal, psycopg, redis

            def test_asking(postgres_url, redis_url):
                client = redis.Redis.from_url(redis_url)
                with psycopg.connect(postgres_url) as line, client:
                    pids = [line.info.backend_pid, client.info("server")["process_id"]]
                    pathlib.Path({str(pids)!r}).write_text(" ".join(map(str, pids)))
                    signal.pause()
        """),
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout=60"]
    command += ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), "-p", "tests.conftest"]
    with subprocess.Popen(
        [*command, "-n", str(workers), str(tmp_path)], cwd=ROOT, stdout=subprocess.DEVNULL
    ) as run:
        until(lambda: pids.exists() and len(pids.read_text().split()) == 2, "both servers run")
        started = [int(pid) for pid in pids.read_text().split()]
        assert all(map(running, started))
        folder = Path(f"/proc/{started[1]}/cwd").resolve().parent
        os.kill(run.pid, signal.SIGKILL)
    until(lambda: not any(map(running, started)), "the servers end")
    until(lambda: not folder.exists(), "their files are removed")
