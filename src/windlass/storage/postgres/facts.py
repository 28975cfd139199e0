"""What the server says of itself, for whoever looks after it."""

from __future__ import annotations

from collections.abc import Mapping

from windlass.storage.postgres.database import Database
from windlass.storage.queries import load

__all__ = ["facts_of"]

_SQL = load("windlass.storage.postgres.sql", "health.sql")
_FACTS, _HOLDING_BACK = _SQL["facts"], _SQL["holding_back"]


async def facts_of(database: Database, version: str) -> Mapping[str, float | str]:
    """`Storage.health`. What the server does not tell this role is left out."""
    facts: dict[str, float | str] = {
        "version": version,
        "durability": database.durability,
        "pooled": "yes" if database.server.pooled else "no",
    }
    rows = await database.fetch_aside(_FACTS, database.schema.strip('"'))
    facts |= {name: value for name, value in rows[0].items() if value is not None}
    holders = [
        (row["seconds"], row["who"])
        for row in await database.fetch_aside(_HOLDING_BACK)
        if row["seconds"] is not None
    ]
    if holders:
        facts["oldest_snapshot"], facts["oldest_snapshot_of"] = max(holders)
    return facts
