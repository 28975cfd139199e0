"""The only list of backends: every conformance test runs on each of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from windlass.storage.memory import MemoryDatabase, MemoryStorage
from windlass.storage.protocol import Storage
from windlass.storage.sqlite import open_sqlite
from windlass.testing.clock import VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture(params=["memory", "sqlite"])
async def storage(
    request: pytest.FixtureRequest, tmp_path: Path, clock: VirtualClock
) -> AsyncIterator[Storage]:
    opened: Storage
    if request.param == "memory":
        opened = MemoryStorage(MemoryDatabase(clock))
    else:
        opened = await open_sqlite(tmp_path / "jobs.db", clock=clock)
    yield opened
    await opened.close()
