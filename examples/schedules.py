"""Tasks by the clock: rules in code, several per task, and one that is made at run time."""

import asyncio

from windlass import Context, Cron, Every, Manual, Windlass

app = Windlass("sqlite:///jobs.db")
seen = asyncio.Event()


@app.schedule(Every(0.2))  # on a multiple of it: no restart moves the slots
@app.task(name="poll")
async def poll(ctx: Context) -> None:
    if ctx.slot is not None:  # the instant it was made for, however late it runs
        seen.set()


@app.schedule(Cron("0 8 * * mon-fri", tz="Europe/Berlin"), name="report-eu", args=["eu"])
@app.schedule(Cron("0 8 * * mon-fri", tz="America/New_York"), name="report-us", args=["us"])
@app.task(name="report")
async def report(region: str) -> str:
    return f"the numbers of {region}"


async def main() -> None:
    async with app, app.worker():  # any number of workers: one job per slot
        await asyncio.wait_for(seen.wait(), 10)
        await app.admin.acting("ada").schedules.pause("poll")  # holds over restarts
        await app.admin.acting("ada").schedules.create("report-jp", Manual(), report.call("jp"))
        job = await app.admin.acting("ada").schedules.trigger("report-jp")
        print(await app.job(job.id).result(timeout=10) if job else "")
        for schedule in await app.admin.schedules.list():
            print(f"{schedule.name}: {schedule.words}, {schedule.state}")


if __name__ == "__main__":
    asyncio.run(main())
