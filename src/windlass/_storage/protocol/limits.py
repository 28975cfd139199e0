"""`LimitStore`: the budgets that jobs count against."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

import msgspec

from windlass._core.limits.breaker import BreakerState
from windlass._core.limits.limit import LimitSpec
from windlass._storage.protocol.actions import AuditNote

__all__ = ["BreakerLook", "LimitState", "LimitStore"]


class BreakerLook(msgspec.Struct, frozen=True):
    """One breaker as it is now."""

    state: BreakerState = BreakerState()
    running: int = 0
    """Claims of its task."""


class LimitState(msgspec.Struct, frozen=True, kw_only=True):
    """One budget (limit and key) as it is now."""

    name: str
    key: str
    running: int
    """Claims that count against it."""
    spent_until: datetime | None = None
    """Rate: when the bucket is full again."""
    breaker: BreakerState | None = None
    """For the gate of a breaker."""
    parked: int = 0
    """Lanes that wait for it; 0 where the backend parks none."""


class LimitStore(Protocol):
    """The budgets that jobs count against.

    ``audit``, here and elsewhere: the operator's action. It is stored in the transaction of the
    change, if the change takes effect, once for any number of repeats.
    """

    async def define(self, specs: Sequence[LimitSpec], *, audit: AuditNote | None = None) -> None:
        """Create or change limits by name. Takes effect at the next claim, for waiting jobs too:
        lanes that the new numbers would open return. If the rate changes, a debt keeps its tokens,
        not its time (`windlass._core.limits.limit.rescale_debt`).
        """
        ...

    async def drain(self, name: str, key: str = "", *, audit: AuditNote | None = None) -> None:
        """Empty the bucket of one budget for the whole cluster; LimitUnknown. Without a rate,
        nothing changes.
        """
        ...

    async def reset(self, name: str, key: str = "", *, audit: AuditNote | None = None) -> None:
        """Fill the bucket of one budget, or close a breaker; LimitUnknown. Wakes workers."""
        ...

    async def specs(self) -> Sequence[LimitSpec]:
        """List the defined limits, by name."""
        ...

    async def states(self, name: str) -> Sequence[LimitState]:
        """List the budgets of one limit that are or were in use, by key."""
        ...

    async def breakers(self, names: Sequence[str]) -> Sequence[BreakerLook]:
        """Return the state of these breakers, in order, read at once; closed where no run has
        failed.
        """
        ...
