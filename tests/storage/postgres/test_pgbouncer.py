"""Every conformance test through PgBouncer in transaction mode, where it is on the machine."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.servers.pgbouncer import PgBouncer, find_pgbouncer
from tests.servers.shared import SharedServers
from windlass._storage.postgres import open_postgres
from windlass._storage.protocol.storage import Storage
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance import ALL


@pytest.fixture(scope="module")
def pool(servers: SharedServers) -> Iterator[PgBouncer]:
    binary = find_pgbouncer()
    if binary is None:
        pytest.skip("PgBouncer is not on this machine: install the package pgbouncer")
    port = int(servers.postgres().rpartition(":")[2].partition("/")[0])
    made = PgBouncer(servers.folder, binary, port)
    yield made
    made.close()


@pytest.fixture
async def storage(
    pool: PgBouncer, clean_schema: tuple[str, str], clock: VirtualClock
) -> AsyncIterator[Storage]:
    url, schema = clean_schema
    opened = await open_postgres(pool.url_of(url), clock=clock, schema=schema)
    yield opened
    await opened.close()


@pytest.fixture
async def elsewhere(
    pool: PgBouncer, other_schema: tuple[str, str], clock: VirtualClock
) -> AsyncIterator[Storage]:
    url, schema = other_schema
    opened = await open_postgres(pool.url_of(url), clock=clock, schema=schema)
    yield opened
    await opened.close()


for suite in ALL:
    name = f"Test{suite.__name__}Pooled"
    globals()[name] = type(name, (suite,), {})
