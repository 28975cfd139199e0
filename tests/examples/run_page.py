"""Run a page's blocks in order: ``python run_page.py page.md``, in the folder of its files.

Blocks share their names, as in one long session. A block that awaits runs on the event loop, any
other on a thread without one, as the code that it shows would. A page that speaks of PostgreSQL at
``localhost/shop`` runs with the server that ``WINDLASS_TEST_POSTGRES`` names.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import sys
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path.cwd())]

from tests.examples.pages import SERVER, blocks  # noqa: E402 -- found by the line above
from windlass import Windlass  # noqa: E402


async def run_blocks(page: Path) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    server = "//" + os.environ.get("WINDLASS_TEST_POSTGRES", SERVER).partition("//")[2]
    for block in blocks(page):
        if block.title is not None:
            continue
        # Padded, so that an error names the page's own line.
        padded = "\n" * (block.line - 1) + block.code.replace(SERVER, server)
        code = compile(
            padded, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True
        )
        if code.co_flags & inspect.CO_COROUTINE:
            await eval(code, names)  # noqa: S307 -- our own documentation
        else:
            await asyncio.to_thread(exec, code, names)
    for app in {
        id(value): value for value in names.values() if isinstance(value, Windlass)
    }.values():
        await app.close()


if __name__ == "__main__":
    asyncio.run(run_blocks(Path(sys.argv[1])))
