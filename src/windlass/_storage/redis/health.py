"""Values that a server reports about itself."""

from __future__ import annotations

from windlass._storage.redis.io.connection import LoopConnection
from windlass._storage.redis.io.durability import read_setting
from windlass.errors import StorageError, StorageUnavailable

__all__ = ["server_health"]

_SECTIONS = ("memory", "clients", "persistence", "stats", "replication")
_NUMBERS = {
    "used_memory": "size",
    "maxmemory": "maxmemory",
    "mem_fragmentation_ratio": "fragmentation",
    "connected_clients": "connections",
    "blocked_clients": "connections_blocked",
    "maxclients": "max_connections",
    "connected_slaves": "replicas",
    "evicted_keys": "evicted",
    "instantaneous_ops_per_sec": "operations_per_second",
    "aof_current_size": "append_only_file",
    "aof_delayed_fsync": "delayed_syncs",
}
_WORDS = {"role": "role", "maxmemory_policy": "eviction", "aof_last_write_status": "last_write"}


async def server_health(line: LoopConnection) -> dict[str, float | str]:
    """Numbers and words by our names for them; what it does not say, or may not, is left out."""
    told: dict[str, str] = {}
    try:
        for section in _SECTIONS:
            text = (await line.ask("INFO", section)).decode(errors="replace")
            told |= dict(row.split(":", 1) for row in text.splitlines() if ":" in row)
    except StorageUnavailable:
        raise
    except StorageError:
        return {}  # the user of the URL may not ask
    health: dict[str, float | str] = {}
    for name, ours in _NUMBERS.items():
        if name in told:
            health[ours] = float(told[name])
    health |= {ours: told[name] for name, ours in _WORDS.items() if name in told}
    return health | await _persistence(line, told.get("aof_enabled"))


async def _persistence(line: LoopConnection, enabled: str | None) -> dict[str, str]:
    """Return whether it keeps an append-only file, and how soon that is on disk, which INFO leaves
    out.
    """
    if enabled is None:
        return {}
    known = {"appendonly": "yes" if enabled == "1" else "no"}
    synced = await read_setting(line, "appendfsync")
    return known if synced is None else known | {"appendfsync": synced}
