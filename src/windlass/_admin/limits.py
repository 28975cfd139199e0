"""Limits of the whole cluster: their usage, other numbers for them, and their token buckets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import UNSET, UnsetType

from windlass._admin.session import AdminSession
from windlass._core.limits.limit import LimitSpec, Rate
from windlass._core.values.names import check_text
from windlass._storage.protocol.limits import LimitState, LimitStore
from windlass._tasks.limits import Limit, is_written
from windlass.errors import InvalidArgument, LimitUnknown

__all__ = ["LimitAdmin", "LimitReport"]


class LimitReport(msgspec.Struct, frozen=True):
    """A limit's numbers, and its budgets that are in use or were a short while ago."""

    spec: LimitSpec
    budgets: Sequence[LimitState]
    """By key."""


class LimitAdmin:
    """``app.admin.limits``: usage of limits, and other numbers for them."""

    def __init__(self, session: AdminSession) -> None:
        self._session = session

    async def list(self) -> Sequence[LimitReport]:
        """List every limit with its usage, by name."""
        store = (await self._session.storage()).limits
        return [await self._report(store, spec) for spec in (await _specs(store)).values()]

    async def get(self, name: str) -> LimitReport:
        """Return one limit with its usage; LimitUnknown."""
        store = (await self._session.storage()).limits
        return await self._report(store, await _spec(store, name))

    async def set(
        self,
        name: str,
        *,
        rate: Rate | UnsetType | None = UNSET,
        concurrency: int | UnsetType | None = UNSET,
    ) -> LimitSpec:
        """Change a limit for the whole cluster, from the next claim on. A part that you leave out
        stays as it is; None removes it.

        The change holds until a deploy changes the numbers in the code. A restart keeps it.
        """
        if rate is UNSET and concurrency is UNSET:
            message = f"nothing to set on limit {name!r}: give rate=Rate(n, per) or concurrency=n"
            raise InvalidArgument(message)
        store = (await self._session.storage()).limits
        old = await _spec(store, name)
        rate = old.rate if isinstance(rate, UnsetType) else rate
        concurrency = old.concurrency if isinstance(concurrency, UnsetType) else concurrency
        if rate is None and concurrency is None:
            message = (
                f"limit {name!r} would have neither rate nor concurrency: keep one of them, or "
                f"remove the limit from its tasks"
            )
            raise InvalidArgument(message)
        new = Limit(name, rate, concurrency).spec  # refuses what no task could ask for
        said = f"rate={rate}, concurrency={concurrency}"
        audit = self._session.note("limits.set", f"limit {name}", said)
        await store.define([new], audit=audit)
        return new

    async def drain(self, name: str, key: str = "") -> None:
        """Empty the token bucket of a rate on all workers, when a service has counted more
        requests than you did.

        ``key``: the budget of a limit with keys, as `list` shows it.
        """
        store = (await self._session.storage()).limits
        spec = await _spec(store, name)
        if spec.rate is None:
            message = f"limit {name!r} has no rate, so there is no bucket to drain"
            raise InvalidArgument(message)
        masks = self._session.masks
        stored = await masks.budget(name, check_text(key, "key"))
        audit = self._session.note("limits.drain", _budget(name, await masks.text(key)))
        await store.drain(name, stored, audit=audit)

    async def reset(self, name: str, key: str = "") -> None:
        """Fill the token bucket of a rate, as if no job had started. ``key``: as for `drain`."""
        store = (await self._session.storage()).limits
        await _spec(store, name)
        masks = self._session.masks
        stored = await masks.budget(name, check_text(key, "key"))
        audit = self._session.note("limits.reset", _budget(name, await masks.text(key)))
        await store.reset(name, stored, audit=audit)

    async def _report(self, store: LimitStore, spec: LimitSpec) -> LimitReport:
        states = await store.states(spec.name)
        return LimitReport(spec, await self._session.masks.states(states))


def _budget(name: str, key: str) -> str:
    return f"limit {name}, key {key}" if key else f"limit {name}"


async def _specs(store: LimitStore) -> Mapping[str, LimitSpec]:
    """Read the specs that users call limits, by name."""
    specs = await store.specs()
    return {s.name: s for s in specs if s.breaker is None and not is_written(s)}


async def _spec(store: LimitStore, name: str) -> LimitSpec:
    specs = await _specs(store)
    if name not in specs:
        raise LimitUnknown(name, specs)
    return specs[name]
