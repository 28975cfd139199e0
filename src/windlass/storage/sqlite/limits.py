"""The limits' definitions, and how their budgets stand."""

from __future__ import annotations

from collections.abc import Sequence

import apsw
import msgspec

from windlass.core.limit import LimitSpec
from windlass.storage.protocol import LimitState
from windlass.storage.queries import load
from windlass.storage.sqlite.database import Database
from windlass.storage.sqlite.lanes import open_limit
from windlass.storage.sqlite.rows import fetch, instant, value_of

__all__ = ["SqliteLimits", "forget_gates"]

_SQL = load("windlass.storage.sqlite.sql", "lanes.sql")
_SPEC, _DEFINE, _SPECS = _SQL["spec"], _SQL["define"], _SQL["specs"]
_GATES, _USAGE, _PARKED = _SQL["gates_of_limit"], _SQL["usage"], _SQL["parked"]
_GATES_AFTER, _FORGET_GATE = _SQL["gates_after"], _SQL["forget_gate"]

_encode = msgspec.json.Encoder().encode
_spec_of = msgspec.json.Decoder(LimitSpec).decode


class SqliteLimits:
    """A `LimitStore`."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def define(self, specs: Sequence[LimitSpec]) -> None:
        await self._db.write(lambda connection, _: _define(connection, specs))
        self._db.wake()

    async def specs(self) -> Sequence[LimitSpec]:
        rows = self._db.read(lambda connection, _: fetch(connection, _SPECS))
        return [_spec_of(spec) for (spec,) in rows]

    async def states(self, name: str) -> Sequence[LimitState]:
        return self._db.read(lambda connection, _: _states(connection, name))


def _define(connection: apsw.Connection, specs: Sequence[LimitSpec]) -> None:
    for spec in specs:
        text = _encode(spec).decode()
        # Every app defines its limits when it starts; most often nothing has changed.
        if value_of(connection, _SPEC, (spec.name,)) != text:
            connection.execute(_DEFINE, (spec.name, text))
            open_limit(connection, spec.name)


def _states(connection: apsw.Connection, name: str) -> list[LimitState]:
    return [
        LimitState(
            name=name,
            key=gate[len(name) + 1 :],
            running=value_of(connection, _USAGE, (gate,)),
            spent_until=instant(spent_until),
            parked=value_of(connection, _PARKED, (gate,)),
        )
        for gate, spent_until in fetch(connection, _GATES, (name,))
    ]


def forget_gates(connection: apsw.Connection, now: int, *, after: str, limit: int) -> str | None:
    """Drop gates that are as if they had never been used, among the next ``limit`` by name.

    The answer is where to go on; None: this was the last bite. A limit with a key from the
    arguments has as many gates as there are keys.
    """
    rows = fetch(connection, _GATES_AFTER, (after, limit))
    for gate, spent_until in rows:
        spent = spent_until is not None and spent_until > now
        if not spent and not value_of(connection, _USAGE, (gate,)):
            connection.execute(_FORGET_GATE, (gate,))
    return rows[-1][0] if len(rows) == limit else None
