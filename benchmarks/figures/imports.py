"""Imports: what a program pays before its first line, and what a command pays before its answer.

Each way is a fresh interpreter, timed from outside, in turns; the figures are medians. The cost of
``import windlass`` is what it takes longer than ``import asyncio, msgspec``, which programs that
use it need anyway.
"""

from __future__ import annotations

import asyncio
import functools
import os
import sys
import time

from benchmarks.figure import Figure, Target
from benchmarks.stage import Stage, alternate

__all__ = ["measure"]

BARE = "import asyncio, msgspec"
WAYS = {
    "bare": BARE,
    "windlass": f"{BARE}, windlass",
    "an app": f"{BARE}\nfrom windlass import Windlass\nWindlass('memory://')",
    "click": "import click",
    "--help": "from windlass._cli.main import main\nmain(['--help'])",
}
TIMES = 3
"""Rounds for each round of other figures: these take milliseconds."""


async def measure(stage: Stage) -> list[Figure]:
    """Measure an import, an app, and the help of the command."""
    sizes, _, listener = stage
    ways = {name: functools.partial(_milliseconds, program) for name, program in WAYS.items()}
    for way in ways.values():
        await way()  # writes the compiled modules
    rounds = await alternate(TIMES * sizes.rounds, ways, listener)
    return [
        Figure(
            name="import",
            title="import windlass, beyond asyncio and msgspec",
            measured=max(rounds["windlass"] - rounds["bare"], 0.0),
            unit="ms",
            target=Target("at most", 40.0),
            note=f"{BARE}: {rounds['bare']:.0f} ms; {rounds.spread('windlass')}",
        ),
        Figure(
            name="import_app",
            title="the same with an app: Windlass('memory://')",
            measured=max(rounds["an app"] - rounds["bare"], 0.0),
            unit="ms",
            target=Target("at most", 40.0),
            note=rounds.spread("an app"),
        ),
        Figure(
            name="help",
            title="windlass --help",
            measured=rounds["--help"],
            unit="ms",
            yardstick=rounds["click"],
            yardstick_name="import click",
            target=Target("at most", 2.0, "ratio"),
            note=rounds.spread("--help"),
        ),
    ]


async def _milliseconds(program: str) -> float:
    # Compiled modules are kept, as those of an installed package are.
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, env=kept, stdout=asyncio.subprocess.DEVNULL
    )
    if await process.wait() != 0:
        raise RuntimeError(f"a program has failed: {program}")
    return (time.perf_counter() - began) * 1000
