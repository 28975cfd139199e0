"""A small app in a folder of its own, and a hold on its storage."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

from windlass import Windlass
from windlass._app.parts import parts_of
from windlass._core.job.job import JobRecord

SHOP = """
import asyncio
import os
import subprocess
import sys
import time
from windlass import Backoff, Context, Windlass

app = Windlass("sqlite:///{folder}/jobs.db")

def begin(ctx: Context) -> None:
    open("{folder}/begun-" + ctx.job_id, "w").close()

@app.task(name="shop.add")
async def add(a: int, b: int) -> int:
    return a + b

@app.task(name="shop.nap")
async def nap(ctx: Context, seconds: float) -> str:
    begin(ctx)
    await asyncio.sleep(seconds)
    return "rested"

@app.task(name="shop.block")
async def block(ctx: Context, seconds: float) -> None:
    begin(ctx)
    time.sleep(seconds)

@app.task(name="shop.cling")
async def cling(ctx: Context, seconds: float) -> None:
    begin(ctx)
    await asyncio.to_thread(time.sleep, seconds)

@app.task(name="shop.fail", max_attempts=2, backoff=Backoff.fixed(0.05))
async def fail(text: str) -> None:
    raise ValueError(text)

@app.task(name="shop.talk", queue="talk")
async def talk(ctx: Context, text: str) -> None:
    ctx.log("%s", text)

@app.task(name="shop.orphan")
def orphan() -> int:
    # The middle one ends first, so the last one's parent is PID 1.
    code = "import os, time; pid = os.fork(); print(pid) if pid else time.sleep(0.2)"
    return int(subprocess.check_output([sys.executable, "-c", code], stdin=subprocess.DEVNULL))

@app.task(name="shop.exists")
def exists(pid: int) -> bool:
    return os.path.exists("/proc/" + str(pid))
"""


class Shop:
    """The app as this test process sees it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "shop.py").write_text(SHOP.format(folder=folder), encoding="utf-8")
        names = runpy.run_path(str(folder / "shop.py"))
        self.app: Windlass = names["app"]
        self._names = names

    def enqueue(self, task: str, *arguments: Any, **options: Any) -> str:
        return str(self._names[task].options(**options).enqueue_sync(*arguments).id)

    def begun(self, job_id: str) -> bool:
        """Whether its handler was entered: a stored claim alone may still be given back."""
        return (self.folder / f"begun-{job_id}").exists()

    def job(self, job_id: str) -> JobRecord:
        return self.app.blocking.run(self.app.admin.jobs.get(job_id))

    def result(self, job_id: str) -> Any:
        return self.app.blocking.result(self.app.job(job_id), 30)

    def close(self) -> None:
        self.app.blocking.run(self.app.close())
        parts_of(self.app).blocking_loop.stop()
