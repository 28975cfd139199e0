"""Circuit breakers of the whole cluster: their states, and other numbers for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from windlass._admin.session import AdminSession, check_changes
from windlass._core.limits.breaker import Breaker
from windlass._core.limits.limit import LimitSpec
from windlass._storage.protocol.limits import BreakerLook, LimitStore
from windlass._storage.protocol.storage import Storage
from windlass._tasks.limits import breaker_name, is_written, task_of_breaker
from windlass.errors import BreakerUnknown

__all__ = ["BreakerAdmin", "BreakerReport"]


class BreakerReport(msgspec.Struct, frozen=True, kw_only=True):
    """A task's breaker as the cluster sees it now."""

    task: str
    breaker: Breaker
    state: Literal["closed", "open", "trial"]
    """``open``: no job of the task starts before ``open_until``. ``trial``: that has passed, and
    one job at a time starts until one of them succeeds."""
    failures: int
    """In a row."""
    opened: int
    """How often in a row."""
    open_until: datetime | None
    running: int


class BreakerAdmin:
    """``app.admin.breakers``: circuit breakers by task, and other numbers for them."""

    def __init__(self, session: AdminSession) -> None:
        self._session = session

    async def list(self) -> Sequence[BreakerReport]:
        """List every breaker, by task."""
        storage = await self._session.storage()
        return await _reports(storage, await _breakers(storage.limits))

    async def get(self, task: str) -> BreakerReport:
        """Return the breaker of one task; BreakerUnknown."""
        storage = await self._session.storage()
        breaker = await _breaker(storage.limits, task)
        (report,) = await _reports(storage, {task: breaker})
        return report

    async def set(
        self,
        task: str,
        *,
        failures: int | UnsetType = UNSET,
        cool_down: timedelta | float | UnsetType = UNSET,
        growth: float | UnsetType = UNSET,
        longest: timedelta | float | UnsetType = UNSET,
    ) -> Breaker:
        """Change the numbers of a task's breaker, from the next failure on. A number that you
        leave out stays as it is.

        The change holds until a deploy changes the numbers in the code. A restart keeps it.
        """
        given = {
            "failures": failures,
            "cool_down": cool_down,
            "growth": growth,
            "longest": longest,
        }
        changes = check_changes(given, f"the breaker of {task!r}")
        store = (await self._session.storage()).limits
        new = msgspec.structs.replace(await _breaker(store, task), **changes)
        said = ", ".join(f"{name}={value}" for name, value in changes.items())
        audit = self._session.note("breakers.set", f"breaker {task}", said)
        await store.define([LimitSpec(name=breaker_name(task), breaker=new)], audit=audit)
        return new

    async def reset(self, task: str) -> None:
        """Close a task's breaker. Its jobs start again at once."""
        store = (await self._session.storage()).limits
        await _breaker(store, task)
        audit = self._session.note("breakers.reset", f"breaker {task}")
        await store.reset(breaker_name(task), audit=audit)


async def _breakers(store: LimitStore) -> Mapping[str, Breaker]:
    """Read every breaker, by task."""
    specs = await store.specs()
    return {
        task_of_breaker(s): s.breaker for s in specs if s.breaker is not None and not is_written(s)
    }


async def _breaker(store: LimitStore, task: str) -> Breaker:
    breakers = await _breakers(store)
    if task not in breakers:
        raise BreakerUnknown(task, breakers)
    return breakers[task]


async def _reports(storage: Storage, breakers: Mapping[str, Breaker]) -> Sequence[BreakerReport]:
    now = await storage.now()
    names = [breaker_name(task) for task in breakers]
    looks = await storage.limits.breakers(names) if names else ()
    return [
        _report(task, breaker, look, now)
        for (task, breaker), look in zip(breakers.items(), looks, strict=True)
    ]


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
