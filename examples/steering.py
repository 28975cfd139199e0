"""A handler decides about its own fate: retry, later, throttled, never again."""

import asyncio

from windlass import Backoff, Context, GiveUp, Snooze, Throttled, Windlass, errors

app = Windlass("memory://")
app.state = {"visits": 0}  # whatever your handlers need: ctx.state


@app.task(max_attempts=2, backoff=Backoff.fixed(0.05))
async def call_webhook(ctx: Context, url: str) -> str:
    if "gone" in url:
        raise GiveUp(f"{url} will never answer")  # no further attempt
    ctx.state["visits"] += 1
    match ctx.state["visits"]:
        case 1:
            raise Snooze(0.05)  # run me later: free
        case 2:
            raise Throttled(0.05)  # "429 Too Many Requests": later, and free
        case 3:
            raise ConnectionError("refused")  # any error: retried, costs an attempt
        case _:
            return f"{url} answered at attempt {ctx.attempt}, after {ctx.previous_error}"


async def main() -> None:
    async with app, app.worker():
        job = await call_webhook.enqueue("https://shop.example/hook")
        print(await job.result(timeout=10))
        job = await call_webhook.enqueue("https://gone.example")
        try:
            await job.result(timeout=10)
        except errors.JobFailed as error:
            print(error.text)


if __name__ == "__main__":
    asyncio.run(main())
