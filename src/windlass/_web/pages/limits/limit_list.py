"""Limits and breakers: how they stand, and what they hold back."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import msgspec
from starlette.responses import Response

from windlass._core.limits.limit import Rate, tokens_free
from windlass._observe.log import brief
from windlass._storage.protocol.limits import LimitState
from windlass._web.render.confirmation import ActionNotice, ActionPage, Confirmation
from windlass._web.render.paging import page_rows
from windlass._web.render.templates import compact_number
from windlass._web.request import PageRequest
from windlass.admin import LimitReport

if TYPE_CHECKING:
    from windlass.admin import Admin

__all__ = ["CLOSE", "EMPTY", "FILL", "limits", "read_live_state"]

_PAGE = "/limits"
_SHOWN = 20
_BUDGETS = 200
"""Of all limits of a page together: of those with keys the fullest."""


class LimitRow(msgspec.Struct, frozen=True):
    """One limit as its card shows it."""

    report: LimitReport
    now: datetime
    most: int = _SHOWN
    """Budgets that are shown of it."""
    declared_keyed: bool = False
    """Whether a task of this app gives it a key."""

    @property
    def name(self) -> str:
        return self.report.spec.name

    @property
    def rate(self) -> str:
        """In words."""
        return "" if self.report.spec.rate is None else rate_in_words(self.report.spec.rate)

    @property
    def keyed(self) -> bool:
        """Whether its numbers hold for each key, not for all jobs together."""
        return self.declared_keyed or any(one.key for one in self.report.budgets)

    @property
    def rule(self) -> str:
        """All of it in words."""
        most = self.report.spec.concurrency
        parts = ["" if most is None else f"{compact_number(most)} at once", self.rate]
        words = ", ".join(part for part in parts if part)
        return f"{words}, for each key" if self.keyed and words else words

    @property
    def running(self) -> int:
        """Under all of its keys."""
        return sum(one.running for one in self.report.budgets)

    @property
    def budgets(self) -> list[LimitState]:
        """Return those that hold most, first. An unused one can be emptied, too."""
        at_rest = [] if self.keyed else [LimitState(name=self.name, key="", running=0)]
        found = sorted(self.report.budgets or at_rest, key=lambda one: (-one.running, one.key))
        return found[: self.most]

    @property
    def more(self) -> int:
        """How many are not shown."""
        return max(len(self.report.budgets) - self.most, 0)

    def spent(self, budget: LimitState) -> bool:
        """Return whether the bucket of its rate is not full."""
        return budget.spent_until is not None and budget.spent_until > self.now

    def free(self, budget: LimitState) -> int:
        """Return how many may start now as far as the rate goes."""
        rate = self.report.spec.rate
        return 0 if rate is None else tokens_free(rate, budget.spent_until, self.now)


async def limits(visit: PageRequest) -> Response:
    """Return the page."""
    now = await visit.admin.storage.now()
    shown = page_rows(visit, await visit.admin.limits.list())
    breakers = page_rows(visit, await visit.admin.breakers.list(), word="breakers")
    each = min(max(_BUDGETS // max(len(shown.rows), 1), 1), _SHOWN)
    keyed = keyed_limits(visit)
    return await visit.render(
        "limits.html",
        now=now,
        rows=[LimitRow(one, now, each, one.spec.name in keyed) for one in shown.rows],
        shown=shown,
        breakers=breakers.rows,
        shown_breakers=breakers,
    )


def keyed_limits(visit: PageRequest) -> frozenset[str]:
    """Return the limits to which tasks of this app give a key."""
    tasks = visit.dashboard.app.tasks
    return frozenset(one.name for task in tasks for one in task.settings.limits if one.key)


async def read_live_state(admin: Admin) -> object:
    """Read the values of the page."""
    return await admin.limits.list(), await admin.breakers.list()


def rate_in_words(rate: Rate) -> str:
    """Describe a rate: ``10 per 1 s, bursts of 5``."""
    per = brief(rate.per)
    burst = f", bursts of {rate.burst:,}" if rate.burst > 1 else ""
    return f"{rate.n:,g} per {per}{burst}"


# --- orders ---------------------------------------------------------------------------------------


def _budget(visit: PageRequest) -> tuple[str, str, str]:
    """Return the limit, the key, and both in words."""
    name, key = visit.needed("limit"), visit.asked("key")
    return name, key, f"{name}, key {key}" if key else name


async def _ask_fill(visit: PageRequest) -> Confirmation:
    _, _, called = _budget(visit)
    return Confirmation(
        title=f"Refill the bucket of {called}?",
        sentence="Jobs may start at once, up to the whole burst.",
        button="Refill bucket",
        back=_PAGE,
    )


async def _fill(visit: PageRequest) -> ActionNotice:
    name, key, called = _budget(visit)
    await visit.orders.limits.reset(name, key)
    return ActionNotice(f"The bucket of {called} is full.", _PAGE)


async def _ask_empty(visit: PageRequest) -> Confirmation:
    _, _, called = _budget(visit)
    return Confirmation(
        title=f"Empty the bucket of {called}?",
        sentence="No job of this limit starts before the bucket refills at its rate. Use it when "
        "the service counted more calls than Windlass did.",
        button="Empty bucket",
        back=_PAGE,
    )


async def _empty(visit: PageRequest) -> ActionNotice:
    name, key, called = _budget(visit)
    await visit.orders.limits.drain(name, key)
    return ActionNotice(f"The bucket of {called} is empty.", _PAGE)


async def _ask_close(visit: PageRequest) -> Confirmation:
    task = visit.needed("task")
    return Confirmation(
        title=f"Close the breaker of {task}?",
        sentence="All its waiting jobs may start at once. If they still fail, the breaker opens "
        "again.",
        button="Close breaker",
        back=_PAGE,
    )


async def _close(visit: PageRequest) -> ActionNotice:
    task = visit.needed("task")
    await visit.orders.breakers.reset(task)
    return ActionNotice(f"The breaker of {task} is closed.", _PAGE)


FILL = ActionPage(ask=_ask_fill, act=_fill)
EMPTY = ActionPage(ask=_ask_empty, act=_empty)
CLOSE = ActionPage(ask=_ask_close, act=_close)
