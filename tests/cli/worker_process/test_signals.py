"""The way out when nothing else helps, and stacks on request."""

from __future__ import annotations

import asyncio
import queue
import signal
import subprocess
import sys

import pytest

from windlass._cli.worker_process.signals import StopRequests, _describe


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False
    )


def test_a_process_ends_in_time_with_threads_still_running() -> None:
    ended = run(
        "import threading\n"
        "from windlass._cli.worker_process.signals import exit_within\n"
        "exit_within(0.1, 7, lambda: print('last words', flush=True))\n"
        "threading.Thread(target=threading.Event().wait).start()\n"  # keeps the interpreter
    )
    assert (ended.returncode, ended.stdout) == (7, "last words\n")


def test_output_without_a_reader_does_not_delay_the_end() -> None:
    ended = run(
        "import threading\n"
        "from windlass._cli.worker_process.signals import exit_within\n"
        "exit_within(0.1, 7, threading.Event().wait)\n"
        "threading.Event().wait()\n"
    )
    assert ended.returncode == 7


async def test_a_task_is_shown_down_to_where_it_waits() -> None:
    reached = asyncio.Event()

    async def inner() -> None:
        reached.set()
        await asyncio.Event().wait()

    async def outer() -> None:
        await inner()

    task = asyncio.create_task(outer(), name="patient")
    await reached.wait()
    told = _describe({task})
    task.cancel()
    lines = told.partition("patient:\n")[2].splitlines()
    assert [line.rpartition(" ")[2] for line in lines[:3]] == ["outer", "inner", "wait"]
    assert "is called MainThread" in told


@pytest.mark.parametrize(
    ("supervised", "heard"),
    [
        (False, [(signal.SIGTERM, 1), (signal.SIGTERM, 2)]),
        (True, [(signal.SIGTERM, 1), (signal.SIGINT, 2), (signal.SIGTERM, 3)]),
    ],
)
def test_repeats_within_half_a_second_are_one_request(
    supervised: bool,  # noqa: FBT001
    heard: list[tuple[int, int]],
) -> None:
    """A supervisor passes on a second request as another signal, which counts at once."""
    told: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
    stops = StopRequests(supervised=supervised)
    for number, at in [
        (signal.SIGTERM, 10.0),
        (signal.SIGTERM, 10.3),
        (signal.SIGINT, 10.4),
        (signal.SIGTERM, 11.0),
    ]:
        stops._arrived.put((number, at))
    stops.tell(lambda number, count: told.put((number, count)))
    assert [told.get(timeout=10) for _ in heard] == heard
    assert told.empty()


def test_a_stop_that_python_ignores_before_the_start_is_carried_out_after_it() -> None:
    """Python ignores what is raised in a callback of a weak reference. Imports have such ones."""
    ended = run(
        "import os, queue, signal, weakref\n"
        "from windlass._cli.worker_process.signals import StopRequests\n"
        "class Thing: ...\n"
        "stops, told, thing = StopRequests(), queue.SimpleQueue(), Thing()\n"
        "stops.install()\n"
        "ref = weakref.ref(thing, lambda _: (os.kill(os.getpid(), signal.SIGTERM), id(1)))\n"
        "del thing\n"
        "stops.tell(lambda number, count: told.put((number, count)))\n"
        "print(told.get(timeout=10), flush=True)\n"
        "os._exit(0)\n"
    )
    assert "Exception ignored" in ended.stderr
    assert ended.stdout.strip() == str((int(signal.SIGTERM), 1))
