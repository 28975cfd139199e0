"""Gauges, as heartbeats store them and as they are read."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from windlass._core.stats.gauges import Gauge, GaugeRow
from windlass._core.values.instants import instant_of
from windlass._storage.redis.admin.listed_jobs import pairs
from windlass._storage.redis.io.database import RedisDatabase
from windlass._storage.redis.io.scripts import script

__all__ = ["gauge_bytes", "read_gauges"]

_GAUGES = script("gauges")
_MINUTES = 240
"""Minutes that one script reads."""

_pack = msgspec.msgpack.Encoder().encode
_gauges_of = msgspec.msgpack.Decoder(dict[str, Gauge]).decode


async def read_gauges(
    database: RedisDatabase, since: int, until: int, source: str | None
) -> list[GaugeRow]:
    """`AdminStore.gauges`."""
    rows: list[GaugeRow] = []
    while True:
        found = await database.run_aside(_GAUGES, since, until, _MINUTES)
        for minute, fields in pairs(found):
            stored = sorted((name.decode(), text) for name, text in pairs(fields))
            rows += [
                GaugeRow(instant_of(int(minute)), name, _gauges_of(text))
                for name, text in stored
                if source in (None, name)
            ]
            since = int(minute) + 1
        if len(found) < 2 * _MINUTES:
            return rows


def gauge_bytes(gauges: Mapping[str, Gauge]) -> bytes:
    """Return gauges as they are stored."""
    return _pack(gauges)
