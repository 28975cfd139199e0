"""The limits' definitions, and how their budgets stand."""

from __future__ import annotations

from collections.abc import Sequence

import apsw
import msgspec

from windlass._core.job.job import LimitUse
from windlass._core.limits.breaker import BreakerState
from windlass._core.limits.limit import LimitSpec, rescale_debt
from windlass._core.values.instants import instant_of, to_us, us_or_none
from windlass._storage.protocol.actions import AuditNote
from windlass._storage.protocol.limits import BreakerLook, LimitState
from windlass._storage.shared.sql_files import load_sql
from windlass._storage.sqlite.admin.audit import keep_audit
from windlass._storage.sqlite.io.database import SqliteDatabase
from windlass._storage.sqlite.io.rows import fetch, first, optional_instant, value_of
from windlass._storage.sqlite.io.wide_statement import WideStatement
from windlass._storage.sqlite.limits.budgets import SqliteBudgets
from windlass._storage.sqlite.limits.lanes import (
    LaneChanges,
    unblock_all_lanes,
    unblock_lanes_of_limit,
)
from windlass.errors import InvalidArgument, LimitUnknown

__all__ = ["SqliteLimits", "delete_unused_budgets", "require_limit", "restore_budget"]

_SQL = load_sql("windlass._storage.sqlite.sql", "lanes.sql")
_SPEC, _DEFINE, _SPECS = _SQL["spec"], _SQL["define"], _SQL["specs"]
_GATES, _USAGE, _PARKED = _SQL["gates_of_limit"], _SQL["usage"], _SQL["parked"]
_GATES_AFTER, _FORGET_GATE = _SQL["gates_after"], _SQL["forget_gate"]
_GATE, _BREAKERS = _SQL["gate"], _SQL["breakers"]
_RESTORE = load_sql("windlass._storage.sqlite.sql", "copy.sql")["restore_gate"]
_DEBTS, _RESET = _SQL["debts"], _SQL["reset_gate"]
_SPEND = WideStatement(_SQL["spend"])

_NAMES = load_sql("windlass._storage.sqlite.sql", "jobs.sql")["limit_names"]

_encode = msgspec.json.Encoder().encode
_spec_of = msgspec.json.Decoder(LimitSpec).decode


