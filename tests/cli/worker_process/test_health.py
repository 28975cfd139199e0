"""What a worker tells probes and scrapers, from its start to its end."""

from __future__ import annotations

import asyncio
import http.client
import os
import re
import signal
import socket
import stat
from collections.abc import AsyncIterator
from http import HTTPStatus
from pathlib import Path

import apsw
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.cli.processes import PATIENCE, Running, until, windlass
from tests.cli.shop import Shop
from tests.servers.binaries import free_port
from windlass._cli.worker_process import health_server
from windlass._cli.worker_process.health import _File
from windlass._cli.worker_process.health_server import HealthServer, HttpResponse
from windlass._cli.worker_process.worker_options import WorkerOptions
from windlass._core.job.state import State
from windlass.errors import ConfigError

READY = (200, "ready\n")
QUICK = {"WINDLASS_HEARTBEAT": "100ms", "WINDLASS_LEASE": "2s"}


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def get(port: int, path: str, host: str = "127.0.0.1") -> tuple[int, str]:
    """What is there, or (0, "") while nobody answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request("GET", path, headers={"host": host})
        response = connection.getresponse()
        return response.status, response.read().decode()
    except OSError:
        return 0, ""
    finally:
        connection.close()


# --- a real worker -------------------------------------------------------------------------------


def test_a_worker_is_ready_until_it_drains_and_gone_when_it_has_ended(shop: Shop) -> None:
    port = free_port()
    job = shop.enqueue("nap", 5)
    with Running("worker", "shop:app", "--health-port", str(port), cwd=shop.folder) as worker:
        worker.wait_for(rf"/livez, /readyz on http://127.0.0.1:{port}")
        assert get(port, "/livez", host="evil.test")[0] == 421
        assert until(lambda: get(port, "/readyz") == READY)
        assert get(port, "/livez") == (200, "alive\n")
        assert get(port, "/metrics")[0] == 404
        assert until(lambda: shop.begun(job))
        worker.signal(signal.SIGTERM)
        worker.wait_for("SIGTERM: taking no new jobs")
        assert until(lambda: get(port, "/readyz") != READY)
        # Its job still runs: it drains, and that is no reason to kill it.
        assert get(port, "/readyz") == (503, "not ready: draining\n")
        assert get(port, "/livez") == (200, "alive\n")
        assert worker.wait() == 0
    assert shop.job(job).state is State.SUCCEEDED
    assert not listens(port)


def test_a_loop_that_is_stuck_does_not_answer(shop: Shop) -> None:
    port = free_port()
    with Running("worker", "shop:app", "--health-port", str(port), cwd=shop.folder) as worker:
        assert until(lambda: get(port, "/livez") == (200, "alive\n"))
        shop.enqueue("block", 5)
        worker.wait_for("has blocked the event loop")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=0.5)
        connection.request("GET", "/livez")
        with pytest.raises(TimeoutError):
            connection.getresponse()
        connection.close()
        assert until(lambda: get(port, "/livez") == (200, "alive\n"))
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0


def test_metrics_are_on_the_same_port_or_on_one_of_their_own(shop: Shop) -> None:
    health = free_port(1)
    metrics = health + 1
    job = shop.enqueue("add", 1, 2)
    ports = ("--health-port", str(health), "--metrics-port", str(metrics))
    with Running("worker", "shop:app", *ports, cwd=shop.folder) as worker:
        assert until(lambda: get(health, "/readyz") == READY)
        shop.result(job)
        for port in (health, metrics):
            code, text = get(port, "/metrics")
            assert code == 200
            found = {
                (sample.name, *sorted(sample.labels.values())): sample.value
                for family in text_string_to_metric_families(text)
                for sample in family.samples
            }
            assert found["windlass_runs_started_total", "default", "shop.add"] == 1
            assert found["windlass_runs_ended_total", "default", "shop.add", "succeeded"] == 1
            assert found["windlass_slots",] == 10
            assert found["windlass_jobs", "default", "succeeded"] == 1
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0


def test_metrics_that_the_app_has_switched_on_are_on_the_health_port(shop: Shop) -> None:
    port = free_port()
    with (shop.folder / "shop.py").open("a", encoding="utf-8") as file:
        file.write("\nfrom prometheus_client import CollectorRegistry\n")
        file.write("app.metrics(CollectorRegistry())\n")
    with Running("worker", "shop:app", "--health-port", str(port), cwd=shop.folder) as worker:
        assert until(lambda: get(port, "/readyz") == READY)
        _, text = get(port, "/metrics")
        assert "windlass_slots 10.0" in text
        assert "python_info" not in text  # a registry of its own
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0


def test_processes_take_ports_and_files_one_after_the_other(shop: Shop) -> None:
    port = free_port(1)
    file = shop.folder / "alive"
    options = ("--processes", "2", "--health-port", str(port), "--health-file", str(file))
    with Running("worker", "shop:app", *options, cwd=shop.folder, env=QUICK) as workers:
        assert until(lambda: get(port, "/readyz") == READY)
        assert until(lambda: get(port + 1, "/readyz") == READY)
        assert until(lambda: file.with_suffix(".1").exists() and file.with_suffix(".2").exists())
        workers.signal(signal.SIGTERM)
        assert workers.wait() == 0
    assert not listens(port)
    assert not listens(port + 1)
    assert list(shop.folder.glob("alive*")) == []


def test_the_file_is_touched_with_every_heartbeat_and_removed_at_the_end(shop: Shop) -> None:
    file = shop.folder / "alive"
    file.touch()
    os.utime(file, (0, 0))  # left by one that was killed
    with Running(
        "worker", "shop:app", "--health-file", str(file), cwd=shop.folder, env=QUICK
    ) as worker:
        assert until(lambda: file.exists() and file.stat().st_mtime > 0)
        for _ in range(3):
            before = file.stat().st_mtime_ns
            assert until(lambda before=before: file.stat().st_mtime_ns != before)
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
    assert not file.exists()


def test_only_the_owner_can_read_the_file_with_any_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        _File(tmp_path / "alive").touch()
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "alive").stat().st_mode) == 0o600


def test_the_file_is_never_another_one_that_a_link_leads_to(tmp_path: Path) -> None:
    (tmp_path / "else").write_text("kept")
    (tmp_path / "alive").symlink_to(tmp_path / "else")
    os.utime(tmp_path / "else", (0, 0))
    _File(tmp_path / "alive").touch()
    assert (tmp_path / "else").stat().st_mtime == 0


def test_the_file_is_not_touched_while_the_loop_is_stuck(shop: Shop) -> None:
    file = shop.folder / "alive"
    options = ("--health-file", str(file))
    with Running("worker", "shop:app", *options, cwd=shop.folder, env=QUICK) as worker:
        assert until(file.exists)
        shop.enqueue("block", 5)
        worker.wait_for("has blocked the event loop")
        before = file.stat().st_mtime_ns
        assert not until(lambda: file.stat().st_mtime_ns != before, seconds=0.5)
        assert until(lambda: file.stat().st_mtime_ns != before)
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0


def test_a_worker_that_cannot_reach_its_storage_is_not_ready(shop: Shop) -> None:
    port = free_port()
    options = ("--health-port", str(port))
    with Running("worker", "shop:app", *options, cwd=shop.folder, env=QUICK) as worker:
        assert until(lambda: get(port, "/readyz") == READY)
        lock = _locked(shop.folder / "jobs.db")
        try:
            assert until(lambda: get(port, "/readyz")[0] == 503)
            assert "the storage has not answered for" in get(port, "/readyz")[1]
            assert get(port, "/livez") == (200, "alive\n")
        finally:
            lock.close()
        assert until(lambda: get(port, "/readyz") == READY)
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0


def test_a_port_that_is_taken_is_said_and_nothing_starts(shop: Shop) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        ended = windlass("worker", "shop:app", "--health-port", port, cwd=shop.folder)
    assert ended.returncode == 1
    assert f"cannot listen on 127.0.0.1, port {port}" in ended.stdout + ended.stderr


def test_a_file_that_cannot_be_made_is_said_and_nothing_starts(shop: Shop) -> None:
    missing = str(shop.folder / "missing" / "alive")
    ended = windlass("worker", "shop:app", "--health-file", missing, cwd=shop.folder)
    assert ended.returncode == 1
    assert "no file can be made in" in ended.stdout + ended.stderr


def test_metrics_without_the_library_name_it(shop: Shop) -> None:
    (shop.folder / "prometheus_client.py").write_text("raise ImportError", encoding="utf-8")
    port = str(free_port())
    ended = windlass("worker", "shop:app", "--metrics-port", port, cwd=shop.folder)
    assert ended.returncode == 1
    assert "pip install 'windlass[metrics]'" in ended.stdout + ended.stderr


def _locked(path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(10_000)
    connection.execute("BEGIN EXCLUSIVE")
    return connection


# --- options -------------------------------------------------------------------------------------


def test_one_number_for_both_is_one_port() -> None:
    plan = WorkerOptions(target="shop:app", health_port=9100, metrics_port=9100)
    assert plan.ports() == plan.ports(1) == [9100]
    assert plan.ports(3) == [9102]
    plan.check_ports(16)


@pytest.mark.parametrize(("health", "metrics"), [(9100, 9101), (9101, 9100), (65535, None)])
def test_ports_that_processes_would_fight_for_are_refused(health: int, metrics: int | None) -> None:
    plan = WorkerOptions(target="shop:app", health_port=health, metrics_port=metrics)
    plan.check_ports(1)
    with pytest.raises(ConfigError, match="further apart, or the same"):
        plan.check_ports(2)


# --- the responder -------------------------------------------------------------------------------


@pytest.fixture
async def port() -> AsyncIterator[int]:
    async def here(accept: str) -> HttpResponse:
        return HttpResponse(HTTPStatus.OK, f"accepts {accept}".encode())

    async def broken(_: str) -> HttpResponse:
        raise ValueError("secret")

    served = HealthServer({"/here": here, "/broken": broken})
    number = free_port()
    await served.open("127.0.0.1", number)
    yield number
    await served.close()


async def said(port: int, request: bytes) -> str:
    """The whole answer, up to the end of the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    try:
        async with asyncio.timeout(PATIENCE):
            return (await reader.read()).decode()
    except ConnectionResetError:
        return ""
    finally:
        writer.close()


