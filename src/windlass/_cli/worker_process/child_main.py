"""The main module of child processes for ``run_in="process"``; its argument is a descriptor."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING

from windlass._worker.child_process.spawn import prepare_child

if TYPE_CHECKING:
    from windlass._app.app import Windlass
    from windlass._worker.child_process.child_runner import ParentConnection
    from windlass._worker.child_process.protocol import Hello
    from windlass._worker.run.loop_exits import LoopExits

__all__ = ["main"]


def main() -> int:
    """Import the app as the worker has, and run what it sends."""
    prepare_child()
    from windlass._worker.child_process.child_runner import (
        ParentConnection,
        ParentLogHandler,
        set_levels,
    )
    from windlass._worker.child_process.protocol import Hello, StartFailed

    line = ParentConnection(int(sys.argv[1]))
    sys.argv[1:] = []
    hello = line.hear()
    if not isinstance(hello, Hello):
        return 1
    logging.getLogger().addHandler(ParentLogHandler(line))
    set_levels(hello.levels)
    here = os.getcwd()  # noqa: PTH109 -- sys.path wants text
    try:
        sys.path[:] = [here if entry == "." else entry for entry in hello.address.path]
        app = _load(hello.address.target, hello.address.modules)
        _run(app, line, hello)
    except BaseException as error:  # noqa: BLE001 -- the worker must get any error
        line.say(StartFailed(_told(error)))
        return 1
    return 0


def _load(target: str, modules: Sequence[str]) -> Windlass:
    from windlass._app.parts import parts_of
    from windlass._cli.app_loader import load_app

    app = load_app(target)
    for module in modules:
        importlib.import_module(module)
    connections = parts_of(app).connections
    if not connections.opener.shared:
        connections.refuse(
            "memory:// exists only in the worker's process, and this is a child process of it: a "
            "job enqueued here would never run. Use await ctx.enqueue(task.call(...)), or "
            "sqlite:///jobs.db"
        )
    return app


def _run(app: Windlass, line: ParentConnection, hello: Hello) -> None:
    from windlass._worker.run.loop_exits import LoopExits, run_to_completion

    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        escapes = LoopExits()
        run_to_completion(loop, loop.create_task(_live(app, line, hello, escapes)), escapes.note)


async def _live(app: Windlass, line: ParentConnection, hello: Hello, escapes: LoopExits) -> None:
    from windlass._app.parts import parts_of
    from windlass._worker.child_process.child_runner import ChildRunner

    parts = parts_of(app)
    inside = ChildRunner(parts.hooks, parts.producer, line, hello)
    escapes.watch(inside.runner)
    try:
        await inside.serve()
    finally:
        await app.close()


def _told(error: BaseException) -> str:
    from windlass._cli.app_loader import BrokenModule
    from windlass.errors import WindlassError

    if isinstance(error, BrokenModule):
        return f"{error}\n{error.trace}"
    if isinstance(error, WindlassError):
        return str(error)
    return "".join(traceback.format_exception(error)).rstrip()


if __name__ == "__main__":
    sys.exit(main())
