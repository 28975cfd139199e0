"""The event loop of a worker process, which belongs to the worker and not to its handlers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from windlass._worker.run.loop_exits import LOOP_ENDING_ERRORS, LoopExits, run_to_completion

__all__ = ["fastest_loop", "run_to_end", "wait_for_start"]


def fastest_loop() -> tuple[Callable[[], asyncio.AbstractEventLoop] | None, str]:
    """Choose the loop's factory, and say its name."""
    try:
        import uvloop
    except ImportError:
        return None, "asyncio"
    return uvloop.new_event_loop, "uvloop"


def run_to_end(
    factory: Callable[[], asyncio.AbstractEventLoop] | None,
    main: Coroutine[Any, Any, int],
    escapes: LoopExits,
) -> int:
    """Run ``main`` on a new loop, which handlers cannot end before it."""
    runner = asyncio.Runner(loop_factory=factory)
    loop = runner.get_loop()
    try:
        return run_to_completion(loop, loop.create_task(main), escapes.note)
    finally:
        with suppress(*LOOP_ENDING_ERRORS):  # tasks that handlers left behind are cancelled there
            runner.close()


async def wait_for_start(running: asyncio.Task[Any], started: asyncio.Event) -> None:
    """Wait until ``running`` has ended or says that it has started."""
    waiting = asyncio.ensure_future(started.wait())
    try:
        await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
