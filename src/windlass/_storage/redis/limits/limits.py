"""The limits' definitions, and how their budgets stand."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windlass._core.limits.breaker import BreakerState
from windlass._core.limits.limit import LimitSpec
from windlass._core.values.instants import instant_of, span_us
from windlass._storage.protocol.actions import AuditNote
from windlass._storage.protocol.limits import BreakerLook, LimitState
from windlass._storage.redis.admin.audit import note_bytes
from windlass._storage.redis.io.database import RedisDatabase
from windlass._storage.redis.io.scripts import script
from windlass._storage.redis.jobs.insert import require_limits

__all__ = ["RedisLimits"]

_DEFINE, _LIMITS, _STATES = script("define_limits"), script("limits"), script("limit_states")
_BREAKERS = script("breakers")
_DRAIN, _RESET = script("drain"), script("reset")


class _StoredLimit(msgspec.Struct, array_like=True):
    """The spec, and what Lua needs of it: see ``spec_of`` in gates.lua."""

    spec: str
    spacing: int | None
    burst: int | None
    concurrency: int | None
    failures: int | None = None
    """Of a breaker, and how long it opens each time in a row; other limits were stored without."""
    waits: tuple[int, ...] | None = None


_json = msgspec.json.Encoder().encode
_pack = msgspec.msgpack.Encoder().encode
_spec_of = msgspec.json.Decoder(LimitSpec).decode
_stored_of = msgspec.msgpack.Decoder(_StoredLimit).decode


class RedisLimits:
    """A `LimitStore`."""

    def __init__(self, database: RedisDatabase) -> None:
        self._db = database

    async def define(self, specs: Sequence[LimitSpec], *, audit: AuditNote | None = None) -> None:
        given = [text for spec in specs for text in (spec.name, _stored(spec))]
        await self._db.run(_DEFINE, note_bytes(audit), *given)
        self._db.wake()

    async def drain(self, name: str, key: str = "", *, audit: AuditNote | None = None) -> None:
        require_limits(await self._db.run(_DRAIN, name, key, note_bytes(audit)))

    async def reset(self, name: str, key: str = "", *, audit: AuditNote | None = None) -> None:
        require_limits(await self._db.run(_RESET, name, key, note_bytes(audit)))
        self._db.wake()

    async def specs(self) -> Sequence[LimitSpec]:
        stored = await self._db.run(_LIMITS)
        specs = [_spec_of(_stored_of(text).spec) for text in stored]
        return sorted(specs, key=lambda spec: spec.name)

    async def states(self, name: str) -> Sequence[LimitState]:
        states: dict[bytes, LimitState] = {}
        cursor: bytes | None = b"0"
        while cursor is not None:
            at, *told = await self._db.run_aside(_STATES, name, cursor)
            for key, running, spent, parked, breaker in zip(*(iter(told),) * 5, strict=True):
                states[key] = LimitState(
                    name=name,
                    key=key.decode(errors="replace"),
                    running=running,
                    spent_until=instant_of(int(spent)) if spent else None,
                    breaker=_breaker_of(breaker) if breaker else None,
                    parked=parked,
                )
            cursor = None if at == b"0" else at
        return sorted(states.values(), key=lambda state: state.key)

    async def breakers(self, names: Sequence[str]) -> Sequence[BreakerLook]:
        answer = await self._db.run_aside(_BREAKERS, *names)
        pairs = zip(*(iter(answer),) * 2, strict=True)
        return [BreakerLook(_breaker_of(told), running) for told, running in pairs]


def _breaker_of(told: Sequence[int]) -> BreakerState:
    failures, opened, until = told
    return BreakerState(failures, opened, instant_of(until) if until else None)


def _stored(spec: LimitSpec) -> bytes:
    rate, breaker = spec.rate, spec.breaker
    spacing, burst = (None, None) if rate is None else (span_us(rate.spacing), rate.burst)
    stored: list[object] = [_json(spec).decode(), spacing, burst, spec.concurrency]
    if breaker is not None:
        stored += [breaker.failures, [span_us(wait) for wait in breaker.waits]]
    return _pack(stored)
