"""FastAPI: endpoints enqueue, a worker in the server runs. Try ``uvicorn fastapi_shop:server``."""

import asyncio
from typing import Annotated

import httpx
from fastapi import Depends, FastAPI

from windlass import Windlass
from windlass.integrations.fastapi import get_app, lifespan

app = Windlass("sqlite:///jobs.db")
server = FastAPI(lifespan=lifespan(app, worker=True))


@app.task
async def send_receipt(order: int) -> str:
    return f"receipt for order {order} sent"


@server.post("/orders/{order}")
async def buy(order: int) -> str:
    return (await send_receipt.enqueue(order)).id


@server.get("/jobs/{job}")
async def outcome(job: str, jobs: Annotated[Windlass, Depends(get_app)]) -> str:
    return str(await jobs.job(job).result(timeout=10))


async def main() -> None:
    world = httpx.AsyncClient(transport=httpx.ASGITransport(server), base_url="http://shop")
    async with server.router.lifespan_context(server), world:
        job = (await world.post("/orders/7")).json()
        print((await world.get(f"/jobs/{job}")).json())


if __name__ == "__main__":
    asyncio.run(main())
