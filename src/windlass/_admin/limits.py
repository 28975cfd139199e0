"""Limits and breakers of the whole cluster: how they stand, and other numbers for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from windlass._admin.session import AdminSession, check_changes
from windlass._core.limits.breaker import Breaker
from windlass._core.limits.limit import LimitSpec, Rate
from windlass._core.values.names import check_text
from windlass._storage.protocol.limits import BreakerLook, LimitState, LimitStore
from windlass._tasks.limits import Limit, breaker_name, is_written, task_of_breaker
from windlass.errors import BreakerUnknown, InvalidArgument, LimitUnknown

__all__ = ["BreakerReport", "LimitAdmin", "LimitReport"]


class LimitReport(msgspec.Struct, frozen=True):
    """A limit's numbers, and its budgets that are in use or were a short while ago."""

    spec: LimitSpec
    budgets: Sequence[LimitState]
    """By key."""


class BreakerReport(msgspec.Struct, frozen=True, kw_only=True):
    """A task's breaker as the cluster sees it now."""

    task: str
    breaker: Breaker
    state: Literal["closed", "open", "trial"]
    """``open``: nothing of the task starts before ``open_until``. ``trial``: that has passed, and
    one job at a time is let through until one of them succeeds."""
    failures: int
    """In a row."""
    opened: int
    """How often in a row."""
    open_until: datetime | None
    running: int


class LimitAdmin(AdminSession):
    """The part of ``app.admin`` that is about limits and breakers."""

    async def limits(self) -> Sequence[LimitReport]:
        """Every limit, by name."""
        store = (await self._storage()).limits
        specs = (await _specs(store)).values()
        return [
            LimitReport(spec, await self._shades.states(await store.states(spec.name)))
            for spec in specs
        ]

    async def set_limit(
        self,
        name: str,
        *,
        rate: Rate | UnsetType | None = UNSET,
        concurrency: int | UnsetType | None = UNSET,
    ) -> LimitSpec:
        """Change a limit for the whole cluster, from the next claim on. What is left out stays;
        None takes that part away.

        It holds until the numbers in the code change: a restart does not bring the old ones back.
        """
        if rate is UNSET and concurrency is UNSET:
            message = f"say what limit {name!r} should be: rate=Rate(n, per) or concurrency=n"
            raise InvalidArgument(message)
        store = (await self._storage()).limits
        old = await _limit(store, name)
        rate = old.rate if isinstance(rate, UnsetType) else rate
        concurrency = old.concurrency if isinstance(concurrency, UnsetType) else concurrency
        if rate is None and concurrency is None:
            message = (
                f"limit {name!r} would have neither rate nor concurrency, and limit nothing: "
                f"leave one of them, or take the limit from its tasks"
            )
            raise InvalidArgument(message)
        new = Limit(name, rate, concurrency).spec  # refuses what no task could ask for
        audit = self._note("limits.set", f"limit {name}", _said(rate, concurrency))
        await store.define([new], audit=audit)
        return new

    async def drain_limit(self, name: str, key: str = "") -> None:
        """Empty the bucket of a rate for everybody: somebody upstream counts otherwise.

        ``key``: of which budget, for a limit with keys, as `limits` shows it.
        """
        store = (await self._storage()).limits
        spec = await _limit(store, name)
        if spec.rate is None:
            message = f"limit {name!r} has no rate, so there is no bucket to drain"
            raise InvalidArgument(message)
        stored = await self._shades.budget(name, check_text(key, "key"))
        audit = self._note("limits.drain", _budget(name, await self._shades.text(key)))
        await store.drain(name, stored, audit=audit)

    async def reset_limit(self, name: str, key: str = "") -> None:
        """Fill the bucket of a rate: as if nothing had started yet."""
        store = (await self._storage()).limits
        await _limit(store, name)
        stored = await self._shades.budget(name, check_text(key, "key"))
        audit = self._note("limits.reset", _budget(name, await self._shades.text(key)))
        await store.reset(name, stored, audit=audit)

    async def breakers(self) -> Sequence[BreakerReport]:
        """Every breaker, by task."""
        storage = await self._storage()
        breakers, now = await _breakers(storage.limits), await storage.now()
        names = [breaker_name(task) for task in breakers]
        looks = await storage.limits.breakers(names) if names else ()
        return [
            _report(task, breaker, look, now)
            for (task, breaker), look in zip(breakers.items(), looks, strict=True)
        ]

    async def reset_breaker(self, task: str) -> None:
        """Close a task's breaker: its jobs start again at once."""
        store = (await self._storage()).limits
        await _breaker(store, task)
        audit = self._note("breakers.reset", f"breaker {task}")
        await store.reset(breaker_name(task), audit=audit)

    async def set_breaker(
        self,
        task: str,
        *,
        failures: int | UnsetType = UNSET,
        cool_down: timedelta | float | UnsetType = UNSET,
        growth: float | UnsetType = UNSET,
        longest: timedelta | float | UnsetType = UNSET,
    ) -> Breaker:
        """Other numbers for a task's breaker, from the next failure on. What is left out stays.

        They hold until those in the code change, as for `set_limit`.
        """
        given = {
            "failures": failures,
            "cool_down": cool_down,
            "growth": growth,
            "longest": longest,
        }
        changes = check_changes(given, f"the breaker of {task!r}")
        store = (await self._storage()).limits
        new = msgspec.structs.replace(await _breaker(store, task), **changes)
        said = ", ".join(f"{name}={value}" for name, value in changes.items())
        audit = self._note("breakers.set", f"breaker {task}", said)
        await store.define([LimitSpec(name=breaker_name(task), breaker=new)], audit=audit)
        return new


def _said(rate: Rate | None, concurrency: int | None) -> str:
    return f"rate={rate}, concurrency={concurrency}"


def _budget(name: str, key: str) -> str:
    return f"limit {name}, key {key}" if key else f"limit {name}"


async def _specs(store: LimitStore) -> Mapping[str, LimitSpec]:
    """What users call limits, by name."""
    specs = await store.specs()
    return {s.name: s for s in specs if s.breaker is None and not is_written(s)}


async def _limit(store: LimitStore, name: str) -> LimitSpec:
    specs = await _specs(store)
    if name not in specs:
        raise LimitUnknown(name, specs)
    return specs[name]


async def _breakers(store: LimitStore) -> Mapping[str, Breaker]:
    """By task."""
    specs = await store.specs()
    return {
        task_of_breaker(s): s.breaker for s in specs if s.breaker is not None and not is_written(s)
    }


async def _breaker(store: LimitStore, task: str) -> Breaker:
    breakers = await _breakers(store)
    if task not in breakers:
        raise BreakerUnknown(task, breakers)
    return breakers[task]


def _report(task: str, breaker: Breaker, look: BreakerLook, now: datetime) -> BreakerReport:
    state = look.state
    word: Literal["closed", "open", "trial"] = "closed"
    if state.holds(breaker):
        is_open = state.open_until is not None and state.open_until > now
        word = "open" if is_open else "trial"
    return BreakerReport(
        task=task,
        breaker=breaker,
        state=word,
        failures=state.failures,
        opened=state.opened,
        open_until=state.open_until,
        running=look.running,
    )
