"""Deleting every key under the prefix."""

from __future__ import annotations

from windlass._storage.redis.io.calls import ScriptCalls
from windlass._storage.redis.io.connection import LoopConnection
from windlass._storage.redis.io.dialer import Dialer, check_files
from windlass._storage.redis.io.url import parse_url

__all__ = ["drop_redis"]

_AT_ONCE = 1000


async def drop_redis(url: str, prefix: str) -> None:
    """Delete all keys that start with ``{prefix}:``."""
    address = check_files(parse_url(url))
    dialer = Dialer(address, whole := f"{{{prefix}}}:")
    line = LoopConnection(dialer, ScriptCalls(functions=address.functions))
    try:
        # First: every script checks this key, so processes that are left write nothing any more.
        await line.ask("DEL", f"{whole}epoch")
        cursor = b"0"
        while True:
            cursor, keys = await line.ask("SCAN", cursor, "MATCH", f"{whole}*", "COUNT", _AT_ONCE)
            if keys:
                await line.ask("UNLINK", *keys)
            if bytes(cursor) == b"0":
                return
    finally:
        await line.close()
