"""That measuring works, with tiny sizes; what it measures is nothing a test can judge."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import BY_BACKEND
from tests.architecture.source import ROOT
from windlass import Windlass
from windlass._cli.bench import measurement as measuring
from windlass._cli.bench.measurement import BenchSizes
from windlass._cli.main import main

WHOLE = bool(os.environ.get("WINDLASS_TEST_WHOLE"))
"""`make soak` measures every figure; by default the drain of each backend is enough."""
KEYS = {
    "enqueue_many",
    "enqueue_p50_ms",
    "enqueue_p99_ms",
    "drain",
    "pickup_p50_ms",
    "pickup_worst_ms",
}


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tiny = functools.partial(BenchSizes, singles=3, pickups=1, idle_seconds=0.0)
    monkeypatch.setattr(measuring, "BenchSizes", tiny)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def url_in(folder: Path) -> str:
    return f"sqlite:///{folder / 'used.db'}"


def counts(url: str) -> dict[str, int]:
    async def look() -> dict[str, int]:
        async with Windlass(url) as app:
            return {queue.queue: queue.ready for queue in await app.admin.queues.counts()}

    return asyncio.run(look())


def use(url: str) -> None:
    app = Windlass(url)

    @app.task(name="somebodys")
    async def somebodys() -> None: ...

    async def store() -> None:
        async with app:
            await somebodys.enqueue()

    asyncio.run(store())


def test_bench_measures_a_scratch_file_and_removes_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["bench", "--jobs", "20", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said.keys() >= KEYS
    assert all(said[key] > 0 for key in KEYS)
    assert said["across_processes"] is True
    assert list(tmp_path.iterdir()) == []


def test_bench_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--jobs", "20"]) == 0
    shown = capsys.readouterr().out
    assert "enqueue_many" in shown
    assert "jobs/s" in shown


def test_bench_on_memory_measures_within_its_process(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--url", "memory://", "--jobs", "20", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["across_processes"] is False


def test_bench_refuses_a_storage_with_jobs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    use(url_in(tmp_path))
    assert main(["bench", "--url", url_in(tmp_path), "--jobs", "20"]) == 1
    assert "already holds jobs (1)" in capsys.readouterr().err


def test_bench_leaves_other_jobs_alone_and_deletes_its_own(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    use(url_in(tmp_path))
    assert main(["bench", "--url", url_in(tmp_path), "--jobs", "20", "--force", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["drain"] > 0
    assert counts(url_in(tmp_path)) == {"default": 1}


@pytest.mark.timeout(300)
@pytest.mark.skipif(sys.platform != "linux", reason="the figures read /proc")
@pytest.mark.parametrize(
    ("backend", "name"),
    [
        (backend, name)
        for backend, names in BY_BACKEND.items()
        for name in names
        if name == "drain" or (WHOLE and backend == "sqlite")
    ],
)
def test_every_promised_figure_can_be_measured(backend: str, name: str) -> None:
    asked = ["--tiny", "--backend", backend, "--only", name, "--json"]
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks", *asked],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert run.returncode == 0, run.stderr
    (measured,) = json.loads(run.stdout)
    figures = measured["figures"]
    assert figures
    assert any(figure["met"] is not None for figure in figures)


@pytest.mark.timeout(300)
@pytest.mark.skipif(sys.platform != "linux", reason="the figures read /proc")
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs the history of a clone")
@pytest.mark.parametrize("backend", ["sqlite", "postgres", "redis"] if WHOLE else ["sqlite"])
def test_a_commit_is_compared_in_rates_and_in_processor_time(backend: str) -> None:
    asked = ["--tiny", "--backend", backend, "--against", "HEAD", "--json"]
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks", *asked],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert run.returncode == 0, run.stderr
    (measured,) = json.loads(run.stdout)
    figures = {figure["name"]: figure for figure in measured["figures"]}
    judged = {name for name, figure in figures.items() if figure["met"] is not None}
    assert judged == {
        "against_drain",
        "against_processor",
        "against_bulk",
        "against_at_once",
        "against_lone",
    }
    assert all(figures[name]["ratio"] > 0 for name in judged)
    if backend != "sqlite":
        parts = figures["against_worker"]["measured"] + figures["against_server"]["measured"]
        assert figures["against_processor"]["measured"] == pytest.approx(parts)


def test_an_unknown_figure_is_refused_with_the_known_ones() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--only", "speed"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert run.returncode == 2
    assert "latency" in run.stderr