async def test_a_page_is_answered_and_the_connection_ends(port: int) -> None:
    answer = await said(port, b"GET /here?x=1 HTTP/1.1\r\nHost: a\r\naCCept: text/html\r\n\r\n")
    head, _, body = answer.partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 200 OK\r\n")
    assert "Connection: close" in head
    assert "Content-Length: 17" in head
    assert body == "accepts text/html"


@pytest.mark.parametrize(
    ("request_line", "code"),
    [
        ("GET /elsewhere HTTP/1.1", 404),
        ("POST /here HTTP/1.1", 405),
        ("HEAD /here HTTP/1.1", 405),
        ("GET /here", 400),
        ("GET /here SPDY/3", 400),
        ("\x16\x03\x01\x02", 400),
    ],
)
async def test_requests_other_than_get_are_refused(port: int, request_line: str, code: int) -> None:
    answer = await said(port, f"{request_line}\r\n\r\n".encode())
    assert answer.startswith(f"HTTP/1.1 {code} ")


async def test_a_request_without_end_is_cut(port: int) -> None:
    endless = b"GET /here HTTP/1.1\r\n" + b"X-Long: " + b"x" * 100_000
    answer = await said(port, endless)
    assert re.match(r"HTTP/1.1 431 |$", answer)  # or reset, before it was read


