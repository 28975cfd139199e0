"""A session beside the storage."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from windlass._storage.postgres.storage import PostgresStorage


@pytest.fixture
async def outside(
    storage: PostgresStorage, clean_schema: tuple[str, str]
) -> AsyncIterator[asyncpg.Connection[Any]]:
    assert storage.shared
    url, schema = clean_schema
    connection = await asyncpg.connect(url, server_settings={"search_path": schema})
    yield connection
    await connection.close()
