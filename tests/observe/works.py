"""An app that child processes can find; its spans are made in the worker's process."""

from __future__ import annotations

from windlass import Context, Windlass

app = Windlass("memory://")


@app.task(name="follow")
async def follow() -> None: ...


@app.task(name="heavy", run_in="process")
async def heavy(ctx: Context) -> str:
    return str((await ctx.enqueue(follow.call())).id)


@app.task(name="failing", run_in="process", max_attempts=1)
def failing(card: str) -> None:
    raise LookupError(card)
