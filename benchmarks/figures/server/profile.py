"""Profile: where the processor time of one job goes, in the worker and in its storage.

One worker process drains jobs that do nothing, with 1, 10, 50 and 200 slots. A timer interrupts its
main thread after every two milliseconds of processor time and charges them to the part of Windlass
whose Python function runs, or called what runs. Other threads, which commit on SQLite, are counted
by the kernel. Servers count the time of their processes, of functions (PostgreSQL) and of commands
(Redis). The timer costs about a hundredth.
"""

from __future__ import annotations

import ctypes
import functools
import signal
import statistics
import threading
import time
from types import FrameType
from typing import ClassVar

from benchmarks.child import answer, child, requests
from benchmarks.figure import Figure
from benchmarks.figures.drain import noops
from benchmarks.place import Place
from benchmarks.stage import Stage
from benchmarks.worker import App, drained, fill
from windlass._app.parts import parts_of

__all__ = ["PARTS", "SLOTS", "measure", "serve_sampled"]

SLOTS = (1, 10, 50, 200)
_SHARE = {1: 0.1, 10: 0.5, 50: 1.0, 200: 1.0}
"""Of the jobs of a drain."""
_INTERVAL = 0.002
PARTS = {
    "decode": "decode arguments",
    "run": "run the job",
    "finish": "outcome and finisher",
    "claim": "claimer",
    "store": "calls of the store",
    "driver": "driver and network",
    "loop": "event loop and rest",
    "threads": "other threads",
    "server": "server",
}
"""Titles, the parts of the worker first."""
_FILES = {
    "windlass/_core/values/payload": "decode",
    "windlass/_core/job/transition": "finish",
    "windlass/_worker/finish": "finish",
    "windlass/_worker/claim": "claim",
    "windlass/_worker/": "run",
    "windlass/_storage/": "store",
    "windlass/": "run",
    "benchmarks/worker": "run",
    "/asyncpg/": "driver",
    "/redis/": "driver",
}
"""Parts by the paths of their files. The first that matches counts."""


async def measure(stage: Stage) -> list[Figure]:
    """Return the microseconds of a job by part, for each number of slots."""
    sizes, place, listener = stage
    figures: list[Figure] = []
    for slots in SLOTS:
        jobs = max(int(sizes.drain_jobs * _SHARE[slots]), 20)
        taken: list[dict[str, float]] = []
        note = ""
        for number in range(1, min(sizes.rounds, 3) + 1):
            listener.step(f"{slots} slots, round {number}")
            spent, note = await _profiled(place, jobs, slots)
            taken.append(spent)
        figures += _figures(slots, jobs, taken, note)
    return figures


def _figures(slots: int, jobs: int, taken: list[dict[str, float]], note: str) -> list[Figure]:
    every = "slot" if slots == 1 else "slots"
    medians = {part: statistics.median(one.get(part, 0.0) for one in taken) for part in PARTS}
    return [
        Figure(
            name=f"profile_{slots}_{part}",
            title=f"{slots} {every}: {title}",
            measured=medians[part],
            unit="µs",
            note=note if part == "server" else "",
        )
        for part, title in PARTS.items()
        if medians[part]
    ] + [
        Figure(
            name=f"profile_{slots}_all",
            title=f"{slots} {every}: all",
            measured=sum(medians.values()),
            unit="µs",
            note=f"processor time of a job, {jobs:,} no-op coroutine jobs, {len(taken)} rounds",
        )
    ]


async def _profiled(place: Place, jobs: int, slots: int) -> tuple[dict[str, float], str]:
    """Drain once; return the microseconds of a job by part, and the largest ones in the server."""
    with place.scratch() as url:
        await fill(place, url, functools.partial(noops, jobs))
        counters = place.counters(url)
        async with child(serve_sampled, url=url, slots=slots) as worker:
            await worker.hear()
            before, used = counters(), place.processor_seconds()
            spent: dict[str, float] = await worker.ask("start")
            spent["server"] = place.processor_seconds() - used
        # PostgreSQL adds the times of a session up when it has ended.
        inside = {name: seconds - before.get(name, 0.0) for name, seconds in counters().items()}
    largest = sorted(inside, key=lambda name: -inside[name])[:4]
    note = ", ".join(f"{name} {inside[name] / jobs * 1e6:.1f} µs" for name in largest)
    return {part: seconds / jobs * 1e6 for part, seconds in spent.items()}, note


# --- in a separate process --------------------------------------------------------------------


async def serve_sampled(url: str, slots: int) -> None:
    """Drain with one worker when asked; answer with the processor seconds of each part."""
    app = App(url)
    storage = await parts_of(app.windlass).storage()
    asked = requests()
    answer("ready")
    await anext(asked)
    async with app.windlass.worker(slots=slots) as worker:
        threads, sampler = _other_threads_seconds(), _Sampler()
        with sampler:
            await drained(worker, storage)
        answer(sampler.seconds() | {"threads": _other_threads_seconds() - threads})
        await anext(asked, None)
    await app.windlass.close()


class _Sampler:
    """Charges the processor time of the main thread to parts."""

    def __init__(self) -> None:
        self._spent: dict[str, float] = {}
        self._timer = _ThreadTimer()
        self._began = self._last = self._ended = 0.0

    def __enter__(self) -> None:
        self._began = self._last = time.thread_time()
        signal.signal(signal.SIGPROF, self._sample)
        self._timer.start(_INTERVAL)

    def __exit__(self, *_: object) -> None:
        self._timer.start(0.0)
        self._ended = time.thread_time()

    def _sample(self, _: int, frame: FrameType | None) -> None:
        now = time.thread_time()
        part = _part_of(frame)
        self._spent[part] = self._spent.get(part, 0.0) + now - self._last
        self._last = now

    def seconds(self) -> dict[str, float]:
        """Return the seconds by part; together they are those of the thread's clock."""
        share = (self._ended - self._began) / (sum(self._spent.values()) or 1.0)
        return {part: seconds * share for part, seconds in self._spent.items()}


class _SignalEvent(ctypes.Structure):
    """The ``sigevent`` of Linux: a signal to one thread."""

    _fields_: ClassVar = [
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("thread", ctypes.c_int),
        ("padding", ctypes.c_byte * 44),
    ]


class _ThreadTimer:
    """Sends SIGPROF to this thread as it spends processor time. Python's timers count all threads,
    and would charge the main thread for commits.
    """

    _TO_THREAD = 4

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._id = ctypes.c_void_p()
        clock = time.pthread_getcpuclockid(threading.get_ident())
        event = _SignalEvent(
            signal=signal.SIGPROF, notify=self._TO_THREAD, thread=threading.get_native_id()
        )
        if self._libc.timer_create(clock, ctypes.byref(event), ctypes.byref(self._id)):
            raise OSError(ctypes.get_errno(), "timer_create")

    def start(self, seconds: float) -> None:
        """Send one after as many seconds of processor time; zero stops it."""
        once = (0, int(seconds * 1e9))
        every = (ctypes.c_long * 4)(*once, *once)
        if self._libc.timer_settime(self._id, 0, every, None):
            raise OSError(ctypes.get_errno(), "timer_settime")


def _part_of(frame: FrameType | None) -> str:
    """Name the part of the innermost function that belongs to one."""
    while frame is not None:
        for path, part in _FILES.items():
            if path in frame.f_code.co_filename:
                return part
        frame = frame.f_back
    return "loop"


def _other_threads_seconds() -> float:
    """Return the processor seconds of all threads but this one, ended ones included."""
    return time.process_time() - time.thread_time()
