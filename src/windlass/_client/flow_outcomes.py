"""The jobs of a group, one by one as they end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

import msgspec

from windlass._core.flows.results import PAGE
from windlass._core.job.job import FlowId, JobId
from windlass._core.job.state import TERMINAL
from windlass._core.values.instants import duration
from windlass._storage.protocol.flows import Member
from windlass._storage.protocol.storage import Storage
from windlass.errors import FlowNotFound, FlowTimeout

__all__ = ["ended_members"]

_POLL = 1.0
"""Every page with open jobs is read this often. A lost wake-up costs this long."""
_PAUSE = 0.02
"""A busy store changes all the time; reading more often than this does not help."""
_FRONT = 2
"""Pages that are read at every change. Jobs end nearly in their order, so most ends are there."""


class _OpenPage(msgspec.Struct):
    """Jobs of a part that were read together, and those of them that have not ended."""

    part: int
    after: int
    open: set[JobId]


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
        async for page, members in _first_read(storage, flow, parts):
            for member in _ended(page, members):
                yield member
            if page.open:
                pages.append(page)
        swept = time()
        while pages:
            rest = _POLL if deadline is None else min(_POLL, deadline - time())
            if rest <= 0:
                raise FlowTimeout(flow, sum(len(page.open) for page in pages))
            await _wait(changed, rest)
            whole = time() - swept >= _POLL
            changed.clear()
            for page in pages if whole else pages[:_FRONT]:
                members = await storage.flows.members(flow, page.part, after=page.after, limit=PAGE)
                if not members:
                    raise FlowNotFound(flow)
                for member in _ended(page, members):
                    yield member
            pages = [page for page in pages if page.open]
            swept = time() if whole else swept
    finally:
        undo()


async def _first_read(
    storage: Storage, flow: FlowId, parts: Sequence[int]
) -> AsyncIterator[tuple[_OpenPage, Sequence[Member]]]:
    """Read all jobs once, page by page."""
    found = False
    for part in parts:
        after = 0
        while members := await storage.flows.members(flow, part, after=after, limit=PAGE):
            found = True
            yield _OpenPage(part, after, {member.id for member in members}), members
            after = members[-1].seq
    if not found and await storage.flows.graph(flow) is None:
        raise FlowNotFound(flow)


def _ended(page: _OpenPage, members: Sequence[Member]) -> list[Member]:
    """Return those that have ended since the last look, and note them."""
    news = [one for one in members if one.state in TERMINAL and one.id in page.open]
    page.open.difference_update(one.id for one in news)
    return news


async def _wait(changed: asyncio.Event, rest: float) -> None:
    """Wait for a change, at most ``rest`` seconds."""
    await asyncio.sleep(min(_PAUSE, rest))
    try:
        async with asyncio.timeout(max(0.0, rest - _PAUSE)):
            await changed.wait()
    except TimeoutError:
        return
