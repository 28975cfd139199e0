"""The shop's app and its first task."""

from windlass import Windlass

app = Windlass(config="windlass.toml")


@app.task
async def send_receipt(order: int, to: str) -> str:
    return f"receipt for order {order} sent to {to}"
