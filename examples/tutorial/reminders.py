"""One reminder per customer, an hour after the last visit, and a report every working day."""

from shop import app

from windlass import Context, Cron, Unique


@app.task(unique=Unique(key="{customer}", on_conflict="replace"))
async def remind(customer: str, items: int) -> str:
    return f"{customer} has {items} things in the basket"


@app.schedule(Cron("0 8 * * mon-fri", tz="Europe/Berlin"))
@app.task
async def sales_report(ctx: Context) -> str:
    return "report for the boss" if ctx.slot is None else f"report of {ctx.slot:%A}"
