"""Flows: which run, how far they are, and how they ended."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec
from starlette.responses import Response

from windlass._core.flows.flow import FlowRecord, FlowState
from windlass._web.graph.states import Tally, tally_of
from windlass._web.request import PageRequest
from windlass.errors import InvalidArgument

if TYPE_CHECKING:
    from windlass.admin import Admin

__all__ = ["FlowLine", "flows", "parse_number", "read_live_state"]

_SIZE = 50
_WORDS = ("name", "key", "tenant")
_SOON = 0.01
"""Less than this part of a flow has ended: its pace does not tell yet."""


class FlowLine(msgspec.Struct, frozen=True):
    """One flow as its row and its page show it."""

    flow: FlowRecord
    now: datetime

    @property
    def tally(self) -> Tally:
        return tally_of([self.flow])

    @property
    def state(self) -> str:
        return self.flow.state

    @property
    def stopping(self) -> bool:
        """Whether it was cancelled, but has not ended yet."""
        return self.flow.cancel_requested and self.flow.state is FlowState.RUNNING

    @property
    def progress(self) -> float:
        """The share of its jobs that have ended."""
        tally = self.tally
        return tally.ended / tally.total if tally.total else 1.0

    @property
    def percent(self) -> str:
        """The same in words. 100 % means that all have ended."""
        return f"{int(100 * self.progress)} %"

    @property
    def took(self) -> timedelta:
        """How long it took, or takes so far."""
        return max((self.flow.ended_at or self.now) - self.flow.created_at, timedelta(0))

    @property
    def rest(self) -> timedelta | None:
        """A plain estimate of the time until its end: the jobs that are left take as long on
        average as those that have ended. None: nothing can be said.
        """
        if self.flow.state is not FlowState.RUNNING or self.stopping or self.progress < _SOON:
            return None
        return self.took * ((1 - self.progress) / self.progress)


async def flows(visit: PageRequest) -> Response:
    """Return the page."""
    state, before = visit.asked("state"), parse_number(visit.asked("before"), "before")
    words = {name: visit.asked(name).strip() for name in _WORDS}
    now = await visit.admin.storage.now()
    found = await visit.admin.flows.list(
        states=_states(state),
        before=before,
        limit=_SIZE + 1,
        **{name: value or None for name, value in words.items()},
    )
    shown = found[:_SIZE]
    return await visit.render(
        "flows.html",
        now=now,
        rows=[FlowLine(flow, now) for flow in shown],
        words=words,
        narrow=any(words.values()),
        state=state,
        tabs=[
            ((one or "all").capitalize(), visit.changed(state=one, before=None), one == state)
            for one in ("", *FlowState)
        ],
        next=visit.changed(before=shown[-1].number) if len(found) > _SIZE else None,
        back=visit.changed(before=None) if before is not None else None,
    )


async def read_live_state(admin: Admin) -> object:
    """Return the newest flows with their counts, and those that run."""
    running = await admin.flows.list(states=[FlowState.RUNNING], limit=_SIZE)
    return await admin.flows.list(limit=_SIZE), running


def parse_number(text: str, word: str) -> int | None:
    """Read a cursor of the address."""
    if not text:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 16:
        message = f"{word} must be a number from an address of this page, got {text[:40]!r}"
        raise InvalidArgument(message)
    return int(text)


def _states(word: str) -> Sequence[FlowState] | None:
    if not word:
        return None
    try:
        return [FlowState(word)]
    except ValueError:
        known = ", ".join(FlowState)
        message = f"there is no state {word[:40]!r} of flows; use one of: {known}"
        raise InvalidArgument(message) from None
