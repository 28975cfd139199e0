"""Flask: views enqueue without an event loop, jobs see the application's context.

Serve it: ``flask --app flask_shop run``, and beside it ``windlass worker flask_shop:app``.
"""

import asyncio

from flask import Flask, current_app

from windlass import Windlass
from windlass.integrations.flask import get_app, init_app

app = Windlass("sqlite:///jobs.db")
server = Flask(__name__)
server.config["SHOP"] = "the corner shop"
init_app(server, app, context=True)


@app.task
def send_receipt(order: int) -> str:
    return f"receipt for order {order} of {current_app.config['SHOP']} sent"


@server.post("/orders/<int:order>")
def buy(order: int) -> dict[str, str]:
    job = send_receipt.enqueue_sync(order)
    return {"job": job.id, "state": get_app().blocking.refresh(job).state}


async def work(job: str) -> str:
    """Run jobs as ``windlass worker`` does, until one job is done."""
    async with app, app.worker():
        return str(await app.job(job).result(timeout=10))


if __name__ == "__main__":
    made = server.test_client().post("/orders/7").get_json()
    print(made["state"])
    print(asyncio.run(work(made["job"])))
