"""An app whose tasks do the same on the loop, on threads and in child processes."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import windlass
from windlass import (
    Backoff,
    Context,
    Failure,
    Flow,
    GiveUp,
    Limit,
    Rate,
    Results,
    Retry,
    Snooze,
    Throttled,
    Unique,
    Windlass,
)

URL = os.environ.get("HEAVY_URL", "memory://")
app = Windlass(URL, grace=0.2, lease=30)
small = Windlass("memory://", child_memory_limit=150)
worn = Windlass("memory://", child_max_jobs=2)
fat = Windlass("memory://", child_max_megabytes=1)
log = logging.getLogger("shop")

colour: ContextVar[str] = ContextVar("colour", default="none")
EXECUTORS = ("loop", "thread", "process", "process-async")


@app.lifespan
async def lifespan(app: Windlass) -> AsyncIterator[None]:
    app.state = {"pid": os.getpid()}
    yield
    app.state = None
    if path := os.environ.get("HEAVY_FAREWELL"):
        with open(path, "a", encoding="utf-8") as file:  # noqa: PTH123
            file.write(f"{os.getpid()}\n")


def both(
    name: str, plain: Callable[..., Any], coroutine: Callable[..., Any], **options: Any
) -> None:
    """Register the same work for every executor."""
    options = {"max_attempts": 1, **options}
    app.task(name=f"loop.{name}", **options)(coroutine)
    app.task(name=f"thread.{name}", **options)(plain)
    app.task(name=f"process.{name}", run_in="process", **options)(plain)
    app.task(name=f"process-async.{name}", run_in="process", **options)(coroutine)


def echo(value: int) -> int:
    return value


async def echo_async(value: int) -> int:
    return value


both("echo", echo, echo_async)


def resume(ctx: Context) -> int:
    before = ctx.previous_run().wait()
    return 1 if before is None else int(before.result) + 1


async def resume_async(ctx: Context) -> int:
    before = await ctx.previous_run()
    return 1 if before is None else int(before.result) + 1


both("resume", resume, resume_async)


def add_up(numbers: Results[int]) -> int:
    assert all(done.ok for done in numbers.outcomes())
    return sum(numbers)


async def add_up_async(numbers: Results[int]) -> int:
    assert all([done.ok async for done in numbers.outcomes()])
    return sum(await numbers.list())


both("add_up", add_up, add_up_async)


def forget() -> object:
    return object()  # cannot be stored


async def forget_async() -> object:
    return object()


both("forget", forget, forget_async, store_result=False)


def notes(ctx: Context, fate: str) -> None:
    ctx.note(rows=1, source="s3")
    ctx.note(rows=120, whole=True)
    if fate == "fail":
        raise ValueError("no good")
    if fate == "hang":
        time.sleep(60)


async def notes_async(ctx: Context, fate: str) -> None:
    ctx.note(rows=1, source="s3")
    ctx.note(rows=120, whole=True)
    if fate == "fail":
        raise ValueError("no good")
    if fate == "hang":
        await asyncio.sleep(60)


both("notes", notes, notes_async)


def late(ctx: Context) -> str:
    return "told" if ctx.cancelled.wait(30) else "not told"


async def late_async(ctx: Context) -> str:
    try:
        await asyncio.sleep(30)
    except windlass.SoftTimeout:
        return "told"
    return "not told"


both("late", late, late_async, soft_timeout=0.1)


async def by_name(ctx: Context) -> str:
    return (await ctx.enqueue(app.call("shop.charge", {"order": 7}, delay=3600))).id


app.task(name="process.by_name", run_in="process")(by_name)


def broken() -> None:
    raise ValueError("no good")


async def broken_async() -> None:
    raise ValueError("no good")


both("broken", broken, broken_async)


@dataclass
class Person:
    name: str
    age: int


class Refused(ConnectionError):
    """They answered, and the answer is no."""


def picky(kind: str) -> None:
    raise {"busy": ConnectionError, "refused": Refused, "bug": ValueError}[kind](kind)


async def picky_async(kind: str) -> None:
    picky(kind)


both(
    "picky",
    picky,
    picky_async,
    max_attempts=3,
    backoff=Backoff.waits([60]),
    retry_on=OSError,
    give_up_on=(Refused,),
)


def hang(ctx: Context) -> None:
    ctx.progress(0.1)
    assert ctx.cancelled.wait(60)
    raise RuntimeError("given up half-way")


async def hang_async(ctx: Context) -> None:
    ctx.progress(0.1)
    await asyncio.sleep(60)


both("hang", hang, hang_async)
both("brief", hang, hang_async, timeout=0.3)


def count(ctx: Context) -> None:
    for step in range(1, 11):
        ctx.progress(step / 10, f"{step} of 10", data={"step": step})


async def count_async(ctx: Context) -> None:
    count(ctx)


both("count", count, count_async)


def later(ctx: Context) -> None:
    ctx.snooze(3600)


async def later_async(ctx: Context) -> None:
    later(ctx)


both("later", later, later_async)


def stubborn(ctx: Context) -> str:
    ctx.progress(0.1)
    assert ctx.cancelled.wait(60)
    return "done all the same"


async def stubborn_async(ctx: Context) -> str:
    ctx.progress(0.1)
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        return "done all the same"
    return "never asked"


both("stubborn", stubborn, stubborn_async)


def about(ctx: Context) -> dict[str, Any]:
    assert windlass.current() is ctx
    before, _ = colour.get(), colour.set("red")
    return {
        "job": ctx.job_id,
        "attempt": [ctx.attempt, ctx.max_attempts],
        "identity": [ctx.tenant, ctx.principal, ctx.correlation_id],
        "tags": list(ctx.tags),
        "state": ctx.state["pid"] == os.getpid(),
        "colour": before,
    }


async def about_async(ctx: Context) -> dict[str, Any]:
    return about(ctx)


both("about", about, about_async, max_attempts=3)


def once_more(ctx: Context) -> str | None:
    if ctx.attempt == 1:
        raise ValueError("first")
    return ctx.previous_error


async def once_more_async(ctx: Context) -> str | None:
    return once_more(ctx)


both("once_more", once_more, once_more_async, max_attempts=2, backoff=Backoff.none())


def tell(ctx: Context) -> None:
    log.warning("from %s", "a library")
    ctx.log("from the handler")
    try:
        raise KeyError("lost")
    except KeyError:
        log.exception("with a trace")


async def tell_async(ctx: Context) -> None:
    tell(ctx)


both("tell", tell, tell_async)


def steer(how: str) -> None:
    ways = {
        "snooze": Snooze(3600),
        "throttle": Throttled(3600),
        "give up": GiveUp("no"),
        "retry": Retry("busy", after=3600),
        "exit": SystemExit(3),
    }
    raise ways[how]


async def steer_async(how: str) -> None:
    steer(how)


both("steer", steer, steer_async, max_attempts=3)


def steer_in_group(how: str) -> None:
    try:
        steer(how)
    except (Snooze, Throttled, GiveUp, Retry) as error:
        raise ExceptionGroup("unhandled errors in a TaskGroup", [error]) from None


async def steer_in_group_async(how: str) -> None:
    steer_in_group(how)


both("steer_in_group", steer_in_group, steer_in_group_async, max_attempts=3)


def odd() -> object:
    return object()


async def odd_async() -> object:
    return object()


both("odd", odd, odd_async)


@app.task(name="follow_up")
async def follow_up() -> None: ...


async def enqueue(ctx: Context) -> str:
    return str((await ctx.enqueue(follow_up.call())).id)


def enqueue_plain() -> str:
    return str(follow_up.enqueue_sync().id)


both("enqueue", enqueue_plain, enqueue)


@app.task(name="added", max_attempts=3, queue="idle")
async def added(number: int, text: str = "") -> None: ...


def add(ctx: Context, fate: str) -> str:
    ctx.then(*(added.call(number) for number in range(3)))
    ctx.then(added.options(delay=60, key="k", priority=-1, tags=["x"]).call(3, "ü" * 100))
    if fate == "fail":
        raise ValueError("no good")
    return "done"


async def add_async(ctx: Context, fate: str) -> str:
    return add(ctx, fate)


both("add", add, add_async)


def plan(ctx: Context, number: int) -> str:
    flow = Flow("planned")
    rows = flow.map(app.tasks["loop.echo"], range(number))
    total = flow.add(app.tasks["loop.add_up"].call(rows.results), name="total")
    ctx.then(flow)
    return total.id


async def plan_async(ctx: Context, number: int) -> str:
    return plan(ctx, number)


both("plan", plan, plan_async)


@app.task(name="index", unique=Unique(key="{page}"))
async def index(page: int, words: str) -> None: ...


@app.task(run_in="process", max_attempts=1, on_lost="fail")
async def debounce(ctx: Context) -> list[tuple[bool, bool]]:
    by_key = follow_up.options(key="k", delay=3600, unique_for=60, on_conflict="replace")
    changed = index.options(delay=3600, on_conflict="replace")
    calls = [by_key.call(), by_key.call(), changed.call(1, "a"), changed.call(1, "b")]
    jobs = [await ctx.enqueue(call) for call in [*calls, index.call(1, "c")]]
    return [(job.created, job.replaced) for job in jobs]


@app.task(run_in="process", max_attempts=1, on_lost="fail", on_failure="process.mourn")
def doomed(order: int) -> None:
    os._exit(9)


@app.task(name="process.mourn", run_in="process", max_attempts=1, on_lost="fail")
def mourn(failure: Failure) -> list[object]:
    return [failure.job_id, failure.arguments, failure.error_kind]


# --- in child processes only --------------------------------------------------------------------


@app.task(run_in="process", max_attempts=1, on_lost="fail")
def whoami() -> list[int]:
    return [os.getpid(), os.getppid()]


@app.task(run_in="process", max_attempts=5, backoff=Backoff.none())
def segfault() -> None:
    ctypes.string_at(0)


@app.task(run_in="process", max_attempts=1, on_lost="fail")
def leave(code: int) -> None:
    os._exit(code)


@app.task(run_in="process", max_attempts=1, on_lost="fail")
def suicide(number: int) -> None:
    os.kill(os.getpid(), number)
    threading.Event().wait(60)


@app.task(run_in="process", max_attempts=1, on_lost="fail", timeout=0.3)
def deaf(ctx: Context) -> None:
    time.sleep(60)


@app.task(run_in="process", max_attempts=1, on_lost="fail")
def with_family(ctx: Context) -> None:
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    ctx.progress(0.5, str(other.pid))
    time.sleep(60)


@app.task(run_in="process", max_attempts=1, on_lost="fail")
def leaves_a_program(ctx: Context) -> None:
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    ctx.progress(0.5, str(other.pid))
    ctx.cancelled.wait(0.5)  # until the note has been stored
    os._exit(3)


@app.task(run_in="process", max_attempts=1, on_lost="fail")
def pids(ctx: Context) -> None:
    ctx.progress(0.5, str(os.getpid()))
    signal.raise_signal(signal.SIGTERM)  # what a service manager sends to everybody
    ctx.cancelled.wait(60)
    time.sleep(60)


@app.task(run_in="process", max_attempts=1, on_lost="fail")
async def refused(ctx: Context, what: str) -> None:
    connection: Any = object()
    if what == "finish":
        await ctx.finish(None, connection=connection)
    elif what == "connection":
        await ctx.enqueue(follow_up.options(connection=connection).call())
    else:
        await ctx.enqueue(elsewhere.call())


other = Windlass("memory://")


@other.task(name="elsewhere")
async def elsewhere() -> None: ...


@app.task(run_in="process", max_attempts=1, on_lost="fail")
def talkative(ctx: Context) -> None:
    for number in range(20_000):
        ctx.progress(0.5, str(number))
    ctx.cancelled.wait(60)


@app.task(run_in="process", max_attempts=1, on_lost="fail")
def falls_silent() -> None:
    for fd in range(3, 1024):
        with suppress(OSError):
            socket.socket(fileno=os.dup(fd)).shutdown(socket.SHUT_WR)
    threading.Event().wait(60)


@small.task(run_in="process", max_attempts=1, on_lost="fail")
def hog() -> None:
    kept = []
    while True:
        kept.append(bytearray(5_000_000))
        time.sleep(0.005)


def me() -> int:
    return os.getpid()


worn_me = worn.task(name="worn.me", run_in="process")(me)
fat_me = fat.task(name="fat.me", run_in="process")(me)


@app.task(limits=Limit("follow", Rate(10, per=1), key="{who.name}", cost=lambda who: who.age))
async def followed(who: Person) -> None: ...


async def follow(ctx: Context, name: str) -> str:
    job = await ctx.enqueue(followed.options(delay=60).call(Person(name, 4)))
    return str(job.id)


def unfollowed(name: str) -> None:
    raise AssertionError(name)


both("follow", unfollowed, follow)
