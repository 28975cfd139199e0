"""Every conformance test on a cluster of three nodes; each prefix lives on one of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.servers.cluster import ValkeyCluster
from tests.servers.fresh import new_name
from tests.servers.shared import SharedServers
from windlass._storage.protocol.storage import Storage
from windlass._storage.redis import open_redis
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance import ALL


@pytest.fixture(scope="module")
def cluster(servers: SharedServers) -> Iterator[ValkeyCluster]:
    made = ValkeyCluster(servers.folder)
    yield made
    made.close()


@pytest.fixture
async def storage(cluster: ValkeyCluster, clock: VirtualClock) -> AsyncIterator[Storage]:
    opened = await open_redis(cluster.url, clock=clock, prefix=new_name())
    yield opened
    await opened.close()


@pytest.fixture
async def elsewhere(cluster: ValkeyCluster, clock: VirtualClock) -> AsyncIterator[Storage]:
    opened = await open_redis(cluster.url, clock=clock, prefix=new_name())
    yield opened
    await opened.close()


for suite in ALL:
    name = f"Test{suite.__name__}OnACluster"
    globals()[name] = type(name, (suite,), {})
