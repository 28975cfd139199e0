"""A zygote for the whole run, and a scene for each test, on every durable backend."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.harness.backends import (
    DURABLE,
    POSTGRES,
    SQLITE,
    Place,
    on_file,
    on_prefix,
    on_schema,
)
from tests.crash.harness.processes import Processes
from tests.crash.harness.scene import Scene


@pytest.fixture(scope="session")
def processes() -> Iterator[Processes]:
    with Processes() as made:
        yield made


@pytest.fixture(params=DURABLE)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Where the jobs live. Tests for one backend say so: parametrize("place", [SQLITE], …)."""
    if request.param == SQLITE:
        return on_file(tmp_path / "jobs.db")
    if request.param == POSTGRES:
        return on_schema(*request.getfixturevalue("clean_schema"))
    return on_prefix(*request.getfixturevalue("redis_prefix"))


@pytest.fixture
def scene(tmp_path: Path, processes: Processes, place: Place) -> Iterator[Scene]:
    made = Scene(tmp_path, processes, place)
    yield made
    made.open_gate()
    processes.end_all()
    made.store.close()
