"""An app that child processes can find; its spans are made in the worker's process."""

from __future__ import annotations

import logging

from opentelemetry import baggage
from opentelemetry.sdk.trace import TracerProvider

from windlass import Context, Secret, Windlass

app = Windlass("memory://")


@app.task(name="follow", queue="follow")
async def follow() -> None: ...


@app.task(name="heavy", queue="heavy", run_in="process")
async def heavy(ctx: Context) -> list[str]:
    """The job it enqueues in a span of its own, that span, the span around it, and baggage."""
    with TracerProvider().get_tracer("child").start_as_current_span("inner") as inner:
        job = await ctx.enqueue(follow.call())
        around = getattr(inner, "parent", None)
        spans = [inner.get_span_context(), around]
        told = [f"{span.trace_id:032x}-{span.span_id:016x}" if span else "" for span in spans]
        return [str(job.id), *told, str(baggage.get_baggage("city"))]


@app.task(name="failing", queue="failing", run_in="process", max_attempts=1)
def failing(card: str) -> None:
    raise LookupError(card)


@app.task(name="careless", run_in="process", max_attempts=1)
def careless(card: Secret[str], login: dict[str, str]) -> None:
    logging.getLogger("shop").warning("careless with %s and %s", card, login)
    raise LookupError(f"careless: {card} {login!r}")
