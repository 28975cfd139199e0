"""A flow: import rows side by side, summarise what they returned, tell how it ended."""

import asyncio

from windlass import Flow, Results, Windlass, ended

app = Windlass("sqlite:///jobs.db")
told = asyncio.Event()


@app.task(max_attempts=1)
async def import_row(row: str, *, shop: int) -> int:
    return int(row) * shop


@app.task
async def summarise(rows: Results[int]) -> str:
    values = [done.value async for done in rows.outcomes() if done.value]
    return f"{len(values)} rows, total {sum(values)}"


@app.task
async def tell(what: str) -> None:
    print(what)
    told.set()


async def main() -> None:
    flow = Flow("import", key="import:7", on_failed=tell.call("some rows are wrong"))
    rows = flow.map(import_row, ["1", "2", "three", "4"], shop=10)
    summary = flow.add(summarise.call(rows.results), after=ended(rows))
    flow.add(tell.call("published"), after=rows)  # only if every row is right
    async with app, app.worker():
        record = await (run := await app.start(flow)).wait(timeout=30)
        await told.wait()  # a callback runs after the end
        print(await run.result(summary), f"flow {record.state}, {record.stopped} stopped", sep="\n")


if __name__ == "__main__":
    asyncio.run(main())
