"""A worker whose handler is killed at a given point: ``python -m tests.transactions.killed``."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import asyncpg

from windlass import Context, Windlass

URL, POINT = sys.argv[1:] if __name__ == "__main__" else ("postgresql://nobody", "never")
app = Windlass(URL, poll=0.1)


def die_at(point: str) -> None:
    if point == POINT:
        os.kill(os.getpid(), signal.SIGKILL)


@app.task(name="work", backoff=None)
async def work(ctx: Context) -> None:
    connection = await asyncpg.connect(app.settings.url)
    transaction = connection.transaction()
    await transaction.start()
    await connection.execute("INSERT INTO orders VALUES ($1)", str(ctx.job_id))
    die_at("written")
    await ctx.finish("done", connection=connection)
    die_at("finished")
    await transaction.commit()
    die_at("committed")
    await connection.close()


async def main() -> None:
    async with app, app.worker():
        await asyncio.sleep(60)


if __name__ == "__main__":
    asyncio.run(main())
