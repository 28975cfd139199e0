"""The app on both backends, on a clock that stands still."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from windlass import Windlass
from windlass.testing import VirtualClock


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture(params=["memory", "sqlite"])
async def app(
    request: pytest.FixtureRequest, tmp_path: Path, clock: VirtualClock
) -> AsyncIterator[Windlass]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db"
    async with Windlass(url, clock=clock) as app:
        yield app
