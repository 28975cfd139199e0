"""A worker has loaded everything before its first claim: no job waits for an import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.cli.processes import environment

SHOP = """
import asyncio, sys
from windlass import Backoff, Context, Every, Retry, Secret, Snooze, Throttled, Windlass

app = Windlass("sqlite:///jobs.db", event_log=True, poll=0.05)
late = []

def watch(event, arguments):
    if event == "import" and arguments[0].startswith("windlass"):
        late.append(arguments[0])

@app.lifespan
async def around(app):
    sys.addaudithook(watch)  # before the first claim
    yield
    print("imported late:", sorted(set(late)))

@app.task(queue="quiet")
async def parent(ctx: Context) -> None: ...

@app.task(max_attempts=2, backoff=Backoff.fixed(0.01), on_failure="shop.told")
async def fails() -> None:
    raise ValueError("no")

@app.task
def told(failure: "Failure") -> None: ...

from windlass import Failure

@app.task
async def naps(ctx: Context) -> None:
    if ctx.claimed.claim.number < 2:
        raise Snooze(0.01)

@app.task
def plain(card: Secret[str]) -> int:
    return parent.enqueue_sync() and 1

@app.schedule(Every(0.2))
@app.task(unique=True)
async def often() -> None: ...

@app.task
async def first(ctx: Context) -> str:
    ctx.progress(0.5, "half")
    ctx.log("hello")
    other = await ctx.enqueue(parent.call())
    await parent.options(delay=3600).enqueue()
    await other.refresh()
    await other.cancel()
    await app.admin.queues.counts()
    return "done"
"""
RUN = """
import asyncio, sys
import shop
from windlass._cli.main import main

async def enqueue():
    async with shop.app:
        for task in (shop.first, shop.fails, shop.naps):
            await task.enqueue()
        await shop.plain.enqueue("4111")

asyncio.run(enqueue())
sys.exit(main(["worker", "shop:app", "--until-empty", "--queue", "default", "--no-summary"]))
"""


def run(folder: Path, shop: str) -> str:
    (folder / "shop.py").write_text(shop, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-c", RUN],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    (line,) = [line for line in ran.stdout.splitlines() if line.startswith("imported late:")]
    return line.removeprefix("imported late: ")


def test_no_job_waits_for_an_import(tmp_path: Path) -> None:
    assert run(tmp_path, SHOP) == "[]"


def test_a_late_import_is_noticed(tmp_path: Path) -> None:
    shop = SHOP.replace('return "done"', "import windlass.testing")
    assert "windlass.testing" in run(tmp_path, shop)
