"""Lists: what people look for is found at once, however much else is stored.

Two storages hold the same failed jobs; in one of them many newer jobs wait. Two others hold few
and many schedules, each with its latest runs. What is timed are the same questions to both, in
turns: the ratio is what many cost more than few.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import msgspec

from benchmarks.child import run
from benchmarks.figure import Figure, Target
from benchmarks.figures.flat import enlist
from benchmarks.stage import Stage
from benchmarks.worker import App
from windlass import Every
from windlass._app.parts import parts_of
from windlass._core.job.job import AttemptError, NewJob
from windlass._core.job.state import State
from windlass._core.job.transition import fail
from windlass._core.schedule.schedule import ScheduleRun, ScheduleState
from windlass._storage.protocol.jobs import Want
from windlass._storage.protocol.lists.job_list import JobFilter, ListOrder
from windlass._storage.protocol.schedules import ScheduleWrite
from windlass._storage.protocol.storage import Storage
from windlass._system.seams import new_job_ids

__all__ = ["ask_in_turn", "build_jobs", "build_schedules", "measure"]

_BITE = 500
_QUEUES = 20
_RUNS = 10
_FEW = 100
_FAILED = JobFilter(states=[State.FAILED])
_TARGET = Target("at most", 2.0, "ratio")
_ERROR = AttemptError("SMTPException", "no", "Traceback (most recent call last):\n  no")


async def measure(stage: Stage) -> list[Figure]:
    """Failed jobs behind waiting ones, and schedules."""
    sizes, place, listener = stage
    failed, waiting, rounds = sizes.list_failed, sizes.list_waiting, sizes.list_rounds
    with place.scratch() as few, place.scratch() as many:
        for url, behind in ((few, 0), (many, waiting)):
            listener.step(f"building {failed:,} failed jobs behind {behind:,}")
            await run(build_jobs, url=url, failed=failed, waiting=behind)
            place.settle(url)
        listener.step("listing failed jobs")
        jobs = await run(ask_in_turn, urls=[few, many], asking="jobs", rounds=rounds)
    with place.scratch() as few, place.scratch() as many:
        for url, number in ((few, min(_FEW, sizes.list_schedules)), (many, sizes.list_schedules)):
            listener.step(f"building {number:,} schedules")
            await run(build_schedules, url=url, number=number)
        listener.step("listing schedules")
        schedules = await run(ask_in_turn, urls=[few, many], asking="schedules", rounds=rounds)
    note = f"{failed:,} failed jobs behind {waiting:,} waiting ones; without those"
    notes = f"{sizes.list_schedules:,} schedules; {_FEW:,}"
    return [
        *(_figure(name, both, note) for name, both in jobs.items()),
        *(_figure(name, both, notes) for name, both in schedules.items()),
    ]


def _figure(title: str, both: tuple[float, float], note: str) -> Figure:
    few, many = both
    return Figure(
        name=f"lists_{title.replace(' ', '_')}",
        title=title,
        measured=many * 1000,
        unit="ms",
        yardstick=few * 1000,
        yardstick_name=note.partition("; ")[2],
        # An overview also counts what waits.
        target=None if title == "overview" else _TARGET,
        note=note.partition("; ")[0],
    )


# --- in processes of their own ----------------------------------------------------------------


async def build_jobs(url: str, failed: int, waiting: int) -> str:
    """Fail jobs of some queues, and enqueue others behind them."""
    app = App(url).windlass
    async with app:
        storage = await parts_of(app).storage()
        queues = [f"queue-{number:02}" for number in range(_QUEUES)]
        await enlist(storage, queues)
        for start in range(0, failed, _BITE):
            await _insert(storage, min(_BITE, failed - start), queues)
            wants = [Want(queue, _BITE) for queue in queues]
            reply = await storage.jobs.claim("w-bench", wants, total=_BITE)
            await storage.jobs.apply([fail(job, by="w-bench", error=_ERROR) for job in reply.jobs])
        for start in range(0, waiting, 1000):
            await _insert(storage, min(1000, waiting - start), queues)
    return "built"


async def _insert(storage: Storage, number: int, queues: list[str]) -> None:
    await storage.jobs.insert(
        [
            NewJob(id=job, task="noop", queue=queues[n % _QUEUES], payload=b'{"n":12345}')
            for n, job in enumerate(new_job_ids(number))
        ]
    )


async def build_schedules(url: str, number: int) -> str:
    """Store schedules, each with its own name in its arguments and with some runs."""
    bench = App(url)
    app = bench.windlass
    async with app:
        storage = await parts_of(app).storage()
        await app.admin.schedules.create("a", Every(3600), bench.nap.call(0.0))
        (row,) = [row for row in await storage.schedules.rows() if row.name == "a"]
        state = msgspec.json.decode(row.body, type=ScheduleState)
        begun = datetime(2030, 1, 1, tzinfo=UTC)
        for start in range(0, number, _BITE):
            await storage.schedules.write(
                [
                    ScheduleWrite(
                        name=f"schedule-{n:05}",
                        revision=0,
                        body=msgspec.json.encode(_with_runs(state, n, begun)),
                        next_at=row.next_at,
                    )
                    for n in range(start, min(start + _BITE, number))
                ]
            )
    return "built"


def _with_runs(state: ScheduleState, number: int, begun: datetime) -> ScheduleState:
    runs = [
        ScheduleRun(begun + timedelta(hours=n), job, "succeeded")
        for n, job in enumerate(new_job_ids(_RUNS))
    ]
    return msgspec.structs.replace(state, runs=tuple(runs), fired=number)


async def ask_in_turn(urls: list[str], asking: str, rounds: int) -> dict[str, tuple[float, float]]:
    """Median seconds of each question to the first and to the second storage."""
    samples: dict[str, tuple[list[float], list[float]]] = {}
    apps = [App(url).windlass for url in urls]
    for app in apps:
        await parts_of(app).storage()
    browsers = [_browser(app) for app in apps]
    for number in range(rounds + 1):
        for side, (app, browser) in enumerate(zip(apps, browsers, strict=True)):
            questions = _of_jobs(app, browser) if asking == "jobs" else _of_schedules(app, browser)
            for name, ask in questions.items():
                began = time.perf_counter()
                await ask()
                if number:  # the first round prepares statements and templates
                    both = samples.setdefault(name, ([], []))
                    both[side].append(time.perf_counter() - began)
    for app, browser in zip(apps, browsers, strict=True):
        await browser.aclose()
        await app.close()
    return {
        name: (statistics.median(few), statistics.median(many))
        for name, (few, many) in samples.items()
    }


_Questions = dict[str, Callable[[], Awaitable[Any]]]


def _of_jobs(app: Any, browser: httpx.AsyncClient) -> _Questions:
    oldest = msgspec.structs.replace(_FAILED, order=ListOrder.FINISHED)
    return {
        "recent failures": lambda: _full(app.admin.jobs.find(_FAILED, limit=8), 8),
        "failed jobs": lambda: _full(app.admin.jobs.find(_FAILED, limit=50), 50),
        "failed jobs, the first first": lambda: _full(app.admin.jobs.find(oldest, limit=50), 50),
        "page of failed jobs": lambda: _opened(browser, "/jobs?state=failed"),
        "overview": lambda: _opened(browser, "/overview"),
    }


def _of_schedules(app: Any, browser: httpx.AsyncClient) -> _Questions:
    return {
        "page of schedules": lambda: _opened(browser, "/schedules"),
        "snapshot": app.admin.overview.snapshot,
    }


def _browser(app: Any) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app.dashboard(auth=lambda _: "admin"))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost")


async def _opened(browser: httpx.AsyncClient, path: str) -> None:
    answer = await browser.get(path)
    if answer.status_code != 200:
        message = f"{path}: {answer.status_code}"
        raise RuntimeError(message)


async def _full(page: Awaitable[Any], most: int) -> None:
    """Check a list: one that is not right is no figure."""
    found = await page
    if len(found) != most or any(job.state is not State.FAILED for job in found):
        message = f"{len(found)} failed jobs were found instead of {most}"
        raise RuntimeError(message)
