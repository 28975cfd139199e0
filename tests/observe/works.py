"""An app that child processes can find; its spans are made in the worker's process."""

from __future__ import annotations

import logging

from windlass import Context, Secret, Windlass

app = Windlass("memory://")


@app.task(name="follow")
async def follow() -> None: ...


@app.task(name="heavy", run_in="process")
async def heavy(ctx: Context) -> str:
    return str((await ctx.enqueue(follow.call())).id)


@app.task(name="failing", run_in="process", max_attempts=1)
def failing(card: str) -> None:
    raise LookupError(card)


@app.task(name="careless", run_in="process", max_attempts=1)
def careless(card: Secret[str], login: dict[str, str]) -> None:
    logging.getLogger("shop").warning("careless with %s and %s", card, login)
    raise LookupError(f"careless: {card} {login!r}")
