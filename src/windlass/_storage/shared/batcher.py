"""Natural batching: while one flush is under way, the next one collects.

No timers: an idle system adds no latency, a busy one pays one round trip for many calls. This is
the one idea that makes Python fast here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from windlass.errors import StorageError, StorageReplaced

__all__ = ["Batcher", "copy_error", "is_retryable"]

Item = TypeVar("Item")
Reply = TypeVar("Reply")
_Call = tuple[Sequence[Item], "asyncio.Future[Sequence[Reply]]"]


def is_retryable(error: BaseException) -> bool:
    """Whether trying the same thing again may help."""
    return isinstance(error, StorageError) and not isinstance(error, StorageReplaced)


def copy_error(error: BaseException) -> BaseException:
    """The same error for another caller: one object raised in many tasks mixes their traces."""
    kind = type(error)
    try:
        copy: BaseException = kind.__new__(kind, *error.args)
        copy.__dict__.update(error.__dict__)
        if hasattr(error, "__notes__"):
            copy.__notes__ = list(error.__notes__)
    except Exception:  # noqa: BLE001 -- a kind that cannot be copied is shared
        return error
    if type(copy) is not kind or str(copy) != str(error):
        return error
    copy.__cause__, copy.__context__ = error.__cause__, error.__context__
    copy.__suppress_context__ = error.__suppress_context__
    return copy.with_traceback(error.__traceback__)


class Batcher(Generic[Item, Reply]):
    """Merges concurrent calls into flushes. Calls are never split, and never fail for another.

    A flush that fails for good is halved by calls until the culprit stands alone and alone gets
    the error. Cancelling a caller never cancels a flush.
    """

    def __init__(
        self, flush: Callable[[Sequence[Item]], Awaitable[Sequence[Reply]]], *, largest: int
    ) -> None:
        """``flush`` answers item by item; ``largest`` bounds what is merged, not a single call."""
        self._flush = flush
        self._largest = largest
        self._waiting: deque[_Call[Item, Reply]] = deque()
        self._task: asyncio.Task[None] | None = None

    async def submit(self, items: Sequence[Item]) -> Sequence[Reply]:
        """Flush ``items`` together with whatever else is waiting; all or nothing for this call."""
        if not items:
            return []
        future: asyncio.Future[Sequence[Reply]] = asyncio.get_running_loop().create_future()
        self._waiting.append((items, future))
        # Done: it was cancelled before its first step, so that it could not say so.
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._drain())
        return await future

    async def idle(self) -> None:
        """Wait until nothing is under way."""
        while (task := self._task) is not None and not task.done():
            await asyncio.wait([task])

    async def _drain(self) -> None:
        calls: list[_Call[Item, Reply]] = []
        try:
            while self._waiting:
                calls = self._next()
                await self._send(calls)
        except BaseException as error:
            # Cancelled by other code, or about to end the event loop: no caller may wait for ever.
            _answer_with(error, [*calls, *self._waiting])
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

    async def _send(self, calls: list[_Call[Item, Reply]]) -> None:
        items = calls[0][0] if len(calls) == 1 else [item for call in calls for item in call[0]]
        try:
            replies = await self._flush(items)
        except Exception as error:  # noqa: BLE001 -- delivered to whom it concerns
            if len(calls) == 1 or is_retryable(error):
                _answer_with(error, calls)
                return
            half = len(calls) // 2
            await self._send(calls[:half])
            await self._send(calls[half:])
            return
        start = 0
        for sent, future in calls:
            end = start + len(sent)
            if not future.done():
                future.set_result(replies[start:end])
            start = end


def _answer_with(error: BaseException, calls: Sequence[_Call[Item, Reply]]) -> None:
    """Raise ``error`` in those who wait for these calls."""
    for _, future in calls:
        if future.done():
            continue
        if isinstance(error, asyncio.CancelledError):
            future.cancel()
        else:
            future.set_exception(error if len(calls) == 1 else copy_error(error))
