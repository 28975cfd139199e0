"""Time, chance, identity and threads come through ``windlass._system.seams`` and nowhere else.

The simulation replaces the seams. Whatever reads a clock or draws a number elsewhere would make
its runs differ, and a failure found by a seed could not be found again.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from tests.architecture import exceptions
from tests.architecture.source import Module, dotted, imported_names, modules, nodes, parse

# The seams themselves, their part for green threads, and what replaces them in tests.
DOORS = re.compile(r"_system/.*|testing/.*")

FORBIDDEN = re.compile(
    r"""
      time\.(time|monotonic|perf_counter|process_time|thread_time|clock_gettime)(_ns)?
    | time\.(sleep|localtime|gmtime|ctime)
    | datetime\.(datetime\.(now|utcnow|today)|date\.today)
    | random\..+ | secrets\..+ | uuid\.uuid\d | os\.(urandom|getrandom)
    | threading\.(Thread|Timer) | _thread\..+
    | concurrent\.futures\..*Executor | multiprocessing\..+
    | asyncio\.to_thread
    | os\.(fork|forkpty)
    """,
    re.VERBOSE,
)

# Methods are found by their name alone: the object they belong to is not known here.
FORBIDDEN_METHODS = {"run_in_executor"}

ALLOWED: dict[str, str] = {}


def back_doors(sources: Iterable[Module]) -> Iterator[str]:
    """Every use, not only calls: a clock that is passed on is read elsewhere."""
    for module in sources:
        names = imported_names(module.tree)
        for node in nodes(module.tree):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Attribute) and node.attr in FORBIDDEN_METHODS:
                found = [node.attr]
            elif isinstance(node, ast.Attribute):
                found = [dotted(node, names) or ""]
            else:
                continue
            for name in found:
                if name in FORBIDDEN_METHODS or FORBIDDEN.fullmatch(name):
                    yield f"{module.path} {name}"


def test_nothing_passes_the_seams_by() -> None:
    inside = [module for module in modules() if not DOORS.fullmatch(module.path)]
    exceptions.check(set(back_doors(inside)), ALLOWED)


def test_back_doors_are_found_under_any_name() -> None:
    sample = parse(
        """
import datetime as dt, time, time as clock
from datetime import datetime
from random import random
from concurrent.futures import ThreadPoolExecutor
import os, uuid, threading, asyncio

dt.datetime.now(); datetime.now(); time.sleep(1); clock.monotonic_ns()
os.urandom(8); uuid.uuid4(); threading.Thread(); asyncio.to_thread(f)
loop.run_in_executor(None, f)
"""
    )
    assert sorted(name.removeprefix("sample.py ") for name in back_doors([sample])) == [
        "asyncio.to_thread",
        "concurrent.futures.ThreadPoolExecutor",
        "datetime.datetime.now",
        "datetime.datetime.now",
        "os.urandom",
        "random.random",
        "run_in_executor",
        "threading.Thread",
        "time.monotonic_ns",
        "time.sleep",
        "uuid.uuid4",
    ]


def test_values_of_those_modules_may_be_used() -> None:
    sample = parse(
        """
import os, threading, uuid
from datetime import UTC, datetime, timedelta

uuid.UUID(int=1); threading.Lock(); datetime.fromtimestamp(0, UTC); os.getpid()
self.clock.now(); seams.monotonic(); timedelta(seconds=1)
"""
    )
    assert list(back_doors([sample])) == []
