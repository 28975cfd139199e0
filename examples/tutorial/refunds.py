"""Refunds: the bank allows ten calls a second, and says so if it gets more."""

import time

from shop import app

from windlass import Limit, Rate, Throttled

bank = Limit("bank", rate=Rate(10, per="1s", burst=1))
calls: list[float] = []  # in place of the bank, which counts our calls


@app.task(queue="bank", limits=[bank], breaker=True)
async def refund(order: int) -> str:
    calls.append(time.monotonic())
    if len(calls) == 4:
        raise Throttled(after=1)  # its answer was: 429, Retry-After: 1
    return f"order {order} refunded after {calls[-1] - calls[0]:.1f} s"
