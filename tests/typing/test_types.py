"""A wrong argument is a type error: programs that must pass the checkers, and lines that must not.

A line that must fail ends in ``# E: code text``: the code of mypy's error and part of its text.
Pyright must find an error in the same lines and in no other.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from mypy import api

from tests.architecture.source import ROOT

HEAD = """\
import asyncio
from datetime import datetime, timedelta
from windlass import Backoff, Context, Job, Secret, Task, Windlass

app = Windlass("memory://")

@app.task
async def send(to: str, *, subject: str, copies: int = 1) -> int:
    return copies

@app.task(queue="mail", timeout=timedelta(seconds=30))
def resize(path: str, width: int = 200) -> list[str]:
    return [path] * width

@app.task
async def report(ctx: Context, day: datetime) -> None:
    ctx.progress(0.5, "half")

@app.task(priority=1)
def tidy(ctx: Context) -> bool:
    return ctx.attempt == 1
"""
EXPECTED = re.compile(r"#\s*E: (?P<code>[\w-]+)(?: (?P<text>.*))?$")
REPORTED = re.compile(r"^.*?:(?P<line>\d+): error: (?P<text>.*?)\s+\[(?P<code>[\w-]+)\]$")


def expected(text: str) -> dict[int, re.Match[str]]:
    return {
        number: match
        for number, line in enumerate(text.splitlines(), 1)
        if (match := EXPECTED.search(line))
    }


def check(folder: Path, program: str) -> None:
    """Hold mypy's errors against the comments, line by line."""
    file = folder / "program.py"
    text = HEAD + program
    file.write_text(text, encoding="utf-8")
    cache = f"--cache-dir={folder.parent / 'mypy'}"
    output, complaints, _ = api.run(
        ["--strict", "--no-error-summary", "--config-file=", cache, str(file)]
    )
    assert complaints == ""
    found = [match for line in output.splitlines() if (match := REPORTED.match(line))]
    got: dict[int, dict[str, str]] = {}
    for match in found:
        got.setdefault(int(match["line"]), {})[match["code"]] = match["text"]
    wanted = expected(text)
    assert sorted(got) == sorted(wanted), output
    for number, match in wanted.items():
        assert (match["text"] or "") in got[number].get(match["code"], "no such error"), output


