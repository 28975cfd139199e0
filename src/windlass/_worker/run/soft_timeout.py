"""``soft_timeout=``: warn a handler once that its time is nearly up, so that it can clean up."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from datetime import timedelta
from typing import Any

from windlass._tasks.context import SoftTimeout
from windlass._tasks.task import Task
from windlass._worker.run.execution import Execution
from windlass.errors import JobTimeout

__all__ = ["call_handler"]


def call_handler(
    run: Execution, task: Task[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Awaitable[Any]:
    """Call a coroutine handler, which gets SoftTimeout if its task has a soft timeout."""
    work: Awaitable[Any] = task.function(*args, **kwargs)
    soft = task.settings.soft_timeout
    if soft is None:
        return work
    return _with_soft_timeout(work, soft, cancelled=lambda: run.why is not None)


async def _with_soft_timeout(
    work: Awaitable[Any], limit: timedelta, *, cancelled: Callable[[], bool]
) -> Any:
    """Await ``work``, and raise SoftTimeout inside it after ``limit``.

    ``cancelled``: tells whether the run was asked to end. A cancellation is one then.
    """
    body = asyncio.current_task()
    due = False

    def remind() -> None:
        nonlocal due
        if body is not None and not cancelled():
            due = True
            body.cancel()

    def instead(error: asyncio.CancelledError) -> BaseException:
        """Return what the handler gets where the task was cancelled."""
        nonlocal due
        if not due or cancelled() or body is None:
            return error
        due = False
        body.uncancel()
        return SoftTimeout(f"the soft timeout of {limit.total_seconds():g} s is over")

    timer = asyncio.get_running_loop().call_later(limit.total_seconds(), remind)
    try:
        return await _driven(_coroutine_of(work), instead)
    except SoftTimeout as error:
        # It is a cancellation to the code that it passes, and a failure to the job.
        message = f"ran longer than its soft timeout of {limit.total_seconds():g} s"
        raise JobTimeout(message) from error
    finally:
        timer.cancel()
        if due and body is not None:  # it ended before the reminder reached it
            body.uncancel()


async def _coroutine_of(work: Awaitable[Any]) -> Any:
    return await work


@types.coroutine
def _driven(
    work: Coroutine[Any, Any, Any], instead: Callable[[asyncio.CancelledError], BaseException]
) -> Generator[Any, Any, Any]:
    """Run ``work`` step by step, as ``await`` does, with other errors in place of cancellations."""
    error: BaseException | None = None
    while True:
        try:
            awaited = work.send(None) if error is None else work.throw(error)
        except StopIteration as end:
            return end.value
        error = None
        try:
            yield awaited
        except GeneratorExit:
            work.close()
            raise
        except asyncio.CancelledError as cancelled:
            error = instead(cancelled)
        except BaseException as other:  # noqa: BLE001 -- it belongs to the handler
            error = other
