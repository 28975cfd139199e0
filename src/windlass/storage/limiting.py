"""The budgets jobs count against. Part of the contract: `protocol`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from windlass.core.breaker import BreakerState
from windlass.core.limit import LimitSpec
from windlass.storage.looks import LimitState
from windlass.storage.ordering import AuditNote

__all__ = ["LimitStore"]


class LimitStore(Protocol):
    """The budgets jobs count against. ``audit``, here and elsewhere: a record of who ordered the
    change, stored with it in one transaction if it takes effect, once however often it is said.
    """

    async def define(self, specs: Sequence[LimitSpec], *, audit: AuditNote | None = None) -> None:
        """Create or change limits by name. Takes effect at the next claim, for waiting jobs too:
        lanes that the new numbers would open return. Where the rate changes, what is owed are
        tokens, not time (`core.limit.owed`).
        """
        ...

    async def drain(self, name: str, key: str = "", *, audit: AuditNote | None = None) -> None:
        """Empty the bucket of one budget, for everybody; LimitUnknown, or nothing if the limit has
        no rate.
        """
        ...

    async def reset(self, name: str, key: str = "", *, audit: AuditNote | None = None) -> None:
        """Fill the bucket of one budget, or close a breaker; LimitUnknown. Wakes workers."""
        ...

    async def specs(self) -> Sequence[LimitSpec]:
        """Every defined limit, by name."""
        ...

    async def states(self, name: str) -> Sequence[LimitState]:
        """The budgets of one limit that are in use or were, by key."""
        ...

    async def breakers(self, names: Sequence[str]) -> Sequence[BreakerState]:
        """How these breakers are, in order, read at once; closed where nothing has failed."""
        ...
