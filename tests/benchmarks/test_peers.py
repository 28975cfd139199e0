"""That ``make bench-peers`` measures, with Windlass alone; and that it notices what goes wrong."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest
from rich.console import Console

from benchmarks.peers import measurement
from benchmarks.peers.__main__ import measure
from benchmarks.peers.catalogue import CATALOGUE, Entry, UnknownName, chosen
from benchmarks.peers.measurement import Samples, Subject
from benchmarks.peers.picture import draw
from benchmarks.peers.report import COLUMNS, Row, as_markdown, best, values
from benchmarks.peers.sizes import TINY
from benchmarks.peers.workers import Failed
from benchmarks.place import Backend, Counters, open_place
from tests.architecture.source import ROOT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the figures read /proc")

(WINDLASS,) = chosen("windlass-sqlite")


class OneFile:
    """A place whose only store is a file that the test has named."""

    backend: Backend = "sqlite"
    version = "one file"

    def __init__(self, file: Path) -> None:
        self._url = f"sqlite:///{file}"

    @contextmanager
    def scratch(self) -> Iterator[str]:
        yield self._url

    def settle(self, url: str) -> None:
        with open_place("sqlite") as place:
            place.settle(url)

    def processor_seconds(self) -> float:
        return 0.0

    def counters(self, url: str) -> Counters:
        return dict


def broken(fault: str, folder: Path) -> Subject:
    entry = msgspec.structs.replace(WINDLASS, module="tests.benchmarks.broken_system")
    return Subject(entry, Path(sys.executable), OneFile(folder / f"{fault}.db"), TINY)


def peers(*asked: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.peers", "--tiny", "--here", *asked],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )


def test_every_figure_is_measured_through_the_protocol(tmp_path: Path) -> None:
    picture = tmp_path / "peers.svg"
    run = peers("--only", "windlass-sqlite", "--json", "--picture", str(picture))
    assert run.returncode == 0, run.stdout + run.stderr
    measured = json.loads(run.stdout)
    (system,) = measured["systems"]
    assert system["samples"]["error"] == ""
    assert system["figures"].keys() == {column.name for column in COLUMNS}
    assert all(value > 0 for value in system["figures"].values())
    assert system["samples"]["versions"].keys() == {"windlass"}
    assert len(system["samples"]["latency"]) == TINY.latencies
    assert "SQLite" in measured["machine"]["sqlite"]
    assert "Windlass SQLite" in picture.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("fault", "noticed"),
    [
        ("loses", r"210 runs of 211 jobs that were stored, and none is left"),
        ("repeats", r"210 different jobs were run of 211"),
        ("dies", r"a worker ended with 1: no such queue"),
    ],
)
async def test_a_system_that_fails_is_noticed(fault: str, noticed: str, tmp_path: Path) -> None:
    with pytest.raises(Failed, match=noticed):
        await broken(fault, tmp_path).store_and_drain()


async def test_a_worker_that_runs_nothing_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measurement, "_START_PATIENCE", 0.5)
    with pytest.raises(Failed, match="no job was run"):
        await broken("idles", tmp_path).sleep()


def test_a_system_that_is_not_installed_is_reported_and_the_exit_code_tells() -> None:
    run = peers("--only", "rq", "--json")
    assert run.returncode == 1
    (system,) = json.loads(run.stdout)["systems"]
    assert system["samples"]["error"].startswith("store, drain: ")
    assert set(system["figures"].values()) == {None}


def test_one_system_that_fails_does_not_end_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []

    async def first(subject: Subject) -> None:
        if subject.entry.library == "huey":
            raise Failed("it ended")
        taken.append(subject.entry.library)

    async def second(subject: Subject) -> None:
        taken.append(subject.entry.library)

    monkeypatch.setattr("benchmarks.peers.__main__.STEPS", {"first": first, "second": second})
    entries = chosen("huey-sqlite,windlass-sqlite")
    python = Path(sys.executable)
    rows, _ = measure(entries, [python, python], TINY, Console(quiet=True))
    assert taken == ["windlass", "windlass"]
    assert {row.entry.library: row.samples.error for row in rows} == {
        "huey": "first: Failed: it ended",
        "windlass": "",
    }


def test_an_unknown_system_is_refused_with_the_known_ones() -> None:
    run = peers("--only", "sidekiq")
    assert run.returncode == 2
    assert "pgqueuer" in run.stderr


def test_only_takes_libraries_and_full_names() -> None:
    assert [entry.name for entry in chosen("huey,saq-redis")] == [
        *("huey-sqlite", "huey-redis", "saq-redis")
    ]
    with pytest.raises(UnknownName, match="'saq-sqlite' is none of"):
        chosen("saq-sqlite")


@pytest.mark.parametrize("entry", CATALOGUE, ids=lambda entry: entry.name)
def test_every_system_has_its_module_and_its_pins(entry: Entry) -> None:
    module = ROOT / "benchmarks" / "peers" / "systems" / f"{entry.library}.py"
    assert module.is_file()
    if entry.library != "windlass":
        assert all(re.fullmatch(r"[\w,\[\]-]+==[\w.]+", one) for one in entry.requirements)
    assert entry.delivery in {"at least once", "at most once"}
    assert entry.caveat


def row(library: str, backend: str, **samples: Any) -> Row:
    (entry,) = chosen(f"{library}-{backend}")
    return Row(entry, Samples(**samples))


@pytest.fixture
def rows() -> list[Row]:
    figures = {
        "single": [900.0],
        "drain": [10.0, 30.0, 20.0],
        "latency": [float(ms) for ms in range(100)],
    }
    return [
        row("windlass", "redis", **figures),
        row("rq", "redis", drain=[15.0]),
        row("windlass", "postgres", drain=[99.0]),
        row("arq", "redis", error="store, drain: it ended"),
    ]


def test_figures_are_medians_and_percentiles_and_a_missing_one_is_none(rows: list[Row]) -> None:
    found = values(rows[0])
    assert (found["drain"], found["latency_p50"], found["latency_p99"]) == (20.0, 49.0, 98.0)
    assert found["bulk"] is None


def test_the_best_of_a_column_is_that_of_the_same_store(rows: list[Row]) -> None:
    columns = {column.name: column for column in COLUMNS}
    assert best(rows, columns["drain"], "redis") == 20.0
    assert best(rows, columns["latency_p50"], "redis") == 49.0
    assert best(rows, columns["bulk"], "redis") is None


def test_the_table_for_a_page_names_promises_and_failures(rows: list[Row]) -> None:
    page = as_markdown(rows, {"load": 0.1}, "quick")
    assert "| Windlass Redis | **900** |" in page
    assert "at least once" in page
    assert "failed: store, drain: it ended" in page


def test_the_picture_is_well_formed_and_has_a_bar_for_every_figure(rows: list[Row]) -> None:
    picture = ET.fromstring(draw(rows, {"machine": "<&>"}, "quick"))  # noqa: S314 -- our own text
    names = [element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {"Windlass Redis", "RQ Redis", "Windlass PostgreSQL", "arq Redis"} <= {*names}
    assert len(list(picture.iter("{http://www.w3.org/2000/svg}rect"))) == 6
