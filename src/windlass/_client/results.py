"""Waiting for results: one waiter per event loop for all awaited ids."""

from __future__ import annotations

import asyncio

from windlass._core.job.job import JobId
from windlass._core.job.state import State
from windlass._storage.protocol.jobs import Settled
from windlass._storage.protocol.storage import Storage
from windlass._storage.shared.errors import copy_error, is_retryable
from windlass.errors import (
    AppClosed,
    JobCancelled,
    JobDiscarded,
    JobExpired,
    JobFailed,
    JobNotFound,
)

__all__ = ["ResultWaiter", "value_of"]

_POLL = 1.0
"""Behind the wake-ups: a lost one costs this long, never the answer."""
_PAUSE = 0.01
"""A busy store changes all the time; reading more often than this does not help."""
_SHARE = 10
"""Waiting callers take at most about a tenth of the store's capacity. The longer a read took, the
longer the pause after it, up to `_POLL`.
"""
_SLICE = 500
"""Ids in one question. A longer one would hold the store's reader up for others."""


class ResultWaiter:
    """Asks the store for all awaited jobs at once, when something changed and now and then."""

    def __init__(self, storage: Storage) -> None:
        """Make a waiter. It costs nothing until a caller waits."""
        self._storage = storage
        self._futures: dict[JobId, list[asyncio.Future[Settled]]] = {}
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()

    async def wait(self, job: JobId) -> Settled:
        """Wait until ``job`` is terminal, or known not to exist."""
        future: asyncio.Future[Settled] = asyncio.get_running_loop().create_future()
        self._futures.setdefault(job, []).append(future)
        self._changed.set()
        if self._task is None or self._task.done():  # cancelled before its first step
            self._task = asyncio.get_running_loop().create_task(self._watch())
        try:
            return await future
        finally:
            self._forget(job, future)

    async def close(self) -> None:
        """Stop reading, and wake all waiting callers with an error."""
        self._fail(AppClosed("the app was closed while a result was awaited; the job continues"))
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    def _fail(self, error: Exception) -> None:
        for futures in self._futures.values():
            for future in futures:
                if not future.done():
                    future.set_exception(copy_error(error))
        self._futures.clear()

    def _forget(self, job: JobId, future: asyncio.Future[Settled]) -> None:
        futures = self._futures.get(job)
        if futures is not None and future in futures:
            futures.remove(future)
            if not futures:
                del self._futures[job]
                self._changed.set()

    async def _watch(self) -> None:
        undo = self._storage.wakeups.subscribe(self._changed.set)
        time = asyncio.get_running_loop().time
        try:
            while self._futures:
                self._changed.clear()
                begun = time()
                await self._look()
                if not self._futures:
                    break
                await asyncio.sleep(min(max(_PAUSE, _SHARE * (time() - begun)), _POLL))
                try:
                    async with asyncio.timeout(_POLL):
                        await self._changed.wait()
                except TimeoutError:
                    continue
        finally:
            undo()
            self._task = None

    async def _look(self) -> None:
        waiting = list(self._futures)
        for start in range(0, len(waiting), _SLICE):
            try:
                settled = await self._storage.jobs.settled(waiting[start : start + _SLICE])
            except Exception as error:  # noqa: BLE001 -- delivered to those who wait
                # An outage ends no wait: the next read may reach the store again.
                if not is_retryable(error):
                    self._fail(error)
                return
            for one in settled:
                for future in self._futures.pop(one.id, ()):
                    if not future.done():
                        future.set_result(one)


def value_of(settled: Settled) -> bytes | None:
    """Return the encoded result of a job that succeeded, or raise why there is none."""
    match settled.state:
        case None:
            raise JobNotFound(settled.id)
        case State.FAILED:
            raise JobFailed(settled.id, settled.error_kind, settled.error_message)
        case State.CANCELLED:
            raise JobCancelled(settled.id, settled.reason or "")
        case State.DISCARDED if settled.reason == "expired":
            raise JobExpired(settled.id)
        case State.DISCARDED:
            raise JobDiscarded(settled.id, settled.reason or "no reason given")
        case _:
            return settled.result
