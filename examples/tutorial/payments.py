"""Charge cards. Some failures are worth another attempt, others are not."""

from shop import app

from windlass import Backoff, Context, Failure, GiveUp, Secret


@app.task
async def alert(failure: Failure) -> str:
    return f"{failure.task} failed for good: {failure.error_message}"


@app.task(max_attempts=4, backoff=Backoff.waits([60, 600, 3600]), on_failure=alert)
async def charge(ctx: Context, order: int, card: Secret[str]) -> int:
    if card.endswith("0000"):
        raise GiveUp("the bank declined the card")
    if card.endswith("5000") and ctx.attempt == 1:  # in place of a bank that is down for a moment
        raise ConnectionError("the bank does not answer")
    return order