async def test_an_error_of_a_page_says_nothing_of_itself(
    port: int, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await said(port, b"GET /broken HTTP/1.1\r\n\r\n")
    assert answer.startswith("HTTP/1.1 500 ")
    assert "secret" not in answer
    assert "the page /broken could not be made" in caplog.text


async def test_a_client_that_sends_nothing_is_not_waited_for(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health_server, "_HEAD_WITHIN", 0.05)
    assert await said(port, b"GET /here HTT") == ""


@pytest.mark.parametrize("half", [b"GET /here HTT", b""])
async def test_half_sent_requests_keep_no_probe_from_its_answer(port: int, half: bytes) -> None:
    strangers: list[asyncio.StreamWriter] = []
    try:
        for _ in range(4):
            for _ in range(health_server._MOST // 3):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(half)
                strangers.append(writer)
            answer = await said(port, b"GET /here HTTP/1.1\r\n\r\n")
            assert answer.startswith("HTTP/1.1 200")
    finally:
        for writer in strangers:
            writer.close()


async def test_a_client_that_does_not_read_its_answer_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def large(_: str) -> HttpResponse:
        return HttpResponse(HTTPStatus.OK, b"x" * 20_000_000)

    monkeypatch.setattr(health_server, "_PATIENCE", 0.05)
    served = HealthServer({"/large": large})
    number = free_port()
    await served.open("127.0.0.1", number)
    received = await asyncio.to_thread(_read_late, number, served)
    assert received < 20_000_000  # reset, with most of it unsent
    await served.close()


def _read_late(port: int, served: HealthServer) -> int:
    """How much comes once the answer has been given up."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as client:
        client.sendall(b"GET /large HTTP/1.1\r\n\r\n")
        assert until(lambda: served._answering)
        assert until(lambda: not served._answering)
        received = 0
        try:
            while part := client.recv(1 << 20):
                received += len(part)
        except ConnectionError:
            pass
        return received


@pytest.mark.parametrize(
    ("host", "code"),
    [
        ("localhost:8080", 200),
        ("LOCALHOST", 200),
        ("127.0.0.1:8080", 200),
        ("[::1]:8080", 200),
        ("10.1.2.3", 200),
        ("evil.test:8080", 421),
        ("127.0.0.1.evil.test", 421),
    ],
)
async def test_another_site_that_leads_its_name_here_reads_nothing(host: str, code: int) -> None:
    async def here(_: str) -> HttpResponse:
        return HttpResponse(HTTPStatus.OK, b"told")

    served = HealthServer({"/here": here}, ["localhost"])
    number = free_port()
    await served.open("127.0.0.1", number)
    try:
        answer = await said(number, f"GET /here HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    finally:
        await served.close()
    assert answer.startswith(f"HTTP/1.1 {code} ")


def test_names_of_the_ports_are_given_on_to_children() -> None:
    plan = WorkerOptions(target="shop:app", health_names=("a.example", "b.example"))
    written = " ".join(plan.arguments())
    assert "--health-name a.example --health-name b.example" in written
