"""The jobs of the demo, and how each part is expected to end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from windlass._cli.demo import tasks as shop
from windlass._core.job.job import JobId, JobRecord
from windlass._core.job.state import State
from windlass._tasks.flows.flow import Flow
from windlass._tasks.task import Call

__all__ = ["DemoFlow", "DemoPart", "demo_flow", "demo_parts"]


class DemoPart(NamedTuple):
    """Some jobs and their expected outcome."""

    key: str
    title: str
    calls: Sequence[Call[Any]]
    """Empty: its jobs belong to the flow."""
    expected: State
    least_attempts: int = 1
    why: str = ""
    """The text of the table, before anything that happened."""

    def surprises(self, jobs: Sequence[JobRecord]) -> list[str]:
        """Return the differences from what was expected."""
        wrong = [
            f"{self.title}: job {job.id} is {job.state}, expected {self.expected}"
            for job in jobs
            if job.state is not self.expected
        ]
        few = [
            f"{self.title}: job {job.id} took {job.attempt} attempts, expected at least "
            f"{self.least_attempts}"
            for job in jobs
            if job.state is self.expected and job.attempt < self.least_attempts
        ]
        return wrong + few


class DemoFlow(NamedTuple):
    """A flow, and the jobs of each of its parts by their keys in `demo_parts`."""

    flow: Flow
    jobs: Mapping[str, Sequence[JobId]]


def demo_flow() -> DemoFlow:
    """Return a flow: prices side by side, then one list of them all."""
    flow = Flow("price list")
    prices = flow.map(shop.price_product, [f"product-{n}" for n in range(1, 9)])
    flow.add(shop.print_price_list.call(prices.results))
    ids = [job for _, job, _ in flow.plan().calls]
    return DemoFlow(flow, {"prices": ids[:-1], "price_list": ids[-1:]})


def demo_parts(*, pace: float) -> Mapping[str, DemoPart]:
    """Return every part by its key. ``pace``: how long the slow things take, 1.0 for people."""
    parts = [*_work(pace), *_flow(), *_waiting(), *_trouble()]
    return {part.key: part for part in parts}


def _work(pace: float) -> list[DemoPart]:
    emails = [
        shop.send_email.call(f"customer{n}@example.org", subject="Welcome", seconds=0.35 * pace)
        for n in range(1, 41)
    ]
    return [
        DemoPart(
            "mail",
            "send_email",
            emails,
            State.SUCCEEDED,
            why="coroutines that run concurrently on each worker's event loop",
        ),
        DemoPart(
            "images",
            "make_thumbnail",
            [shop.make_thumbnail.call(f"picture-{n}.png") for n in range(1, 13)],
            State.SUCCEEDED,
            why="a plain function, which runs on threads",
        ),
        DemoPart(
            "catalogue",
            "import_catalogue",
            [shop.import_catalogue.call(12_000, seconds=4.0 * pace)],
            State.SUCCEEDED,
            why="reported its progress while it ran",
        ),
        DemoPart(
            "stock",
            "sync_stock",
            [shop.sync_stock.options(key="stock:7").call(7)] * 2,
            State.SUCCEEDED,
            why="enqueued twice with one unique key: one job, run once",
        ),
    ]


def _flow() -> list[DemoPart]:
    return [
        DemoPart(
            "prices",
            "price_product",
            (),
            State.SUCCEEDED,
            why="the first part of a flow: they run side by side",
        ),
        DemoPart(
            "price_list",
            "print_price_list",
            (),
            State.SUCCEEDED,
            why="the second part: it waited for all prices, and took their results",
        ),
    ]


def _waiting() -> list[DemoPart]:
    later = shop.send_email.options(delay=2, priority=-1)  # ahead of the other mail
    newsletter = shop.send_email.options(delay=3600)
    offer = shop.send_email.options(delay=1.5, expires=1)
    return [
        DemoPart(
            "later",
            "send_email",
            [later.call("ada@example.org", subject="How was it?")],
            State.SUCCEEDED,
            why="enqueued for two seconds later",
        ),
        DemoPart(
            "newsletter",
            "send_email",
            [newsletter.call("everybody@example.org", subject="News")],
            State.CANCELLED,
            least_attempts=0,
            why="cancelled while it waited: it never ran",
        ),
        DemoPart(
            "offer",
            "send_email",
            [offer.call("bob@example.org", subject="Only now")],
            State.DISCARDED,
            least_attempts=0,
        ),
    ]


def _trouble() -> list[DemoPart]:
    return [
        DemoPart(
            "flaky",
            "call_webhook",
            [shop.call_webhook.call("https://flaky.example", refusals=2)],
            State.SUCCEEDED,
            least_attempts=3,
        ),
        DemoPart(
            "gone",
            "call_webhook",
            [shop.call_webhook.call("https://gone.example", gone=True)],
            State.FAILED,
        ),
        DemoPart(
            "parcel",
            "follow_parcel",
            [shop.follow_parcel.call("parcel-99")],
            State.CANCELLED,
            why="cancelled while it ran",
        ),
        DemoPart(
            "invoice",
            "render_invoice",
            [shop.render_invoice.call(2024)],
            State.SUCCEEDED,
            least_attempts=2,
        ),
    ]
