"""The tasks of the demo: a small shop. Ordinary tasks, nothing here is special to the demo."""

from __future__ import annotations

import asyncio
import os

from windlass import Backoff, Context, GiveUp, Results, Windlass

__all__ = [
    "app",
    "call_webhook",
    "follow_parcel",
    "import_catalogue",
    "make_thumbnail",
    "price_product",
    "print_price_list",
    "render_invoice",
    "send_email",
    "sync_stock",
]

app: Windlass = Windlass(os.environ.get("WINDLASS_URL", "memory://"))

# Short, so that the demo is: the default waits 5 s, 25 s, 2 min and 10 min.
_SOON = Backoff.exponential(0.5, factor=2, jitter="none")


@app.task(queue="mail", backoff=_SOON)
async def send_email(to: str, *, subject: str, seconds: float = 0.2) -> str:
    """Send an email. A coroutine function: many of them wait for the mail server side by side, on
    one loop.
    """
    await asyncio.sleep(seconds)
    return f"{subject!r} sent to {to}"


@app.task(queue="images", backoff=_SOON)
def make_thumbnail(picture: str, *, width: int = 24) -> str:
    """Make a thumbnail. A plain function: it computes, so it runs on a thread and the loop stays
    free.
    """
    size = width * 16
    seed = sum(picture.encode())
    pixels = [[(seed + x * y) % 256 for x in range(size)] for y in range(size)]
    small = [
        [_average(pixels, left, top) for left in range(0, size, 16)] for top in range(0, size, 16)
    ]
    return f"{picture}: {len(small[0])} × {len(small)} pixels"


def _average(pixels: list[list[int]], left: int, top: int) -> int:
    return sum(sum(row[left : left + 16]) for row in pixels[top : top + 16]) // 256


@app.task(queue="webhooks", backoff=_SOON)
async def call_webhook(ctx: Context, url: str, *, refusals: int = 0, gone: bool = False) -> str:
    """Call a webhook. The other side is down for the first ``refusals`` attempts, or
    gone for good.
    """
    await asyncio.sleep(0.05)
    if gone:
        reason = f"410 Gone from {url}"
        raise GiveUp(reason)
    if ctx.attempt <= refusals:
        reason = f"503 Service Unavailable from {url}"
        raise ConnectionError(reason)
    return "200 OK"


@app.task(backoff=_SOON)
async def import_catalogue(ctx: Context, rows: int, *, seconds: float) -> int:
    """Says how far it is; anybody can ask."""
    steps = 20
    for step in range(1, steps + 1):
        await asyncio.sleep(seconds / steps)
        ctx.progress(step / steps, f"row {rows * step // steps:,} of {rows:,}")
    return rows


@app.task(backoff=_SOON)
async def render_invoice(ctx: Context, number: int) -> str:
    """Render an invoice. Its worker is killed in the middle; the first attempt leaves time for
    that.
    """
    for page in range(1, 11):
        ctx.progress(page / 10, f"page {page} of 10")
        await asyncio.sleep(0.6 if ctx.attempt == 1 else 0.1)
    return f"invoice-{number}.pdf"


@app.task(backoff=_SOON)
async def follow_parcel(parcel: str) -> str:
    """Wait for an event that never comes, until an operator cancels the job."""
    await asyncio.sleep(3600)
    return f"{parcel} has arrived"


@app.task(backoff=_SOON)
async def sync_stock(warehouse: int) -> str:
    """Enqueued twice under one key."""
    await asyncio.sleep(0.1)
    return f"warehouse {warehouse} is in sync"


@app.task(backoff=_SOON)
async def price_product(product: str) -> int:
    """Compute the price of one product, in cents. Many of them are a part of a flow."""
    await asyncio.sleep(0.2)
    return 100 + sum(product.encode()) % 900


@app.task(backoff=_SOON)
async def print_price_list(prices: Results[int]) -> str:
    """Print the prices. It waits for all jobs of `price_product`, and takes their results."""
    cents = await prices.list()
    return f"{len(cents)} prices, from {min(cents)} to {max(cents)} cents"
