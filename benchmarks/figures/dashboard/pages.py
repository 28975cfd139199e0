"""Pages: however many jobs are stored, every page of the dashboard is there at once.

A storage with 20 queues holds waiting, scheduled and finished jobs in equal parts, as in `flat`.
What is timed is a request to the dashboard, from the first byte asked to the last one answered,
without a network: all pages in turn, several times. Beside them the looks of ``app.admin`` that
the command line makes.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import httpx

from benchmarks.child import run
from benchmarks.figure import Figure, Target
from benchmarks.figures.flat import build, build_by_store
from benchmarks.stage import Stage
from benchmarks.worker import App
from windlass._core.job.state import State
from windlass._storage.protocol.lists.job_list import JobFilter

__all__ = ["look", "measure", "open_pages"]

_BOUND = 300.0
_QUEUE = "queue-07"
PAGES = (
    *("/overview", "/overview?range=30d", "/jobs", "/jobs?state=failed", "/jobs?state=scheduled"),
    *(f"/jobs?queue={_QUEUE}&task=noop", "/jobs?tag=none", "/jobs?text=12345%40example", "/errors"),
    *("/queues", f"/queues/one?queue={_QUEUE}", "/schedules", "/workers", "/limits", "/audit"),
    *("/storage", "/plugins", "/api/v1/snapshot", "/api/v1/jobs?size=200", "/api/v1/counts"),
)


async def measure(stage: Stage) -> list[Figure]:
    """Pages and looks at many jobs."""
    sizes, place, listener = stage
    with place.scratch() as url:
        listener.step(f"building {sizes.page_jobs:,} jobs")
        way = build if place.backend == "sqlite" else build_by_store
        await run(way, url=url, each=sizes.page_jobs // 3, order="interleaved")
        place.settle(url)
        listener.step("opening pages")
        pages = await run(open_pages, url=url, rounds=sizes.page_rounds)
        listener.step("looking")
        looks = await run(look, url=url, rounds=sizes.page_rounds)
    return [
        _slowest("pages", "slowest page of the dashboard", pages, sizes.page_jobs),
        _slowest("looks", "slowest look of app.admin", looks, sizes.page_jobs),
    ]


def _slowest(name: str, title: str, samples: dict[str, list[float]], jobs: int) -> Figure:
    medians = {what: statistics.median(taken) * 1000 for what, taken in samples.items()}
    slowest = max(medians, key=lambda what: medians[what])
    longest = max(max(taken) for taken in samples.values()) * 1000
    return Figure(
        name=name,
        title=title,
        measured=medians[slowest],
        unit="ms",
        target=Target("under", _BOUND),
        note=f"{slowest} at {jobs:,} jobs; median of all "
        f"{statistics.median(medians.values()):.0f} ms, longest of any {longest:.0f} ms",
    )


# --- in processes of their own ----------------------------------------------------------------


async def open_pages(url: str, rounds: int) -> dict[str, list[float]]:
    """Seconds per request for each page."""
    app = App(url).windlass
    async with app:
        transport = httpx.ASGITransport(app.dashboard(auth=lambda _: "admin"))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as browser:

            async def opened(path: str) -> None:
                answer = await browser.get(path)
                if answer.status_code != 200:
                    message = f"{path}: {answer.status_code}"
                    raise RuntimeError(message)

            return await _timed({path: _bound(opened, path) for path in PAGES}, rounds)


async def look(url: str, rounds: int) -> dict[str, list[float]]:
    """Seconds per look for each of those that people make."""
    app = App(url).windlass
    async with app:
        admin = app.admin
        now = await admin.storage.now()
        failed = JobFilter(states=[State.FAILED])
        return await _timed(
            {
                "counts": admin.queues.counts,
                "snapshot": admin.overview.snapshot,
                "find by state": lambda: admin.jobs.find(failed),
                "find by queue": lambda: admin.jobs.find(JobFilter(queue=_QUEUE), limit=1000),
                "count by task": lambda: admin.jobs.count(JobFilter(task="noop"), most=1000),
                "search": lambda: admin.jobs.search("nowhere@example.com"),
                "errors": admin.errors.groups,
                "series of a day": lambda: admin.stats.series(now - timedelta(days=1), now),
                "storage": admin.storage.report,
            },
            rounds,
        )


async def _timed(
    what: dict[str, Callable[[], Awaitable[Any]]], rounds: int
) -> dict[str, list[float]]:
    samples: dict[str, list[float]] = {name: [] for name in what}
    for number in range(rounds + 1):
        for name, ask in what.items():
            began = time.perf_counter()
            await ask()
            if number:  # the first round prepares statements and templates
                samples[name].append(time.perf_counter() - began)
    return samples


def _bound(ask: Callable[[str], Awaitable[None]], path: str) -> Callable[[], Awaitable[None]]:
    return lambda: ask(path)
