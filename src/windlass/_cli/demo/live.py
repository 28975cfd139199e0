"""``windlass demo --serve``: a shop with a day behind it, in a browser."""

from __future__ import annotations

import asyncio
import logging
import selectors
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from windlass._app.app import Windlass
from windlass._app.parts import parts_of
from windlass._cli.demo.live_shop import PaymentUnreachable, Shop, repeatable_random
from windlass._cli.options.target import app_at
from windlass._core.job.state import Shown
from windlass._storage.protocol.actions import Requeue
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._system.seams import SYSTEM_CLOCK, Seams, monotonic

if TYPE_CHECKING:
    from windlass._web.app import Dashboard
    from windlass.admin import Admin

__all__ = ["TITLE", "DemoClock", "DemoLoop", "serve_demo", "simulate_past"]

TITLE = "Windlass demo"
_HOUR = timedelta(hours=1)
_LETTERS = 60
"""A newsletter goes out after this number of customers, and takes its time."""
_CATALOGUES = 90
"""A catalogue is imported after this number of customers …"""
_CATALOGUES_LIVE = 30
"""… and, once it is live, after this number."""
_NEAR = timedelta(seconds=1)
_SELDOM = timedelta(seconds=30)
_SLOTS = 12
_CALM: Mapping[str, Any] = {
    "heartbeat": timedelta(seconds=15),
    "lease": timedelta(minutes=2),
    "reap_every": timedelta(seconds=30),
    "poll": timedelta(seconds=10),
}
"""One worker in one process, which is not killed: it needs little supervision."""
_OUTAGE = (timedelta(hours=7), timedelta(hours=7, minutes=25))
"""When the payment provider was away, from the beginning of the past."""


class DemoLoop(asyncio.SelectorEventLoop):
    """Skips waits while `live` is False."""

    def __init__(self) -> None:
        self.live: bool = False
        self._skipped = 0.0
        self._stood = 0.0
        super().__init__(_SkippingSelector(self))

    def time(self) -> float:
        """Return the time. In the past it moves by jumps alone, so that every demo has the same
        one.
        """
        return self._skipped + (monotonic() - self._stood if self.live else 0.0)

    def skip(self, seconds: float) -> None:
        """Take them for passed."""
        self._skipped += seconds

    def go_live(self) -> None:
        """Switch to real time: from here on a second takes a second."""
        self._stood = monotonic()
        self.live = True


