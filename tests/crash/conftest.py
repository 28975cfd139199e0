"""A zygote for the whole run, and a scene for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.processes import Processes
from tests.crash.scene import Scene


@pytest.fixture(scope="session")
def processes() -> Iterator[Processes]:
    with Processes() as made:
        yield made


@pytest.fixture
def scene(tmp_path: Path, processes: Processes) -> Iterator[Scene]:
    made = Scene(tmp_path, processes)
    yield made
    made.open_gate()
    processes.end_all()
