"""A home on each server, and a rig there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.chaos.fixtures import POSTGRES, SERVERS, Home, Rig, rigged
from tests.crash.harness.processes import Processes
from windlass.testing._clock import VirtualClock


@pytest.fixture(params=SERVERS)
def home(request: pytest.FixtureRequest) -> Home:
    """An empty place on a server that all tests share."""
    fixture = "clean_schema" if request.param == POSTGRES else "redis_prefix"
    return Home(request.param, *request.getfixturevalue(fixture))


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def rig(home: Home, clock: VirtualClock) -> AsyncIterator[Rig]:
    async with rigged(home, clock) as made:
        yield made


@pytest.fixture(scope="session")
def processes() -> Iterator[Processes]:
    with Processes() as made:
        yield made
