"""The limits' definitions, and how their budgets stand."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from windlass.core.breaker import BreakerState
from windlass.core.instant import span_us
from windlass.core.job import LimitUse
from windlass.core.limit import LimitSpec
from windlass.errors import IdConflict, KeyConflict, LimitUnknown
from windlass.storage.calendar import instant_of
from windlass.storage.ordering import AuditNote
from windlass.storage.postgres.audits import noted
from windlass.storage.postgres.connection import Row
from windlass.storage.postgres.database import Database
from windlass.storage.postgres.rows import stored_span
from windlass.storage.postgres.translate import Refused
from windlass.storage.protocol import LimitState
from windlass.storage.queries import load

__all__ = ["PostgresLimits", "refusal"]

_SQL = load("windlass.storage.postgres.sql", "jobs.sql")
_DEFINE, _SPECS, _STATES = _SQL["define"], _SQL["specs"], _SQL["limit_states"]
_BREAKERS = _SQL["breakers"]
_SET_GATE, _NAMES = _SQL["set_gate"], _SQL["limit_names"]

_encode = msgspec.json.Encoder().encode
_spec_of = msgspec.json.Decoder(LimitSpec).decode


async def refusal(database: Database, refused: Refused) -> Exception:
    """What a function meant that stores jobs or names a limit."""
    match refused.code:
        case "WL001":
            known = await database.fetch(database.sql(_NAMES))
            return LimitUnknown(refused.detail, {name for (name,) in known})
        case "WL423":
            holder, _, key = refused.detail.partition(" ")
            return KeyConflict(key, holder)
        case "WL424":
            return IdConflict(refused.detail)
        case _:
            return refused


class PostgresLimits:
    """A `LimitStore`."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def define(self, specs: Sequence[LimitSpec], *, audit: AuditNote | None = None) -> None:
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
            [None if spec.breaker is None else spec.breaker.failures for spec in specs],
            [_waits(spec) for spec in specs],
            self._db.instant(),
            noted(audit),
        )
        self._db.wake()

    async def drain(self, name: str, key: str = "", *, audit: AuditNote | None = None) -> None:
        await self._set_gate(name, key, audit, full=False)

    async def reset(self, name: str, key: str = "", *, audit: AuditNote | None = None) -> None:
        await self._set_gate(name, key, audit, full=True)
        self._db.wake()

    async def _set_gate(self, name: str, key: str, audit: AuditNote | None, *, full: bool) -> None:
        gate = LimitUse(name, key).gate
        asked = (self._db.instant(), self._db.durable, name, gate, full, noted(audit))
        try:
            await self._db.fetch_aside(self._db.sql(_SET_GATE), *asked)
        except Refused as refused:
            raise await refusal(self._db, refused) from None

    async def specs(self) -> Sequence[LimitSpec]:
        rows = await self._db.fetch_aside(self._db.sql(_SPECS))
        return [_spec_of(spec) for (spec,) in rows]

    async def states(self, name: str) -> Sequence[LimitState]:
        rows = await self._db.fetch_aside(self._db.sql(_STATES), name)
        return [
            LimitState(
                name=name,
                key=row["gate"][len(name) + 1 :],
                running=row["running"],
                spent_until=_instant(row["spent_until"]),
                breaker=_breaker_of(row) if row["breaker"] else None,
                parked=row["parked"],
            )
            for row in rows
        ]

    async def breakers(self, names: Sequence[str]) -> Sequence[BreakerState]:
        rows = await self._db.fetch_aside(self._db.sql(_BREAKERS), names)
        states = {row["gate"]: _breaker_of(row) for row in rows}
        return [states.get(name, BreakerState()) for name in names]


def _waits(spec: LimitSpec) -> str | None:
    """How long a breaker stays open, as the text of an array: they differ in length."""
    if spec.breaker is None:
        return None
    return f"{{{','.join(str(stored_span(span)) for span in spec.breaker.waits)}}}"


def _instant(us: int | None) -> datetime | None:
    return None if us is None else instant_of(us)


def _breaker_of(row: Row) -> BreakerState:
    return BreakerState(row["failures"], row["opened"], _instant(row["open_until"]))
