"""Where the child processes of ``run_in="process"`` begin: ``python -m windlass.cli.child FD``."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import sys
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from windlass.runtime.birth import be_a_child

if TYPE_CHECKING:
    from windlass.app import Windlass
    from windlass.runtime.escape import Escapes
    from windlass.runtime.frames import Hello
    from windlass.runtime.inside import Line

__all__ = ["main"]


def main() -> int:
    """Import the app as the worker has, and run what it sends."""
    be_a_child()
    from windlass.runtime.frames import Failed, Hello
    from windlass.runtime.inside import Line, LineLog, set_levels

    line = Line(int(sys.argv[1]))
    sys.argv[1:] = []
    hello = line.hear()
    if not isinstance(hello, Hello):
        return 1
    logging.getLogger().addHandler(LineLog(line))
    set_levels(hello.levels)
    here = os.getcwd()  # noqa: PTH109 -- sys.path wants text
    try:
        sys.path[:] = [here if entry == "." else entry for entry in hello.address.path]
        app = _load(hello.address.target, hello.address.modules)
        _run(app, line, hello)
    except BaseException as error:  # noqa: BLE001 -- the worker must hear of it, whatever it is
        line.say(Failed(_told(error)))
        return 1
    return 0


def _load(target: str, modules: Sequence[str]) -> Windlass:
    from windlass.cli.loading import load_app

    app = load_app(target)
    for module in modules:
        importlib.import_module(module)
    if not app._opener.shared:  # noqa: SLF001
        app._opener.open = _no_memory  # type: ignore[method-assign] # noqa: SLF001
    return app


async def _no_memory() -> NoReturn:
    from windlass.errors import AppClosed

    message = (
        "memory:// lives in the worker's process and this is a child of it: what is enqueued here "
        "would reach nobody. Use await ctx.enqueue(task.call(...)), or sqlite:///jobs.db"
    )
    raise AppClosed(message)


def _run(app: Windlass, line: Line, hello: Hello) -> None:
    from windlass.runtime.escape import Escapes, drive

    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        escapes = Escapes()
        drive(loop, loop.create_task(_live(app, line, hello, escapes)), escapes.note)


async def _live(app: Windlass, line: Line, hello: Hello, escapes: Escapes) -> None:
    from windlass.runtime.inside import Inside

    inside = Inside(app, line, hello)
    escapes.runner = inside.runner
    try:
        await inside.serve()
    finally:
        await app.close()


def _told(error: BaseException) -> str:
    from windlass.cli.loading import BrokenModule
    from windlass.errors import WindlassError

    if isinstance(error, BrokenModule):
        return f"{error}\n{error.trace}"
    if isinstance(error, WindlassError):
        return str(error)
    return "".join(traceback.format_exception(error)).rstrip()


if __name__ == "__main__":
    sys.exit(main())
