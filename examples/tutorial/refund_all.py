"""A recall: refund six orders at once, and watch the pace."""

import asyncio

from refunds import refund
from shop import app


async def main() -> None:
    async with app, app.worker():
        jobs = await app.enqueue_many(refund.call(order) for order in range(1, 7))
        for job in jobs:
            print(await job.result(timeout=30))


asyncio.run(main())
