"""The limits' definitions, and how their budgets stand."""

from __future__ import annotations

from collections.abc import Sequence

import apsw
import msgspec

from windlass.core.breaker import BreakerState
from windlass.core.instant import to_us
from windlass.core.job import LimitUse
from windlass.core.limit import LimitSpec, owed
from windlass.errors import InvalidArgument, LimitUnknown
from windlass.storage.calendar import instant_of
from windlass.storage.protocol import AuditNote, LimitState
from windlass.storage.queries import load
from windlass.storage.sqlite.audits import keep_audit
from windlass.storage.sqlite.database import Database
from windlass.storage.sqlite.gates import Gates
from windlass.storage.sqlite.lanes import Lanes, open_limit, open_wholly
from windlass.storage.sqlite.rows import fetch, first, instant, value_of

__all__ = ["SqliteLimits", "forget_gates", "require_limit", "restore_gate"]

_SQL = load("windlass.storage.sqlite.sql", "lanes.sql")
_SPEC, _DEFINE, _SPECS = _SQL["spec"], _SQL["define"], _SQL["specs"]
_GATES, _USAGE, _PARKED = _SQL["gates_of_limit"], _SQL["usage"], _SQL["parked"]
_GATES_AFTER, _FORGET_GATE = _SQL["gates_after"], _SQL["forget_gate"]
_GATE, _BREAKERS = _SQL["gate"], _SQL["breakers"]
_RESTORE = load("windlass.storage.sqlite.sql", "moving.sql")["restore_gate"]
_DEBTS, _SPEND, _RESET = _SQL["debts"], _SQL["spend"], _SQL["reset_gate"]

_NAMES = load("windlass.storage.sqlite.sql", "jobs.sql")["limit_names"]

_encode = msgspec.json.Encoder().encode
_spec_of = msgspec.json.Decoder(LimitSpec).decode


class SqliteLimits:
    """A `LimitStore`."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def define(self, specs: Sequence[LimitSpec], *, audit: AuditNote | None = None) -> None:
        def op(connection: apsw.Connection, now: int) -> None:
            _define(connection, specs, now)
            keep_audit(connection, audit, len(specs), now)

        await self._db.write(op)
        self._db.wake()

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
        self._db.wake()

    async def specs(self) -> Sequence[LimitSpec]:
        rows = self._db.read(lambda connection, _: fetch(connection, _SPECS))
        return [_spec_of(spec) for (spec,) in rows]

    async def states(self, name: str) -> Sequence[LimitState]:
        return await self._db.ask(lambda connection, _: _states(connection, name))

    async def breakers(self, names: Sequence[str]) -> Sequence[BreakerState]:
        text = _encode(names).decode()
        rows = await self._db.ask(lambda connection, _: fetch(connection, _BREAKERS, (text,)))
        states = {
            gate: BreakerState(failures, opened, instant(until))
            for gate, failures, opened, until in rows
        }
        return [states.get(name, BreakerState()) for name in names]


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
        open_limit(connection, spec.name)


def _read_spec(text: str) -> LimitSpec | None:
    """What is stored; None where it cannot be read: the new one takes its place."""
    try:
        return _spec_of(text)
    except (msgspec.MsgspecError, InvalidArgument):
        return None


def _rescale(connection: apsw.Connection, spec: LimitSpec, old: LimitSpec | None, now: int) -> None:
    """What is owed are tokens, not time."""
    if old is None or old.rate is None or spec.rate is None or old.rate == spec.rate:
        return
    at = instant_of(now)
    debts: list[tuple[str, int]] = []
    for gate, until in fetch(connection, _DEBTS, (spec.name, now)):
        owing = owed(spec.rate, instant_of(until), before=old.rate, now=at)
        if owing is not None:
            debts.append((gate, to_us(owing)))
    connection.executemany(_SPEND, debts)


def require_limit(connection: apsw.Connection, name: str) -> None:
    """Refuse a limit that nobody defined."""
    if value_of(connection, _SPEC, (name,)) is None:
        raise LimitUnknown(name, {name for (name,) in fetch(connection, _NAMES)})


def _drain(connection: apsw.Connection, use: LimitUse, now: int) -> bool:
    """Empty a bucket; False: this limit has none."""
    require_limit(connection, use.name)
    gates = Gates(connection, now)
    drained = gates.drain([use])
    Lanes(connection).store(gates, {})
    return drained


def _reset(connection: apsw.Connection, use: LimitUse) -> None:
    require_limit(connection, use.name)
    connection.execute(_RESET, (use.gate,))
    open_wholly(connection, use.gate)


def restore_gate(connection: apsw.Connection, state: LimitState) -> bool:
    """Take over how a budget stood elsewhere; False: it stands so here already."""
    gate = LimitUse(state.name, state.key).gate
    breaker = state.breaker or BreakerState()
    until = None if breaker.open_until is None else to_us(breaker.open_until)
    spent = None if state.spent_until is None else to_us(state.spent_until)
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
            spent_until=instant(spent_until),
            breaker=BreakerState(failures, opened, instant(until)) if breaks else None,
            parked=value_of(connection, _PARKED, (gate,)),
        )
        for gate, spent_until, failures, opened, until in fetch(connection, _GATES, (name,))
    ]


def forget_gates(connection: apsw.Connection, now: int, *, after: str, limit: int) -> str | None:
    """Drop gates that are as if they had never been used, among the next ``limit`` by name.

    The answer is where to go on; None: this was the last bite. A limit with a key from the
    arguments has as many gates as there are keys.
    """
    rows = fetch(connection, _GATES_AFTER, (after, limit))
    for gate, spent_until, failures in rows:
        spent = spent_until is not None and spent_until > now
        if not spent and not failures and not value_of(connection, _USAGE, (gate,)):
            connection.execute(_FORGET_GATE, (gate,))
    return rows[-1][0] if len(rows) == limit else None
