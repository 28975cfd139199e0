"""A shop for every test that wants one, and a desk to give orders from, on any storage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.fixtures import Desk, empty_file
from tests.cli.shop import Shop


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path)
    yield made
    made.close()


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def each_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A storage that other processes can reach, one after the other."""
    fixture = {"postgres": "clean_database", "redis": "redis_url"}.get(request.param)
    return str(request.getfixturevalue(fixture) if fixture else empty_file(tmp_path))


@pytest.fixture
def everywhere(each_url: str, capsys: pytest.CaptureFixture[str]) -> Iterator[Desk]:
    made = Desk(each_url, capsys)
    yield made
    made.close()


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Desk]:
    made = Desk(empty_file(tmp_path), capsys)
    yield made
    made.close()
