"""The shop behind ``windlass demo --serve``: ordinary tasks, limits, a breaker and schedules."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from zlib import crc32

from windlass._app.app import Windlass
from windlass._core.job.control import GiveUp
from windlass._core.limits.backoff import Backoff
from windlass._core.limits.breaker import Breaker
from windlass._core.limits.limit import Rate
from windlass._core.schedule.rules import Cron, Every
from windlass._tasks.context import Context
from windlass._tasks.flows.flow import Flow, ended
from windlass._tasks.limits import Limit
from windlass._tasks.task import Call

__all__ = ["CardDeclined", "PaymentUnreachable", "Shop", "repeatable_random"]


class CardDeclined(GiveUp):
    """The bank has said no; asking again would not change its mind."""


class PaymentUnreachable(ConnectionError):
    """The payment provider does not answer."""


def repeatable_random(*of: object) -> float:
    """Return a number from [0, 1), always the same for the same words: every demo tells the same
    story.
    """
    return crc32(repr(of).encode()) / 2**32


class Shop:
    """Tasks of a small shop, on an app of the demo's."""

    def __init__(self, app: Windlass) -> None:
        """``app``: with nothing registered yet."""
        self.app = app
        self._outage = False
        self._calls: list[Callable[[int], Call[Any]]] = []
        self._sell()
        self._deliver()
        self._import()
        self._look_after()

    def set_outage(self, *, on: bool) -> None:
        """Let the payment provider be away, or back."""
        self._outage = on

    def customer(self, number: int) -> list[Call[Any]]:
        """Enqueue the jobs of one customer."""
        calls = [self._calls[0](number), self._calls[1](number)]
        if repeatable_random("picture", number) < 0.3:
            calls.append(self._calls[2](number))
        if repeatable_random("webhook", number) < 0.4:
            calls.append(self._calls[3](number))
        return calls

    def newsletter(self, number: int) -> list[Call[Any]]:
        """More mail at once than the limit lets through."""
        send = self.app.tasks["send_email"].options(priority=10, tags=["newsletter"])
        return [send.call(f"reader{n}@example.org", subject=f"News {number}") for n in range(80)]

    def catalogue(self, number: int) -> Flow:
        """Import a supplier's catalogue: pages side by side, pictures and prices, then all of it is
        published. Every third one has a page that fails.
        """
        app, supplier = self.app, ("acme", "globex", "initech")[number % 3]
        told = app.tasks["send_email"]
        flow = Flow(
            f"catalogue of {supplier}",
            key=f"catalogue:{supplier}",
            on_succeeded=told.call("sales@example.org", subject=f"{supplier} is published"),
            on_failed=told.call("it@example.org", subject=f"The import of {supplier} failed"),
        )
        load = flow.add(app.tasks["download_catalogue"].call(supplier), name="download")
        pages = flow.map_calls(
            [app.tasks["import_page"].call(supplier, number, page) for page in range(1, 41)],
            after=load,
            name="import pages",
        )
        check = flow.add(app.tasks["check_prices"].call(supplier), after=pages, name="check prices")
        pictures = flow.group("pictures")
        for width in (320, 800):
            resize = app.tasks["resize_picture"].call(f"{supplier}/cover.jpg", widths=[width])
            pictures.add(resize, after=pages, name=f"covers, {width} px")
        publish = app.tasks["publish_catalogue"].call(supplier)
        done = flow.add(publish, after=[check, pictures], name="publish")
        old = app.tasks["clean_up"].call()
        flow.add(old, after=ended(done), name="delete old pages")
        return flow

    def _import(self) -> None:
        app = self.app

        @app.task(name="download_catalogue", queue="imports")
        async def download_catalogue(supplier: str) -> int:
            await asyncio.sleep(1 + 2 * repeatable_random("download", supplier))
            return 40

        @app.task(name="import_page", queue="imports", max_attempts=1)
        async def import_page(supplier: str, number: int, page: int) -> int:
            await asyncio.sleep(2 + 6 * repeatable_random(supplier, page))
            if number % 3 == 1 and page == 23:
                raise ValueError(f"page {page} of {supplier}: the price '12,O0' is no number")
            return 25

        @app.task(name="check_prices", queue="imports")
        async def check_prices(supplier: str) -> str:
            await asyncio.sleep(3)
            return f"1,000 prices of {supplier} are in range"

        @app.task(name="publish_catalogue", queue="imports")
        async def publish_catalogue(supplier: str) -> str:
            await asyncio.sleep(2)
            return f"{supplier} is published"

    def _sell(self) -> None:
        app = self.app
        soon = Backoff.exponential(4, factor=3, jitter="none")

        @app.task(
            name="send_email",
            queue="mail",
            backoff=soon,
            limits=[Limit("smtp", rate=Rate(4, 1.0, burst=4), concurrency=4)],
        )
        async def send_email(ctx: Context, to: str, *, subject: str) -> str:
            await asyncio.sleep(0.2 + 1.3 * repeatable_random("smtp", to, ctx.attempt))
            if repeatable_random("greylist", to, ctx.attempt) < 0.06:
                raise TimeoutError("451 try again later, greylisted")
            return f"250 accepted {subject!r} for {to}"

        @app.task(
            name="charge_card",
            queue="billing",
            backoff=soon,
            max_attempts=4,
            breaker=Breaker(failures=5, cool_down=timedelta(minutes=2)),
        )
        async def charge_card(ctx: Context, order: int, *, cents: int) -> dict[str, int]:
            await asyncio.sleep(0.4 + 2.2 * repeatable_random("bank", order, ctx.attempt))
            if self._outage:
                raise PaymentUnreachable("connection to payments.example.com timed out")
            if repeatable_random("declined", order) < 0.04:
                raise CardDeclined("card declined: insufficient funds")
            if repeatable_random("flaky", order, ctx.attempt) < 0.07:
                raise PaymentUnreachable("502 Bad Gateway from payments.example.com")
            return {"order": order, "charged": cents}

        def mail(n: int) -> Call[Any]:
            wait = send_email.options(delay=3600) if n % 11 == 0 else send_email
            subject = "How was it?" if n % 11 == 0 else "Your order"
            return wait.call(f"customer{n}@example.org", subject=subject)

        def charge(n: int) -> Call[Any]:
            tagged = charge_card.options(
                tags=["vip"] if n % 9 == 0 else ["web"], correlation_id=f"order-{n}"
            )
            return tagged.call(n, cents=500 + int(20_000 * repeatable_random("cents", n)))

        self._calls += [mail, charge]

    def _deliver(self) -> None:
        app = self.app
        soon = Backoff.exponential(4, factor=3, jitter="none")

        @app.task(name="resize_picture", queue="images")
        async def resize_picture(ctx: Context, picture: str, *, widths: list[int]) -> int:
            for done, width in enumerate(widths, start=1):
                await asyncio.sleep(1 + 3 * repeatable_random(picture, width))
                ctx.progress(done / len(widths), f"{width} px")
            return len(widths)

        @app.task(name="call_webhook", queue="webhooks", backoff=soon, max_attempts=3)
        async def call_webhook(ctx: Context, url: str, *, event: str) -> int:
            await asyncio.sleep(0.1 + 0.9 * repeatable_random(url, event, ctx.attempt))
            if "legacy" in url and repeatable_random(url, event) < 0.5:
                ctx.log(f"{url} answered 500 with an empty body")
                raise RuntimeError(f"500 Internal Server Error from {url}")
            return 200

        hosts = ("acme", "globex", "legacy", "initech")

        def picture(n: int) -> Call[Any]:
            return resize_picture.call(f"uploads/{n}.jpg", widths=[320, 800, 1600])

        def hook(n: int) -> Call[Any]:
            host = hosts[n % len(hosts)]
            bound = call_webhook.options(tenant=host)
            return bound.call(f"https://{host}.example.com/hooks", event=f"order.paid.{n}")

        self._calls += [picture, hook]

    def _look_after(self) -> None:
        app = self.app

        @app.schedule(Every(timedelta(minutes=10)), name="sync-stock")
        @app.task(name="sync_stock", queue="default")
        async def sync_stock(ctx: Context) -> str:
            for shelf in range(1, 9):
                await asyncio.sleep(1.5)
                ctx.progress(shelf / 8, f"shelf {shelf} of 8")
            ctx.log("8 shelves are in sync")
            return "in sync"

        @app.schedule(Cron("0 * * * *"), name="hourly-report")
        @app.task(name="sales_report", queue="reports", timeout=600)
        async def sales_report(ctx: Context) -> str:
            for page in range(1, 21):
                await asyncio.sleep(4)
                ctx.progress(page / 20, f"page {page} of 20")
                if page % 5 == 0:
                    ctx.log(f"{page} pages are written")
            return "report.pdf"

        @app.schedule(Cron("30 */4 * * *", "Europe/Berlin"), name="clean-up")
        @app.task(name="clean_up", queue="reports", backoff=Backoff.fixed(60))
        async def clean_up(ctx: Context) -> int:
            await asyncio.sleep(45)
            if ctx.attempt == 1:
                raise OSError("28: No space left on device: /var/tmp/carts")
            return 1284