class SqliteLimits:
    """A `LimitStore`."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._db = database

    async def define(self, specs: Sequence[LimitSpec], *, audit: AuditNote | None = None) -> None:
        def op(connection: apsw.Connection, now: int) -> None:
            _define(connection, specs, now)
            keep_audit(connection, audit, len(specs), now)

        await self._db.write(op)
        self._db.subscribers.wake()

    async def drain(self, name: str, key: str = "", *, audit: AuditNote | None = None) -> None:
        def op(connection: apsw.Connection, now: int) -> None:
            if _drain(connection, LimitUse(name, key), now):
                keep_audit(connection, audit, 1, now)

        await self._db.write(op)

    async def reset(self, name: str, key: str = "", *, audit: AuditNote | None = None) -> None:
        def op(connection: apsw.Connection, now: int) -> None:
            _reset(connection, LimitUse(name, key))
            keep_audit(connection, audit, 1, now)

        await self._db.write(op)
        self._db.subscribers.wake()

    async def specs(self) -> Sequence[LimitSpec]:
        rows = self._db.read(lambda connection, _: fetch(connection, _SPECS))
        return [_spec_of(spec) for (spec,) in rows]

    async def states(self, name: str) -> Sequence[LimitState]:
        return await self._db.ask(lambda connection, _: _states(connection, name))

    async def breakers(self, names: Sequence[str]) -> Sequence[BreakerLook]:
        text = _encode(names).decode()
        rows = await self._db.ask(lambda connection, _: fetch(connection, _BREAKERS, (text,)))
        states = {
            gate: BreakerLook(BreakerState(failures, opened, optional_instant(until)), running)
            for gate, failures, opened, until, running in rows
        }
        return [states.get(name, BreakerLook()) for name in names]


def _define(connection: apsw.Connection, specs: Sequence[LimitSpec], now: int) -> None:
    for spec in specs:
        text = _encode(spec).decode()
        stored = value_of(connection, _SPEC, (spec.name,))
        # Every app defines its limits when it starts; most often nothing has changed.
        if stored == text:
            continue
        if stored is not None:
            _rescale(connection, spec, _read_spec(stored), now)
        connection.execute(_DEFINE, (spec.name, text))
        unblock_lanes_of_limit(connection, spec.name)


def _read_spec(text: str) -> LimitSpec | None:
    """Return the stored limit; None if it cannot be read: the new one replaces it."""
    try:
        return _spec_of(text)
    except (msgspec.MsgspecError, InvalidArgument):
        return None


def _rescale(connection: apsw.Connection, spec: LimitSpec, old: LimitSpec | None, now: int) -> None:
    """Rescale a debt in tokens, not in time."""
    if old is None or old.rate is None or spec.rate is None or old.rate == spec.rate:
        return
    at = instant_of(now)
    debts: list[tuple[str, int]] = []
    for gate, until in fetch(connection, _DEBTS, (spec.name, now)):
        owing = rescale_debt(spec.rate, instant_of(until), before=old.rate, now=at)
        if owing is not None:
            debts.append((gate, to_us(owing)))
    _SPEND.run(connection, debts)


def require_limit(connection: apsw.Connection, name: str) -> None:
    """Refuse an undefined limit."""
    if value_of(connection, _SPEC, (name,)) is None:
        raise LimitUnknown(name, {name for (name,) in fetch(connection, _NAMES)})


def _drain(connection: apsw.Connection, use: LimitUse, now: int) -> bool:
    """Empty a bucket; False: this limit has none."""
    require_limit(connection, use.name)
    gates = SqliteBudgets(connection, now)
    drained = gates.drain([use])
    LaneChanges(connection).store(gates, {})
    return drained


def _reset(connection: apsw.Connection, use: LimitUse) -> None:
    require_limit(connection, use.name)
    connection.execute(_RESET, (use.gate,))
    unblock_all_lanes(connection, use.gate)


def restore_budget(connection: apsw.Connection, state: LimitState) -> bool:
    """Store the state of a budget of another storage; False: it is the same here already."""
    gate = LimitUse(state.name, state.key).gate
    breaker = state.breaker or BreakerState()
    until = us_or_none(breaker.open_until)
    spent = us_or_none(state.spent_until)
    values = (spent, breaker.failures, breaker.opened, until)
    if first(connection, _GATE, (gate,)) == values:
        return False
    connection.execute(_RESTORE, (gate, *values))
    return True


def _states(connection: apsw.Connection, name: str) -> list[LimitState]:
    stored = value_of(connection, _SPEC, (name,))
    spec = None if stored is None else _spec_of(stored)
    breaks = spec is not None and spec.breaker is not None
    return [
        LimitState(
            name=name,
            key=gate[len(name) + 1 :],
            running=value_of(connection, _USAGE, (gate,)),
            spent_until=optional_instant(spent_until),
            breaker=BreakerState(failures, opened, optional_instant(until)) if breaks else None,
            parked=value_of(connection, _PARKED, (gate,)),
        )
        for gate, spent_until, failures, opened, until in fetch(connection, _GATES, (name,))
    ]


def delete_unused_budgets(
    connection: apsw.Connection, now: int, *, after: str, limit: int
) -> str | None:
    """Delete gates that are as if they had never been used, among the next ``limit`` by name.

    Return the cursor of the next chunk; None: this was the last. A limit with a key from the
    arguments has as many gates as there are keys.
    """
    rows = fetch(connection, _GATES_AFTER, (after, limit))
    for gate, spent_until, failures in rows:
        spent = spent_until is not None and spent_until > now
        if not spent and not failures and not value_of(connection, _USAGE, (gate,)):
            connection.execute(_FORGET_GATE, (gate,))
    return rows[-1][0] if len(rows) == limit else None
