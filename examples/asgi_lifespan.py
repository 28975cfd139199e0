"""A worker inside a web server: any ASGI framework's lifespan (FastAPI, Starlette, Litestar …).

FastAPI: ``FastAPI(lifespan=lifespan)``. Here a plain function stands for the server.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from windlass import Windlass

app = Windlass("sqlite:///jobs.db")


@app.task(queue="mail")
async def send_receipt(order: int) -> str:
    return f"receipt for order {order} sent"


@asynccontextmanager
async def lifespan(_server: object) -> AsyncGenerator[None, None]:
    async with app, app.worker(queues={"mail": 5}):
        yield


async def buy(order: int) -> dict[str, str]:
    """Enqueue a job and answer at once; the job is committed before the answer."""
    job = await send_receipt.options(key=f"order-{order}").enqueue(order)
    return {"job": job.id}


async def main() -> None:
    async with lifespan(None):
        answer = await buy(7)
        print(await app.job(answer["job"]).result(timeout=10))


if __name__ == "__main__":
    asyncio.run(main())
