"""The limits' definitions, and how their budgets stand."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windlass.core.instant import span_us
from windlass.core.limit import LimitSpec
from windlass.storage.calendar import instant_of
from windlass.storage.postgres.database import Database
from windlass.storage.protocol import LimitState
from windlass.storage.queries import load

__all__ = ["PostgresLimits"]

_SQL = load("windlass.storage.postgres.sql", "jobs.sql")
_DEFINE, _SPECS, _STATES = _SQL["define"], _SQL["specs"], _SQL["limit_states"]

_encode = msgspec.json.Encoder().encode
_spec_of = msgspec.json.Decoder(LimitSpec).decode


class PostgresLimits:
    """A `LimitStore`."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def define(self, specs: Sequence[LimitSpec]) -> None:
        rates = [spec.rate for spec in specs]
        await self._db.fetch_aside(
            self._db.sql(_DEFINE),
            self._db.durable,
            [spec.name for spec in specs],
            [_encode(spec).decode() for spec in specs],
            [None if rate is None else span_us(rate.spacing) for rate in rates],
            [None if rate is None else rate.burst for rate in rates],
            [None if rate is None else span_us(rate.span(rate.burst)) for rate in rates],
            [spec.concurrency for spec in specs],
        )
        self._db.wake()

    async def specs(self) -> Sequence[LimitSpec]:
        rows = await self._db.fetch_aside(self._db.sql(_SPECS))
        return [_spec_of(spec) for (spec,) in rows]

    async def states(self, name: str) -> Sequence[LimitState]:
        rows = await self._db.fetch_aside(self._db.sql(_STATES), name)
        return [
            LimitState(
                name=name,
                key=gate[len(name) + 1 :],
                running=running,
                spent_until=None if spent_until is None else instant_of(spent_until),
                parked=parked,
            )
            for gate, running, spent_until, parked in rows
        ]
