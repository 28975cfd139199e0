"""Flows: an order is charged, invoiced and mailed. Every night the day's orders are summed up."""

from payments import charge
from shop import app

from windlass import Cron, Flow, Results


@app.task
async def make_invoice(order: int) -> str:
    return f"invoice-{order}.pdf"


@app.task
async def mail_invoice(invoice: str, *, to: str) -> str:
    return f"{invoice} mailed to {to}"


def order_flow(order: int, *, card: str, to: str) -> Flow:
    flow = Flow(f"order {order}", key=f"order:{order}")
    flow.add(charge.call(order, card)).then(make_invoice).then(mail_invoice, to=to)
    return flow


@app.task
async def count_orders(region: str) -> int:
    return len(region)  # in place of a query


@app.task
async def add_up(counts: Results[int]) -> str:
    return f"{sum([count async for count in counts])} orders today"


@app.schedule(Cron("0 3 * * *", tz="Europe/Berlin"))
@app.task
async def close_day() -> str:
    flow = Flow("close the day", key="close-day")
    counts = flow.map(count_orders, ["north", "south", "west"])
    flow.add(add_up.call(counts.results))
    return (await app.start(flow)).id
