"""One app per test, whose file must never come into being."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from windlass import Windlass
from windlass.testing import VirtualClock, isolated


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def app(file: Path) -> Windlass:
    return Windlass(f"sqlite:///{file}")


@pytest.fixture
def clock(app: Windlass, file: Path) -> Iterator[VirtualClock]:
    """The app is isolated for the whole test."""
    with isolated(app) as clock:
        yield clock
    assert not file.exists()
