"""``windlass jobs replay``."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.fixtures import Said
from windlass import Windlass
from windlass._app.parts import parts_of
from windlass._cli.main import main
from windlass._core.job.job import JobRecord

SHOP = """
import asyncio
import threading
from contextlib import asynccontextmanager
from windlass import Context, GiveUp, Program, Snooze, Windlass, current

app = Windlass("sqlite:///jobs.db")

@app.lifespan
async def around(app):
    app.state = {"price": 7}
    yield
    app.state = None

@app.middleware
async def counted(ctx, call_next):
    ctx.state["calls"] = ctx.state.get("calls", 0) + 1
    return await call_next()

@app.task
async def add(ctx: Context, a: int, b: int) -> int:
    ctx.progress(0.5, "half way")
    ctx.note(rows=2)
    ctx.log("adding on %s", ctx.state["price"])
    await ctx.enqueue(told.call("from the context"))
    await told.enqueue("at once")
    assert await ctx.previous_run() is None
    assert ctx.attempt == 1 and ctx.state["calls"] == 1
    return a + b

@app.task(queue="ears")
def told(text: str) -> str:
    told_again.enqueue_sync(text)
    assert threading.current_thread() is not threading.main_thread()
    return current().queue

@app.task
async def told_again(text: str) -> None: ...

@app.task
async def broken(order: int) -> None:
    price = order * 2
    raise LookupError(f"no order {order}")

@app.task
async def later() -> None:
    raise Snooze(60)

@app.task
async def hopeless() -> None:
    raise GiveUp("never")

@app.task
async def finishing(ctx: Context) -> int:
    await ctx.finish(42, connection=object())

@app.task
async def grouped(ctx: Context) -> int:
    async with asyncio.TaskGroup() as group:
        group.create_task(ctx.finish(42, connection=object()))

@app.task
async def unfit(ctx: Context) -> int:
    await ctx.finish("forty-two", connection=object())

@app.task(timeout=0.05)
async def slow() -> None:
    await asyncio.sleep(30)

@app.task(run_in=Program(["sh", "-c", "echo counting >&2; wc -l"]))
def count(text: str) -> int:
    raise NotImplementedError
"""


class Replayed:
    """Jobs of a shop in this folder, and what a replay says of them."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (folder / "replayed.py").write_text(SHOP, encoding="utf-8")
        self.shop: Any = importlib.import_module("replayed")
        self.app: Windlass = self.shop.app
        self._capsys = capsys

    def enqueue(self, task: str, *arguments: Any) -> str:
        return str(getattr(self.shop, task).enqueue_sync(*arguments).id)

    def __call__(self, job: str, *options: str) -> Said:
        self._capsys.readouterr()
        code = main(["jobs", "replay", "replayed:app", job, *options])
        return Said(code, *self._capsys.readouterr())

    def stored(self) -> list[JobRecord]:
        return list(self.app.blocking.run(self.app.admin.jobs.find(limit=100)))


@pytest.fixture
def replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Replayed]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    made = Replayed(tmp_path, capsys)
    yield made
    made.app.blocking.run(made.app.close())
    parts_of(made.app).blocking_loop.stop()
    del sys.modules["replayed"]


def test_a_handler_runs_here_and_the_job_stays_as_it_is(replayed: Replayed) -> None:
    job = replayed.enqueue("add", 1, 2)
    before = replayed.stored()
    said = replayed(job)
    assert (said.code, said.out) == (0, "It returned 3.\n")
    assert (
        f"Replaying job {job}, task replayed.add. The stored job (waiting) is not changed"
        in said.err
    )
    assert "progress 50% half way" in said.err
    assert 'metadata {"rows":2}' in said.err
    assert "adding on 7" in said.err
    assert "ctx.previous_run() is None here: the storage of this run is empty" in said.err
    assert said.err.count("would enqueue replayed.told on queue ears; nothing was stored") == 2
    assert replayed.stored() == before
    assert replayed.app.state is None
    told = replayed(job, "--json").json
    assert told == {
        "id": job,
        "task": "replayed.add",
        "outcome": "succeeded",
        "result": 3,
        "error": None,
    }


def test_a_plain_function_runs_on_a_thread_and_stores_nothing_either(replayed: Replayed) -> None:
    job = replayed.enqueue("told", "x")
    said = replayed(job)
    assert (said.code, said.out) == (0, 'It returned "ears".\n')
    assert "would enqueue replayed.told_again on queue default" in said.err
    assert [one.id for one in replayed.stored()] == [job]


def test_a_program_runs_here_as_in_a_worker(replayed: Replayed) -> None:
    said = replayed(replayed.enqueue("count", "x"))
    assert (said.code, said.out) == (0, "It returned 1.\n")  # the request is one line
    assert "counting" in said.err


def test_the_outcome_that_a_worker_would_store_is_printed(replayed: Replayed) -> None:
    broken = replayed(replayed.enqueue("broken", 7))
    assert broken.code == 3
    assert "A worker would retry it: LookupError: no order 7" in broken.out
    assert "windlass/_worker" not in broken.out
    assert "windlass/_cli" not in broken.out
    assert "price = order" not in broken.out
    assert 'raise LookupError(f"no order {order}")' in broken.out
    assert replayed(replayed.enqueue("later")).out == "It asked to run again after 1 m.\n"
    once = replayed.shop.broken.options(max_attempts=1).enqueue_sync(8).id
    assert "A worker would fail the job, this was its last attempt" in replayed(once).out
    gone = replayed(replayed.enqueue("hopeless"))
    assert "A worker would fail the job for good: GiveUp: never" in gone.out
    assert "JobTimeout" in replayed(replayed.enqueue("slow")).out


def test_a_replay_ends_at_ctx_finish_and_says_that_a_worker_would_succeed(
    replayed: Replayed,
) -> None:
    for name in ("finishing", "grouped"):
        told = replayed(replayed.enqueue(name), "--json")
        assert told.code == 0
        body = json.loads(told.out)
        assert (body["outcome"], body["result"], body["error"]) == ("succeeded", 42, None)
        said = replayed(replayed.enqueue(name)).out
        assert said.startswith("It called ctx.finish with 42. A worker would have stored that")
    unfit = replayed(replayed.enqueue("unfit"))
    assert unfit.code == 3
    assert "does not fit its return annotation" in unfit.out


def test_the_debugger_stops_where_it_was_raised(
    replayed: Replayed, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr("pdb.post_mortem", seen.append)
    assert replayed(replayed.enqueue("broken", 7), "--pdb").code == 3
    (frames,) = seen
    while frames.tb_next is not None:
        frames = frames.tb_next
    assert frames.tb_frame.f_locals["price"] == 14
    seen.clear()
    assert replayed(replayed.enqueue("add", 1, 2), "--pdb").code == 0
    assert seen == []


def test_a_replay_needs_the_code_and_the_job(replayed: Replayed) -> None:
    job = replayed.enqueue("add", 1, 2)
    replayed._capsys.readouterr()
    assert main(["jobs", "replay", job, "--url", "sqlite:///jobs.db"]) == 1
    assert f"windlass jobs replay MODULE:APP {job}" in replayed._capsys.readouterr().err
    unknown = replayed("0" * 32)
    assert unknown.code == 1
    assert "is stored. Check the id" in unknown.err
    gone = replayed.app.tasks.remove("replayed.add")
    missing = replayed(job)
    replayed.app.tasks.add(gone)
    assert missing.code == 1
    assert "No task named 'replayed.add' is registered" in missing.err
