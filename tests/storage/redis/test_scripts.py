"""Every script is one that the server takes: a script has room for 200 local names."""

from __future__ import annotations

from importlib import resources

import pytest
from redis.asyncio import Redis

from windlass._storage.redis.io.scripts import script

NAMES = sorted(
    path.name.removesuffix(".lua")
    for path in (resources.files("windlass._storage.redis") / "lua").iterdir()
    if path.name.endswith(".lua")
)


@pytest.mark.parametrize("name", NAMES)
async def test_the_server_compiles_the_script(name: str, redis_url: str) -> None:
    server = Redis.from_url(redis_url)
    assert await server.script_load(script(name).text) == script(name).sha
    await server.aclose()
