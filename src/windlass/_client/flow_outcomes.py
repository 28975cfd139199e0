"""The jobs of a group, one by one as they end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

from windlass._core.flows.results import PAGE
from windlass._core.job.job import FlowId, JobId
from windlass._core.job.state import TERMINAL
from windlass._core.values.instants import duration
from windlass._storage.protocol.flows import Member
from windlass._storage.protocol.storage import Storage
from windlass.errors import FlowNotFound, FlowTimeout

__all__ = ["POLL", "ended_members", "pause_after"]

POLL = 1.0
"""All that a caller waits for is looked at this often. A lost wake-up costs this long."""
_PAUSE = 0.02
"""A busy store changes all the time; reading more often than this does not help."""
_SHARE = 10
"""A waiting caller takes at most about a tenth of the store's capacity. The longer a read took, the
longer the pause after it, up to `POLL`.
"""
_FRONT = 2
"""Pages that are read at every change. Jobs end nearly in their order, so most ends are there."""

_OpenPage = dict[JobId, int]
"""Jobs of a part that were read together and have not ended, with their numbers."""


def pause_after(seconds: float) -> float:
    """Return how long a caller waits after a read that took this long."""
    return min(max(_PAUSE, _SHARE * seconds), POLL)


async def ended_members(
    storage: Storage, flow: FlowId, parts: Sequence[int], timeout: timedelta | float | None
) -> AsyncIterator[Member]:
    """Yield every job of these parts once, as soon as it has ended.

    FlowTimeout if the last one has not ended after ``timeout``, FlowNotFound if the flow is
    deleted meanwhile.
    """
    time = asyncio.get_running_loop().time
    deadline = None if timeout is None else time() + duration(timeout, "timeout").total_seconds()
    changed = asyncio.Event()
    undo = storage.wakeups.subscribe(changed.set)
    try:
        pages: list[_OpenPage] = []
        async for members in _first_read(storage, flow, parts):
            if page := {one.id: one.seq for one in members if one.state not in TERMINAL}:
                pages.append(page)
            for member in members:
                if member.state in TERMINAL:
                    yield member
        swept, took = time(), 0.0
        while pages:
            rest = POLL if deadline is None else min(POLL, deadline - time())
            if rest <= 0:
                raise FlowTimeout(flow, sum(map(len, pages)))
            await _wait(changed, rest, pause_after(took))
            begun, took = time(), 0.0
            whole = begun - swept >= POLL
            changed.clear()
            for page in pages if whole else pages[:_FRONT]:
                begun = time()
                news = await _new_ends(storage, flow, page)
                took += time() - begun
                for member in news:
                    yield member
            pages = [page for page in pages if page]
            swept = time() if whole else swept
    finally:
        undo()


async def _first_read(
    storage: Storage, flow: FlowId, parts: Sequence[int]
) -> AsyncIterator[Sequence[Member]]:
    """Read all jobs once, page by page."""
    found = False
    for part in parts:
        after = 0
        while members := await storage.flows.members(flow, part, after=after, limit=PAGE):
            found = True
            yield members
            after = members[-1].seq
    if not found and await storage.flows.states([flow]) == [None]:
        raise FlowNotFound(flow)


async def _new_ends(storage: Storage, flow: FlowId, page: _OpenPage) -> list[Member]:
    """Return those that have ended since the last look, and remove them from the page. Only their
    results are read, so each is read once.
    """
    news: list[Member] = []
    for one in await storage.jobs.settled(list(page)):
        if one.state is None:
            raise FlowNotFound(flow)
        news.append(
            Member(
                page.pop(one.id),
                one.id,
                one.state,
                blocked=False,
                result=one.result,
                error_kind=one.error_kind,
                error_message=one.error_message,
                reason=one.reason,
            )
        )
    return news


async def _wait(changed: asyncio.Event, rest: float, pause: float) -> None:
    """Wait for a change, at least for ``pause`` and at most for ``rest`` seconds."""
    await asyncio.sleep(min(pause, rest))
    try:
        async with asyncio.timeout(max(0.0, rest - pause)):
            await changed.wait()
    except TimeoutError:
        return