RIGHT = [
    pytest.param(
        """
from typing import Protocol
from windlass import Every, Grants, Plugin, Registrar

class Mailer(Protocol):
    def send(self, to: str) -> int: ...

class Letters:
    name = "letters"

    def register(self, registrar: Registrar) -> None:
        @registrar.task(concurrency=1)
        async def deliver(ctx: Context, to: str) -> int:
            mailer = ctx.services.need("mailer", Mailer)
            mailer.post(to)  # E: attr-defined post
            perhaps = ctx.services.get("mailer", Mailer)
            perhaps.send(to)  # E: union-attr None
            deliver.call(5)  # E: arg-type
            return mailer.send(to)

        registrar.schedule(Every(60), args=["ada"])(deliver)
        registrar.task(concurrency="one")  # E: call-overload

class Nameless:
    def register(self, registrar: Registrar) -> None: ...

plugin: Plugin = Letters()
app.install(Letters(), grants=Grants(tasks=True, queues=["mail"], middleware="own"))
app.install(Nameless())  # E: arg-type Plugin
Grants(middleware="some")  # E: arg-type
Grants(task=True)  # E: call-arg
""",
        id="plugins",
    ),
    pytest.param(
        """
import psycopg
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

async def main(session: AsyncSession, line: psycopg.Connection, other: Session) -> None:
    await send.options(connection=session, wake="commit").enqueue("a", subject="b")
    resize.options(connection=line).enqueue_sync("a.png")
    await app.enqueue_many([resize.call("a.png")], connection=session)
    await app.enqueue_many([resize.call("a.png")], ids=["x"])
    number: str = await send.job("x").result()  # E: assignment
    resize.options(id=5)  # E: arg-type
    app.blocking.enqueue_many([resize.call("a.png")], connection=other)
    resize.options(connection="postgresql://x")  # E: arg-type UserConnection
    await app.enqueue_many([], connection=5)  # E: arg-type UserConnection
    resize.options(connection=line, wake="now")  # E: arg-type Literal['commit']

@app.task
async def pay(ctx: Context) -> int:
    session = AsyncSession()
    await ctx.finish(connection=session)
    await ctx.finish("a", connection="b")  # E: call-overload No overload variant
    return await ctx.finish(3, connection=session)

@app.task
def refund(ctx: Context) -> str:
    with Session() as session:
        return ctx.finish_sync(3, connection=session)  # E: return-value expected "str"
""",
        id="connections and what is finished on them",
    ),
    pytest.param(
        """
async def main() -> None:
    await send.enqueue("a", subject="b")
    await send.enqueue(to="a", subject="b", copies=2)
    await send.options(delay=5, key="k").enqueue("a", subject="b")
    resize.enqueue_sync("a.png")
    resize.options(at=datetime.now()).enqueue_sync("a.png", 100)
    await app.enqueue_many([send.call("a", subject="b"), resize.options(queue="x").call("a.png")])
""",
        id="calls that fit the function are accepted",
    ),
    pytest.param(
        """
async def main() -> None:
    await report.enqueue(datetime.now())
    await report.enqueue(day=datetime.now())
    tidy.enqueue_sync()
    await app.enqueue_many([tidy.call(), report.call(datetime.now())])
""",
        id="the context is no argument of enqueue",
    ),
    pytest.param(
        """
async def main() -> None:
    copies: int = await (await send.enqueue("a", subject="b")).result(timeout=10)
    job: Job[list[str]] = resize.enqueue_sync("a.png")
    paths: list[str] = app.blocking.result(job, timeout=timedelta(seconds=10))
    await (await report.enqueue(datetime.now())).result()
    done: bool = await (await tidy.options(tags=["x"]).enqueue()).result()
""",
        id="the result is what the function returns",
    ),
    pytest.param(
        """
first: Task[[str, int], list[str]]
def takes_any_task(task: Task[..., object]) -> str:
    return task.name
takes_any_task(send)
takes_any_task(resize)

async def worker() -> None:
    async with app, app.worker(queues={"mail": 2}, max_jobs=100) as running:
        print(running.id)
""",
        id="tasks and workers can be passed on",
    ),
    pytest.param(
        """
from windlass.testing import VirtualClock, drain, drain_all_sync, inline, isolated

async def test() -> None:
    with isolated(app) as clock:
        clock.advance(5)
        drained = (await drain(app, until=timedelta(hours=1))).raise_errors()
        count: int = drained.of(send).succeeded
    with isolated(app, clock=VirtualClock()), inline(app, errors="keep"):
        drain_all_sync(app).raise_errors()
""",
        id="the testing tools are typed",
    ),
]


@pytest.mark.parametrize("program", RIGHT)
def test_a_program_that_is_right_passes(tmp_path: Path, program: str) -> None:
    check(tmp_path, program)


