"""Merging concurrent calls into one write."""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from windlass._storage.shared.errors import copy_error, is_retryable

__all__ = ["Batcher"]

Item = TypeVar("Item")
Reply = TypeVar("Reply")
_Call = tuple[Sequence[Item], "asyncio.Future[Sequence[Reply]]"]
_Start = Callable[
    [Sequence[Item], Callable[[Sequence[Reply]], None]], "asyncio.Future[Sequence[Reply]]"
]


class Batcher(Generic[Item, Reply]):
    """Merges concurrent calls into flushes. Calls are never split, and never fail because of
    another.

    While one flush is running, the next one collects. There is no timer: an idle system adds no
    latency, a busy one pays one round trip for many calls.

    A flush that fails for good is halved by calls until the failing call is alone and gets the
    error. Cancelling a caller never cancels a flush that others share.
    """

    def __init__(
        self,
        flush: Callable[[Sequence[Item]], Awaitable[Sequence[Reply]]],
        *,
        largest: int,
        start: _Start[Item, Reply] | None = None,
        tell: Callable[[Sequence[Item], Sequence[Reply]], None] = lambda _items, _replies: None,
    ) -> None:
        """``flush`` answers item by item; ``largest`` bounds what is merged, not a single call.
        ``start`` begins to flush a call that is alone: it costs neither a task nor a second future.
        ``tell`` hears of all that was flushed, here: a caller that is cancelled meanwhile cannot.
        """
        self._flush = flush
        self._start = start
        self._tell = tell
        self._largest = largest
        self._waiting: deque[_Call[Item, Reply]] = deque()
        self._alone: asyncio.Future[Sequence[Reply]] | None = None
        self._task: asyncio.Task[None] | None = None

    async def submit(self, items: Sequence[Item]) -> Sequence[Reply]:
        """Flush ``items`` together with other waiting calls; all or nothing for this call."""
        if not items:
            return []
        # Done: it was cancelled before its first step, so that it could not say so.
        drains = self._task is not None and not self._task.done()
        if self._start is not None and self._alone is None and not drains:
            self._alone = self._start(items, functools.partial(self._tell, items))
            self._alone.add_done_callback(self._after_one)
            return await self._alone
        future: asyncio.Future[Sequence[Reply]] = asyncio.get_running_loop().create_future()
        self._waiting.append((items, future))
        if self._alone is None and not drains:
            self._task = asyncio.get_running_loop().create_task(self._drain())
        return await future

    def _after_one(self, alone: asyncio.Future[Sequence[Reply]]) -> None:
        self._alone = None
        if self._waiting:
            self._task = alone.get_loop().create_task(self._drain())

    async def idle(self) -> None:
        """Wait until nothing is under way."""
        # A lone call that is done counts until `_after_one` has started those that wait behind it.
        while self._alone is not None or (self._task is not None and not self._task.done()):
            await asyncio.wait([under_way for under_way in (self._alone, self._task) if under_way])

    async def _drain(self) -> None:
        calls: list[_Call[Item, Reply]] = []
        batches: list[list[_Call[Item, Reply]]] = []
        try:
            while self._waiting:
                batches = [self._next() if len(self._waiting) > 1 else [self._waiting.popleft()]]
                while batches:
                    calls = batches.pop()
                    items = calls[0][0]
                    if len(calls) > 1:
                        items = [item for call in calls for item in call[0]]
                    try:
                        replies = await self._flush(items)
                        self._tell(items, replies)
                    except Exception as error:  # noqa: BLE001 -- delivered to whom it concerns
                        batches += _halved(calls, error)
                        continue
                    start = 0
                    for sent, future in calls:
                        end = start + len(sent)
                        if not future.done():
                            future.set_result(replies[start:end])
                        start = end
        except BaseException as error:
            # Cancelled by other code, or about to end the event loop: no caller may wait for ever.
            _answer_with(error, [*calls, *(call for batch in batches for call in batch)])
            _answer_with(error, self._waiting)
            self._waiting.clear()
            raise
        finally:
            self._task = None

    def _next(self) -> list[_Call[Item, Reply]]:
        calls = [self._waiting.popleft()]
        size = len(calls[0][0])
        while self._waiting and size + len(self._waiting[0][0]) <= self._largest:
            calls.append(self._waiting.popleft())
            size += len(calls[-1][0])
        return calls


def _halved(
    calls: list[_Call[Item, Reply]], error: Exception
) -> Sequence[list[_Call[Item, Reply]]]:
    """Return the halves of a flush that failed, the first one last. Where halving is of no use, its
    calls get the error.
    """
    if len(calls) > 1 and not is_retryable(error):
        half = len(calls) // 2
        return [calls[half:], calls[:half]]
    _answer_with(error, calls)
    return []


def _answer_with(error: BaseException, calls: Sequence[_Call[Item, Reply]]) -> None:
    """Raise ``error`` in the callers that wait for these calls."""
    for _, future in calls:
        if future.done():
            continue
        if isinstance(error, asyncio.CancelledError):
            future.cancel()
        else:
            future.set_exception(error if len(calls) == 1 else copy_error(error))