class _SkippingSelector(selectors.DefaultSelector):
    """Where a loop waits: for files, and for its next timer."""

    def __init__(self, loop: DemoLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout > 0 and not self._loop.live:
            self._loop.skip(timeout)
            timeout = 0
        return super().select(timeout)


class DemoClock:
    """The wall clock of that loop: ``start`` when the loop begins."""

    def __init__(self, loop: DemoLoop, start: datetime) -> None:
        self._loop = loop
        self._start = start

    def now(self) -> datetime:
        """Once live, the machine's own: the demo may have been suspended with it."""
        return SYSTEM_CLOCK.now() if self._loop.live else self._start + self.boot()

    def boot(self) -> timedelta:
        return timedelta(seconds=self._loop.time())


def serve_demo(host: str, port: int, *, opened: timedelta) -> int:
    """Make the past since the shop was ``opened``, then serve it and continue until Ctrl-C."""
    with asyncio.Runner(loop_factory=DemoLoop) as runner:
        loop = runner.get_loop()
        if not isinstance(loop, DemoLoop):
            raise TypeError(loop)
        click.echo("Preparing the history of a small shop. This takes a few seconds …")
        runner.run(_serve(loop, host, port, opened))
    return 0


async def _serve(loop: DemoLoop, host: str, port: int, opened: timedelta) -> None:
    from windlass._cli.dashboard.command import bind_socket, browser_url_of
    from windlass._cli.dashboard.server import DashboardServer
    from windlass._web.app import Dashboard
    from windlass._web.security.authentication import BuiltinAuthentication

    async with simulate_past(loop, opened) as shop:
        made = Dashboard(
            shop.app,
            BuiltinAuthentication(),
            title=TITLE,
            hosts=("localhost", "127.0.0.1", "[::1]", host),
        )
        with bind_socket(host, port) as listening:
            _greet(made, browser_url_of(listening, host))
            customers = asyncio.create_task(_customers(shop, 1_200_000))
            async with shop.app.worker(slots=_SLOTS):
                try:
                    server = DashboardServer(made, root_path="", proxies=())
                    await server.serve(sockets=[listening])
                finally:
                    customers.cancel()


def _greet(made: Dashboard, address: str) -> None:
    from windlass._web.security.authentication import BuiltinAuthentication

    if isinstance(made.door, BuiltinAuthentication):
        link = made.door.new_link(lambda: _greet(made, address))
        click.echo(f"\n  {address}/enter?link={link}\n")
        click.echo(
            "The link signs in one browser, once. All data is invented and deleted afterwards."
        )
        click.echo("Press Ctrl-C to stop.")


# --- the past ---


@asynccontextmanager
async def simulate_past(loop: DemoLoop, opened: timedelta) -> AsyncIterator[Shop]:
    """Make a shop that was ``opened`` that long ago; from here on time is real. Called on that
    loop.
    """
    began = SYSTEM_CLOCK.now() - opened
    clock = DemoClock(loop, began)
    seams = Seams(wall=clock.now, boot=lambda: clock.boot().total_seconds())
    shop = Shop(app_at("memory://", clock=clock, seams=seams, **_CALM))
    async with shop.app:
        with _hushed(clock):
            async with _worked(shop.app):
                await _live_through(shop, clock, began)
        loop.go_live()
        yield shop


class _WorkerThread:
    """The objects that a worker on a separate thread uses, where time would be real."""

    def __init__(
        self, _name: str, main: Callable[[asyncio.Event], Coroutine[Any, Any, None]]
    ) -> None:
        self._stop = asyncio.Event()
        self._running = asyncio.create_task(main(self._stop))

    async def stop(self) -> None:
        self._stop.set()
        await self._running


@asynccontextmanager
async def _worked(app: Windlass) -> AsyncIterator[None]:
    """Run an ordinary worker that polls rarely: most of the cost of a quiet day are polls, and this
    day has few changes. Its heartbeats follow the clock of that day.
    """
    workers = parts_of(app).workers
    settings = workers.settings(slots=_SLOTS)
    worker = await workers.make(settings, aside=_WorkerThread, watch_loop=False, look=_SELDOM)
    async with asyncio.TaskGroup() as running:
        running.create_task(worker.run())
        await worker.started.wait()
        yield
        worker.stop()


async def _live_through(shop: Shop, clock: DemoClock, began: datetime) -> None:
    """Run until the clock of the past has caught up with the real one."""
    customers = asyncio.create_task(_day(shop, clock, began))
    people = asyncio.create_task(_people(shop, clock, began))
    hosts = asyncio.create_task(_hosts(shop, clock, began))
    left = SYSTEM_CLOCK.now() - clock.now()
    while left > _NEAR:
        await asyncio.sleep(left.total_seconds())
        left = SYSTEM_CLOCK.now() - clock.now()  # meanwhile the real one has moved a little
    for task in (customers, people, hosts):
        task.cancel()


async def _day(shop: Shop, clock: DemoClock, began: datetime) -> None:
    """Enqueue the jobs of customers: few in the morning, most in the afternoon."""
    number = 0
    while True:
        number += 1
        passed = clock.now() - began
        shop.set_outage(on=_OUTAGE[0] <= passed < _OUTAGE[1])
        await asyncio.sleep(60 / _crowd(passed) * (0.4 + 1.2 * repeatable_random("gap", number)))
        await shop.app.enqueue_many(shop.customer(number))
        if number % _LETTERS == 0:
            await shop.app.enqueue_many(shop.newsletter(number))
        if number % _CATALOGUES == 0:
            await shop.app.start(shop.catalogue(number // _CATALOGUES))


def _crowd(passed: timedelta) -> float:
    """Return how many customers there are, from 0.2 to 1.2."""
    return 0.2 + max(0.0, 1 - abs(passed / _HOUR - 8) / 8)


async def _hosts(shop: Shop, clock: DemoClock, began: datetime) -> None:
    """Report machines that are as busy as the shop: this one could not tell of that day."""
    storage = await parts_of(shop.app).storage()
    (worker,) = await storage.workers.live()
    minute = 0
    while True:
        minute += 1
        crowd = _crowd(clock.now() - began)
        readings = {
            host: _host_values(crowd * share, repeatable_random(host, minute))
            for host, share in (("shop-1", 0.6), ("shop-2", 0.4))
        }
        await storage.workers.beat(worker.id, readings=readings)
        await asyncio.sleep(60)


def _host_values(busy: float, chance: float) -> dict[str, float]:
    gib = 2.0**30
    return {
        "cpu": min(0.05 + busy * (0.8 + 0.4 * chance), 1.0),
        "memory_used": (3 + 4 * busy + 0.2 * chance) * gib,
        "memory_total": 16 * gib,
        "disk_used": (31 + busy) * gib,
        "disk_total": 80 * gib,
    }


async def _people(shop: Shop, clock: DemoClock, began: datetime) -> None:
    """Apply the actions of operators of that day."""
    admin = shop.app.admin
    steps: list[tuple[timedelta, Any]] = [
        (timedelta(hours=3), lambda: admin.acting("grace").queues.pause("images")),
        (timedelta(hours=3, minutes=20), lambda: admin.acting("grace").queues.resume("images")),
        (_OUTAGE[1], lambda: admin.acting("ada").breakers.reset("charge_card")),
        (_OUTAGE[1] + timedelta(minutes=5), lambda: _requeue(admin)),
        (timedelta(hours=10), lambda: admin.acting("ada").queues.set("webhooks", max_running=3)),
    ]
    for at, order in steps:
        await asyncio.sleep(max((began + at - clock.now()).total_seconds(), 0))
        await order()


async def _requeue(admin: Admin) -> None:
    kind = f"{PaymentUnreachable.__module__}.{PaymentUnreachable.__qualname__}"
    failed = JobFilter(shown=[Shown.FAILED], queue="billing", error=kind)
    await admin.acting("ada").jobs.bulk(Requeue(), failed)


# --- live ---


async def _customers(shop: Shop, number: int) -> None:
    """Faster than in a small shop, so that there is something to see."""
    while True:
        if number % _CATALOGUES_LIVE == 0:
            await shop.app.start(shop.catalogue(number // _CATALOGUES_LIVE))
        number += 1
        await asyncio.sleep(0.5 + 2 * repeatable_random("gap", number))
        await shop.app.enqueue_many(shop.customer(number))


@contextmanager
def _hushed(clock: DemoClock) -> Iterator[None]:
    """Silence the log: a day of lines in some seconds would only scroll by. Lines stored with their
    jobs have the times of that day.
    """
    log, make = logging.getLogger("windlass"), logging.getLogRecordFactory()
    before = log.level

    def dated(*parts: Any, **more: Any) -> logging.LogRecord:
        record = make(*parts, **more)
        record.created = clock.now().timestamp()
        return record

    log.setLevel(logging.CRITICAL)
    logging.setLogRecordFactory(dated)
    try:
        yield
    finally:
        logging.setLogRecordFactory(make)
        log.setLevel(before)
