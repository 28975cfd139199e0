"""Many jobs in one transaction, follow-up jobs, and what became of them all."""

import asyncio

from windlass import Context, Job, Windlass

app = Windlass("sqlite:///jobs.db")


@app.task
async def index_page(number: int) -> int:
    return number * number


@app.task
async def index_site(ctx: Context, pages: int) -> list[str]:
    jobs: list[Job[int]] = []
    for number in range(pages):
        jobs.append(await ctx.enqueue(index_page.call(number)))  # remembers its parent
        ctx.progress(number / pages, f"page {number}")
    return [job.id for job in jobs]


async def main() -> None:
    async with app, app.worker(queues=["default"], slots=20):
        calls = [index_page.call(number) for number in range(100)]
        jobs = await app.enqueue_many(calls)  # all of them, or none
        print(sum(await asyncio.gather(*[job.result(timeout=30) for job in jobs])))
        site = await index_site.enqueue(5)
        for follow_up in await site.result(timeout=30):
            await app.job(follow_up).result(timeout=30)
        for counts in await app.admin.queues.counts():
            print(f"{counts.queue}: {counts.succeeded} succeeded, {counts.failed} failed")


if __name__ == "__main__":
    asyncio.run(main())
