"""A worker that is killed inside its handler's transaction leaves both writes, or neither."""

from __future__ import annotations

import asyncio
import signal
import sys

import asyncpg
import psycopg
import pytest

from tests.architecture.source import ROOT
from windlass import Backoff, Context, Windlass
from windlass._core.job.state import State


@pytest.mark.crash
@pytest.mark.parametrize("point", ["written", "finished", "committed"])
async def test_their_write_and_the_success_survive_together(
    app: Windlass, postgres_url: str, point: str
) -> None:
    runs: list[int] = []

    @app.task(name="work", backoff=Backoff.none())
    async def work(ctx: Context) -> str:
        runs.append(ctx.attempt)
        connection = await asyncpg.connect(postgres_url)
        try:
            async with connection.transaction():
                await connection.execute("INSERT INTO orders VALUES ($1)", str(ctx.job_id))
                return await ctx.finish("done", connection=connection)
        finally:
            await connection.close()

    job = await work.options(backoff=Backoff.none()).enqueue()
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.transactions.killed", postgres_url, point, cwd=ROOT
    )
    assert await asyncio.wait_for(child.wait(), 60) == -signal.SIGKILL
    if point == "committed":
        assert (await job.refresh()).state is State.SUCCEEDED
    async with app.worker():
        assert await job.result(timeout=60) == "done"
    with psycopg.connect(postgres_url) as line:
        assert line.execute("SELECT name FROM orders").fetchall() == [(job.id,)]
    assert runs == ([] if point == "committed" else [2])
