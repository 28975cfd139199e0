"""Random flows on a backend and on the readable reference: every answer and every count agree."""

from __future__ import annotations

import os

import pytest

from tests.storage.comparison.flow_worlds import World
from windlass._storage.memory import MemoryDatabase, MemoryStorage
from windlass._storage.sqlite.io.connection import MemorySource
from windlass._storage.sqlite.storage import open_in_memory
from windlass.testing._clock import VirtualClock

WORLDS = range(int(os.environ.get("WINDLASS_TEST_RANDOM", "1")) * 40)


@pytest.mark.asyncio
async def test_flows_on_sqlite_and_the_reference_agree_step_by_step() -> None:
    for seed in WORLDS:
        clock = VirtualClock()
        store = await open_in_memory(MemorySource(), clock=clock)
        try:
            await World(seed, [MemoryStorage(MemoryDatabase(clock)), store], clock).live()
        except AssertionError as error:
            error.add_note(f"world {seed}")
            raise
        finally:
            await store.close()