WRONG = [
    pytest.param(
        """
from collections.abc import Callable

async def main(ctx: Context) -> None:
    copies: int = await send("a", subject="b")
    paths: list[str] = resize("a.png", width=3)
    await report(ctx, datetime.now())
    first: bool = tidy(ctx)
    fits: Callable[[str], list[str]] = resize
    paths = await asyncio.to_thread(resize, "a.png", 5)
    await send("a")  # E: call-arg
    await send(1, subject="b")  # E: arg-type
    text: str = await send("a", subject="b")  # E: assignment
    resize("a.png").upper()  # E: attr-defined
    await resize("a.png")  # E: misc
    await report(datetime.now())  # E: call-arg
    tidy()  # E: call-arg
asyncio.run(send("a", subject="b"))
""",
        id="direct calls",
    ),
    pytest.param(
        """
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

def timed(function: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
    @wraps(function)
    def inner(*args: P.args, **kwargs: P.kwargs) -> Awaitable[R]:
        return function(*args, **kwargs)
    return inner

@app.task
@timed
async def count(text: str) -> int:
    return len(text)

@app.task(queue="mail")
@timed
async def told(ctx: Context, text: str) -> int:
    return len(text)

@app.task(queue="mail")
def later(text: str) -> Awaitable[int]:
    return count(text)

async def main(ctx: Context) -> None:
    number: int = await (await count.enqueue("a")).result()
    other: int = await (await told.options(delay=1).enqueue("a")).result() + await told(ctx, "a")
    third: int = app.blocking.result(later.enqueue_sync("a")) + await later("a")
    await count.enqueue(5)  # E: arg-type
    await told.enqueue(ctx, "a")  # E: call-arg
    text: str = await (await told.enqueue("a")).result()  # E: assignment
""",
        id="decorated handlers",
    ),
    pytest.param(
        """
from windlass import Call

async def main(ctx: Context) -> None:
    numbers: list[Call[int]] = [send.call("a", subject="b")]
    numbers.append(send.options(delay=1).call("a", subject="b"))
    jobs: list[Job[int]] = await app.enqueue_many(numbers)
    total: int = sum([await job.result() for job in await app.enqueue_many(numbers)])
    again: list[Job[int]] = app.blocking.enqueue_many(numbers)
    child: Job[list[str]] = await ctx.enqueue(resize.call("a.png"))
    mixed = await app.enqueue_many([send.call("a", subject="b"), resize.call("a.png")])
    texts: list[Job[str]] = await app.enqueue_many(numbers)  # E: arg-type
    numbers.append(resize.call("a.png"))  # E: arg-type
    wrong: Job[int] = await ctx.enqueue(resize.call("a.png"))  # E: arg-type
    await ctx.enqueue(resize)  # E: arg-type
""",
        id="calls",
    ),
    pytest.param(
        """
from functools import partial

@app.task
async def add(*numbers: int, **names: str) -> int:
    return sum(numbers)

half = app.task(partial(resize, "a.png"))

async def main() -> None:
    total: int = await (await add.enqueue(1, 2, three="3")).result()
    paths: list[str] = app.blocking.result(half.enqueue_sync(width=5))
    await add.enqueue("1")  # E: arg-type
    await add.enqueue(three=3)  # E: arg-type
""",
        id="stars and partials",
    ),
    pytest.param(
        """
Windlass("memory://", slots=5, lease="1m", poll=0.5, timeout=None, durability="full")
Windlass(keep_failed=timedelta(days=3), backoff=Backoff.fixed(5), imports=["shop"], event_log=True)
Windlass("memory://", slots="many")  # E: arg-type
Windlass("memory://", slot=5)  # E: call-arg
Windlass("memory://", durability="some")  # E: arg-type
Windlass("memory://", lease=[30])  # E: arg-type

async def main() -> None:
    async with app.worker(queues=["mail"], slots=3, order="weighted", weights={"mail": 2}):
        pass
    app.worker(slots="3")  # E: arg-type
    app.worker(queue="mail")  # E: call-arg
""",
        id="settings",
    ),
    pytest.param(
        """
async def main() -> None:
    await send.enqueue(1, subject="b")  # E: arg-type has incompatible type "int"; expected "str"
    await send.enqueue("a")  # E: call-arg Missing named argument "subject"
    await send.enqueue("a", "b")  # E: call-arg
    await send.enqueue("a", subject="b", cc="c")  # E: call-arg Unexpected keyword argument "cc"
    await send.options(delay=1).enqueue("a", subject=2)  # E: arg-type expected "str"
    send.call("a", subject="b", copies="many")  # E: arg-type expected "int"
    resize.enqueue_sync(7)  # E: arg-type expected "str"
    resize.options(queue="x").enqueue_sync()  # E: call-arg Missing positional argument "path"
""",
        id="arguments",
    ),
    pytest.param(
        """
async def main(ctx: Context) -> None:
    await report.enqueue(ctx, datetime.now())  # E: call-arg Too many arguments
    await report.enqueue()  # E: call-arg Missing positional argument "day"
    tidy.enqueue_sync(ctx)  # E: call-arg Too many arguments
""",
        id="the context",
    ),
    pytest.param(
        """
@app.task
async def pay(card: Secret[str], pins: list[Secret[int]], old: Secret[str] | None = None) -> str:
    return card.upper() + str(pins[0] + 1)

async def main() -> None:
    await pay.enqueue("4111", [1], old=None)
    await pay.enqueue(4111, [1])  # E: arg-type expected "str"
    await pay.enqueue("4111", ["1"])  # E: list-item
""",
        id="secrets",
    ),
    pytest.param(
        """
async def main() -> None:
    text: str = await (await send.enqueue("a", subject="b")).result()  # E: assignment
    job: Job[str] = resize.enqueue_sync("a.png")  # E: assignment
    app.blocking.result(resize.enqueue_sync("a.png")).upper()  # E: attr-defined
""",
        id="results",
    ),
    pytest.param(
        """
send.options(delay=[60])  # E: arg-type
send.options(at=60)  # E: arg-type
send.options(unique="sometimes")  # E: arg-type
send.options(prioriti=1)  # E: call-arg Unexpected keyword argument
@app.task(run_in="fork")  # E: call-overload
def wrong() -> None: ...
@app.task(backoff=5)  # E: call-overload
def wrong_too() -> None: ...
Backoff.exponential(first=1, jitter="lots")  # E: arg-type
""",
        id="options",
    ),
    pytest.param(
        """
from windlass import Program
@app.task(run_in=Program(["./resize", "--fast"], warm=True, env={"LANG": "C"}), timeout=5)
def shrink(path: str, width: int = 200) -> list[str]:
    raise NotImplementedError
async def main() -> None:
    names: list[str] = await (await shrink.enqueue("cat.png", width=5)).result()
    await shrink.enqueue(5)  # E: arg-type
    await shrink.enqueue("cat.png", wide=5)  # E: call-arg
    number: int = await (await shrink.enqueue("cat.png")).result()  # E: assignment
Program(["x"], warm="yes")  # E: arg-type
Program(["x", 5])  # E: list-item
""",
        id="programs",
    ),
]


