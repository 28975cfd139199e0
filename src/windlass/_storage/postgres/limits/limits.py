"""The limits' definitions, and how their budgets stand."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from windlass._core.job.job import LimitUse
from windlass._core.limits.breaker import BreakerState
from windlass._core.limits.limit import LimitSpec
from windlass._core.values.instants import instant_of, span_us
from windlass._storage.postgres.admin.audit import audit_note_text
from windlass._storage.postgres.io.connection import Row
from windlass._storage.postgres.io.database import PostgresDatabase
from windlass._storage.postgres.io.errors import FunctionError
from windlass._storage.postgres.io.rows import stored_span
from windlass._storage.protocol.actions import AuditNote
from windlass._storage.protocol.limits import BreakerLook, LimitState
from windlass._storage.shared.sql_files import load_sql
from windlass.errors import IdConflict, KeyConflict, LimitUnknown

__all__ = ["PostgresLimits", "limit_error_of"]

_SQL = load_sql("windlass._storage.postgres.sql", "jobs.sql")
_DEFINE, _SPECS, _STATES = _SQL["define"], _SQL["specs"], _SQL["limit_states"]
_BREAKERS = _SQL["breakers"]
_SET_GATE, _NAMES = _SQL["set_gate"], _SQL["limit_names"]

_encode = msgspec.json.Encoder().encode
_spec_of = msgspec.json.Decoder(LimitSpec).decode


async def limit_error_of(database: PostgresDatabase, refused: FunctionError) -> Exception:
    """Return the error for the code of a function that stores jobs or names a limit."""
    match refused.code:
        case "WL001":
            known = await database.fetch(database.sql(_NAMES), reads=True)
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

    def __init__(self, database: PostgresDatabase) -> None:
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
            audit_note_text(audit),
        )
        self._db.wake()

    async def drain(self, name: str, key: str = "", *, audit: AuditNote | None = None) -> None:
        await self._set_gate(name, key, audit, full=False)

    async def reset(self, name: str, key: str = "", *, audit: AuditNote | None = None) -> None:
        await self._set_gate(name, key, audit, full=True)
        self._db.wake()

    async def _set_gate(self, name: str, key: str, audit: AuditNote | None, *, full: bool) -> None:
        gate = LimitUse(name, key).gate
        asked = (self._db.instant(), self._db.durable, name, gate, full, audit_note_text(audit))
        try:
            await self._db.fetch_aside(self._db.sql(_SET_GATE), *asked)
        except FunctionError as refused:
            raise await limit_error_of(self._db, refused) from None

    async def specs(self) -> Sequence[LimitSpec]:
        rows = await self._db.fetch_aside(self._db.sql(_SPECS), reads=True)
        return [_spec_of(spec) for (spec,) in rows]

    async def states(self, name: str) -> Sequence[LimitState]:
        rows = await self._db.fetch_aside(self._db.sql(_STATES), name, reads=True)
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

    async def breakers(self, names: Sequence[str]) -> Sequence[BreakerLook]:
        rows = await self._db.fetch_aside(self._db.sql(_BREAKERS), names, reads=True)
        states = {row["gate"]: BreakerLook(_breaker_of(row), row["running"]) for row in rows}
        return [states.get(name, BreakerLook()) for name in names]


def _waits(spec: LimitSpec) -> str | None:
    """Return how long a breaker stays open, as the text of an array: they differ in length."""
    if spec.breaker is None:
        return None
    return f"{{{','.join(str(stored_span(span)) for span in spec.breaker.waits)}}}"


def _instant(us: int | None) -> datetime | None:
    return None if us is None else instant_of(us)


def _breaker_of(row: Row) -> BreakerState:
    return BreakerState(row["failures"], row["opened"], _instant(row["open_until"]))