@pytest.mark.parametrize("program", WRONG)
def test_a_program_that_is_wrong_does_not(tmp_path: Path, program: str) -> None:
    check(tmp_path, program)


def test_the_check_itself_can_fail(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        check(tmp_path, 'send.call("a", subject="b")  # E: arg-type\n')
    with pytest.raises(AssertionError):
        check(tmp_path, 'send.call(1, subject="b")\n')


FLOW = """
from windlass import Breaker, Failure, Throttled, Unique

@app.task
async def tell(failure: Failure) -> None:
    print(failure.job_id, failure.error_kind)

@app.task(breaker=Breaker(failures=5), unique=Unique(key="{user}"), on_failure=tell)
async def sync(user: int) -> None:
    raise Throttled(timedelta(seconds=3), cool_queue=False)

@app.task(breaker=True, unique=True, on_failure="elsewhere.tell")
def plain() -> int:
    raise Throttled()

@app.current_tenant
def tenant() -> str | None:
    return None

task: Task[[int], None] = sync
bound = sync.options(unique=False)
sync.options(unique="until_started", scope="global", on_conflict="replace")
sync.options(unique_for=timedelta(hours=1))
sync.options(on_conflict="drop")  # E: arg-type
sync.options(unique=True)  # E: arg-type
app.task(breaker=5)  # E: call-overload
app.task(unique="{user}")  # E: call-overload
Unique(until="ended")  # E: arg-type
Unique(for_=60)

@app.current_tenant  # E: type-var
def number() -> int:
    return 5

async def orders() -> None:
    await app.admin.queues.set("mail", max_running=None, backoff=Backoff.fixed(5), keep_failed=60)
    await app.admin.queues.set("mail", max_running="many")  # E: arg-type
    await app.admin.limits.set("api", rate=None)
    await app.admin.breakers.set("sync", failures=3, cool_down=30)
    print((await app.admin.breakers.list())[0].state, (await sync.enqueue(1)).replaced)
"""


def test_flow_control_is_typed(tmp_path: Path) -> None:
    check(tmp_path, FLOW)


GRAPHS = """
from windlass import Flow, FlowRun, Group, Node, Results, current, ended

@app.task
async def total(parts: Results[int]) -> float:
    return 0.5

@app.task
async def tell(amount: float, to: str) -> str:
    return to

@app.task
async def words(parts: Results[str]) -> None: ...

async def main() -> None:
    flow = Flow("sum", on_failed=tell.call(0.1, "ops"), key="one", expires="2h", priority=-1)
    sent = flow.add(send.call("a", subject="b"))
    one: Node[int] = sent
    wrong: Node[str] = sent  # E: assignment
    rows = flow.map(send, ["a", "b"], subject="c")
    many: Group[int] = rows
    flow.map(send, [1, 2], subject="c")  # E: arg-type
    flow.map(send, ["a"], subject=1)  # E: arg-type
    flow.map(send, ["a"])  # E: call-arg
    added = flow.add(total.call(rows.results), after=[sent, ended(rows)], when="ended")
    flow.add(words.call(rows.results))  # E: arg-type
    flow.add(tell.call(sent.result, "ada"), after=rows)
    flow.add(tell.call("no number", "ada"))  # E: arg-type
    last: Node[str] = added.then(tell, "ada")
    added.then(tell, 5)  # E: arg-type
    last.then(tell, "ada")  # E: arg-type
    flow.add(send.call("a", subject="b"), when="later")  # E: arg-type
    flow.add(send.call("a", subject="b"), after="rows")  # E: arg-type
    context = current()
    context.then(tell.call(0.1, "ops"), Flow("added"), send.call("a", subject="b"))
    context.then(flow, "added")  # E: arg-type
    context.then(send)  # E: arg-type
    run: FlowRun = await app.start(flow)
    amount: float = await run.result(added)
    text: str = await run.result(added)  # E: assignment
    async for number in run.results(rows):
        number.upper()  # E: attr-defined
    await app.start("flow")  # E: arg-type
    await run.add(Flow("added"), after=[sent, ended(rows)])
    await run.add(Flow("added"), after=rows)
    await run.add(Flow("added"), after="rows")  # E: arg-type
    await run.add(Flow("added"), after=[sent.id])  # E: list-item
    app.blocking.add(run, Flow("added"), after=ended(sent))
    app.blocking.add(run, Flow("added"), after=run)  # E: arg-type
    inner = flow.group("all").group("inner").map(send, ["a"], subject="c")
    inner.results.upper()  # E: attr-defined
    async for done in run.results(rows).outcomes():
        value: int | None = done.value
    async for done in run.as_completed(rows, timeout=5):
        done.value.upper()  # E: union-attr
    run.as_completed(added)  # E: arg-type
    app.blocking.wait(app.blocking.start(flow), timeout=5)
    for done in app.blocking.as_completed(run, rows):
        done.value.upper()  # E: union-attr
    for done in run.results(rows).outcomes():
        done.value.upper()  # E: union-attr
"""


def test_flows_are_typed(tmp_path: Path) -> None:
    check(tmp_path, GRAPHS)


BLOCKING = """
from collections.abc import Sequence
from windlass import Every, Rate
from windlass.admin import BulkReport, JobFilter, LimitReport, QueueAdmin, QueueCounts, Requeue

admin = app.blocking.admin.acting("ada")
part: QueueAdmin = app.admin.queues
counts: Sequence[QueueCounts] = admin.queues.counts()
limit: LimitReport = admin.limits.get("api")
done: BulkReport = admin.jobs.bulk(Requeue(), JobFilter(queue="mail"), most=5)
admin.limits.set("api", rate=Rate(5, 1))
admin.workers.stop("w1", "w2")
admin.schedules.create("x", Every(60), send.call("a", subject="b"), overlap=3)
admin.schedules.create("x", Every(60), send.call("a", subject="b"), overlapp=3)  # E: call-arg
admin.queues.set("mail", max_running="many")  # E: arg-type
admin.queues.pause("mail", by="ada")  # E: call-arg
admin.jobs.get(5)  # E: arg-type
(admin.queues.pause("mail")).paused  # E: func-returns-value
"""


def test_the_blocking_admin_is_typed(tmp_path: Path) -> None:
    check(tmp_path, BLOCKING)


CELERY = """
from windlass.integrations.celery import AsyncResult, CeleryCalls, GroupResult, chain, chord, group

celery = CeleryCalls(app, priority="higher_first")
add = celery.task(resize)
one: AsyncResult[list[str]] = add.delay("a.png", width=3)
names: list[str] = add.apply_async(("a.png",), countdown=5, link=add.s()).get(timeout=1)
several: GroupResult[list[str]] = group(add.s("a.png"), add.s("b.png")).delay()
end = chord([add.s("a.png")], add.si("b.png")).on_error(add.si("c.png")).apply_async().get()
start = (chain(add.s("a.png")) | add.s()).delay()
add.delay(5)  # E: arg-type
add.delay("a.png", height=3)  # E: call-arg
add.apply_async(("a.png",), countdown="soon")  # E: arg-type
add.apply_async(("a.png",), serializer="pickle")  # E: call-arg
add.retry()  # E: attr-defined
one.children  # E: attr-defined
CeleryCalls(app, priority="up")  # E: arg-type
"""


def test_celery_s_calls_are_typed(tmp_path: Path) -> None:
    check(tmp_path, CELERY)


SCHEDULES = """
from windlass import Cron, Every, Manual, Once
from windlass._storage.protocol.jobs import Inserted

@app.schedule(Cron("0 8 * * *", tz="Europe/Berlin"), missed="all", most_missed=5, overlap=2)
@app.schedule(Every(timedelta(minutes=5), after="end"), name="often", args=["eu"], breaker=False)
@app.schedule(Once(datetime.now()), name="once", kwargs={"region": "eu"}, jitter=5)
@app.task
async def numbers(ctx: Context, region: str = "eu") -> int:
    slot: datetime | None = ctx.slot
    return 0 if slot is None else slot.hour

task: Task[[str], int] = numbers
call = app.schedule(Manual(), name="by-hand")(numbers.options(priority=1).call("us"))
app.schedule(Every(60.5), ends=datetime.now())(send.call("a", subject="b"))

async def still_typed() -> int:
    await numbers.enqueue(5)  # E: arg-type expected "str"
    return await (await numbers.enqueue("eu")).result()

app.schedule("0 8 * * *")  # E: arg-type expected "Cron | Every | Once | Manual"
app.schedule(Every([1]))  # E: arg-type expected "timedelta | float | str"
app.schedule(Every(1, after="start of day"))  # E: arg-type
app.schedule(Once("2030-01-01"))  # E: arg-type expected "datetime"
app.schedule(Manual(), missed="some")  # E: arg-type
app.schedule(Manual(), overlap="never")  # E: arg-type
app.schedule(Manual(), jitter=[5])  # E: arg-type
app.schedule(Manual())(5)  # E: type-var

async def orders() -> None:
    made = await app.admin.schedules.create("x", Every(60), numbers.call(), overlap=3)
    words: str = made.words
    first: datetime | None = made.next_at
    print([(run.slot, run.outcome) for run in made.runs], made.changed["rule"][0], made.state)
    await app.admin.schedules.create("x", Every(60), numbers)  # E: arg-type expected "Call[Any]"
    await app.admin.schedules.create("x", Every(60), numbers.call(), overlapp=3)  # E: call-arg
    await app.admin.schedules.create("x", Every(60), numbers.call(), missed="some")  # E: arg-type
    await app.admin.schedules.change("x", rule=Manual(), jitter=timedelta(seconds=5), ends=None)
    await app.admin.schedules.change("x", rule="@daily")  # E: arg-type
    await app.admin.schedules.change("x", breaker=False)  # E: call-arg
    job: Inserted | None = await app.admin.acting("ada").schedules.trigger("x")
    await app.admin.schedules.trigger("x", by="ada")  # E: call-arg
    slots: list[datetime] = list(await app.admin.schedules.preview(Cron("@daily"), 3))
    await app.admin.schedules.remove("x", cancel_runs=True)
    await app.admin.schedules.remove("x", True)  # E: call-arg
    (await app.admin.schedules.delete("x")).state  # E: func-returns-value
"""


def test_schedules_are_typed(tmp_path: Path) -> None:
    check(tmp_path, SCHEDULES)


@pytest.fixture
def pyright(tmp_path: Path) -> Callable[[dict[str, str]], dict[str, set[int]]]:
    """The lines that it finds errors in, by program. Everything is one run: starting it is slow."""

    def run(programs: dict[str, str]) -> dict[str, set[int]]:
        for name, text in programs.items():
            (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        config = {"include": ["."], "extraPaths": [str(ROOT / "src")], "pythonVersion": "3.11"}
        (tmp_path / "pyrightconfig.json").write_text(json.dumps(config), encoding="utf-8")
        ran = subprocess.run(
            [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable],
            cwd=tmp_path,
            env={**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
            capture_output=True,
            check=False,
        )
        assert ran.returncode in (0, 1), ran.stderr
        found: dict[str, set[int]] = {name: set() for name in programs}
        for each in json.loads(ran.stdout)["generalDiagnostics"]:
            if each["severity"] == "error":
                name = Path(each["file"]).stem
                found[name].add(each["range"]["start"]["line"] + 1)
        return found

    return run


def test_pyright_finds_the_same_lines(
    pyright: Callable[[dict[str, str]], dict[str, set[int]]],
) -> None:
    given = [*(case.values[0] for case in (*RIGHT, *WRONG)), FLOW, GRAPHS, SCHEDULES, CELERY]
    programs = {f"program_{n}": HEAD + str(text) for n, text in enumerate(given)}
    found = pyright(programs)
    for name, text in programs.items():
        lines = text.splitlines()
        wrong = found[name] ^ set(expected(text))
        assert not wrong, "\n".join(lines[number - 1] for number in sorted(wrong))


def test_every_public_name_has_a_known_type() -> None:
    environment = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    # It asks the first python of the path where packages are.
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = ["pyright", "--verifytypes", "windlass", "--ignoreexternal", "--outputjson"]
    ran = subprocess.run(
        [sys.executable, "-m", *command], env=environment, capture_output=True, check=False
    )
    report = json.loads(ran.stdout)["typeCompleteness"]
    untyped = [each["name"] for each in report["symbols"] if not each["isTypeKnown"]]
    assert len(report["symbols"]) > 1000
    assert untyped == []
