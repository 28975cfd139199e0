"""A small store with a bit of everything, each command that answers in JSON, and the answers."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import io
import json
import logging
import os
import sqlite3
import sys
import tempfile
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from tests.architecture.interface.program import commands, program
from windlass import (
    Breaker,
    Context,
    Cron,
    Flow,
    Grants,
    Limit,
    Rate,
    Registrar,
    Throttled,
    Unique,
    Windlass,
)
from windlass._app.parts import parts_of

MODULE = "windlass_interface_shop"

LOOKS = """\
jobs list
jobs count
jobs show ADDED
jobs show FAILED
jobs show HELD
jobs show WAITING
jobs explain ADDED
jobs explain FAILED
jobs explain HELD
jobs explain WAITING
jobs explain BROKEN
jobs explain REFUSED
jobs logs ADDED
jobs replay TARGET ADDED
jobs replay TARGET FAILED
errors list
errors show GROUP
queues list
queues show api
limits list
limits show tenant
limits show api
breakers list
schedules list --all
schedules show nightly
schedules preview --every 1h --count 1
workers list
stats hosts
stats storage
tasks
top --once
doctor
db show
plugins list
plugins show windlass
plugins show TARGET mail
"""
GAUGES = {
    "web-1": dict.fromkeys(("cpu", "memory_used", "memory_total", "disk_used", "disk_total"), 0.5),
    "": dict.fromkeys(
        (
            *("size", "wal", "free_disk", "read_p95", "write_p95"),
            *(f"jobs_{state}" for state in ("ready", "scheduled", "retrying", "running")),
            *("jobs_succeeded", "jobs_failed"),
        ),
        0.5,
    ),
}
"""The same that the worker stores five seconds later."""
ORDERS = """\
queues pause bank
jobs edit WAITING --priority 3
jobs run-now REFUSED
jobs cancel WAITING --yes
jobs delete WAITING --yes
errors requeue GROUP --dry-run
jobs requeue ADDED
jobs requeue CANCELLED --as-new
jobs discard FAILED --yes
jobs requeue --all --state discarded --yes
queues resume bank
queues warm api
queues set bank --max-running 3 --keep-failed 1d --keep-succeeded 1d --backoff 1s --cool-down 1s
limits set api --rate 5/s
limits drain api
limits reset api
breakers set fail --failures 3
breakers reset fail
schedules create TARGET weekly --every 7d --task later --args {"number":2}
schedules set weekly --every 6d --jitter 1s --overlap 2 --starts 2020-01-01T00:00Z
schedules set weekly --ends 2090-01-01T00:00Z
schedules set weekly --missed all --most-missed 3
schedules pause weekly
schedules pause --all
doctor
schedules resume --all
schedules resume weekly
schedules trigger weekly
schedules show weekly
schedules delete weekly --yes
schedules set nightly --jitter 5s
schedules reset nightly
schedules remove nightly --yes
workers sweep
workers quiet --all --yes
workers resume --all --yes
workers stop --all --yes
db migrate
db migrate --check
audit --limit 100
"""
ALONE = """\
jobs events --url URL
db copy URL COPY
audit --url COPY
db reset --url COPY --yes
db drop --url COPY --yes
"""
"""Wanting no worker on the storage."""
FLOWS = """\
flows list
flows show FLOW
flows explain FLOW
flows graph FLOW
flows recount
jobs explain BLOCKED
flows cancel FLOW --yes
flows retry FLOW
"""
"""Flows, after everything else."""
EXPECTED = {"jobs replay TARGET FAILED": 3, "jobs requeue ADDED": 1, "flows retry FLOW": 1}
"""Exit codes other than 0."""
COOLED = "QueueCooled"


class Shop(NamedTuple):
    """What the commands said, and what is in the file that they worked on."""

    said: Sequence[tuple[str, Any]]
    """A command without what it was given, and its answer."""
    columns: Sequence[tuple[str, str, str, bool]]
    """Table, column, type, and whether it must have a value."""
    indexes: Sequence[tuple[str, str]]
    """Name and definition, of triggers and views, too."""
    stored: Sequence[tuple[str, Any]]
    """Table and column, and a JSON value that is kept there."""


@functools.cache
def shop() -> Shop:
    """Everything, once in a process."""
    with tempfile.TemporaryDirectory() as folder, own_environment():
        (Path(folder) / "copy.db").touch()
        url = f"sqlite:///{folder}/jobs.db"
        said = asyncio.run(_asked(url, f"sqlite:///{folder}/copy.db"))
        with contextlib.closing(sqlite3.connect(f"{folder}/jobs.db")) as file:
            return Shop(said, *_read(file))


@contextlib.contextmanager
def own_environment() -> Iterator[None]:
    """Without settings of the machine, and with a log that is kept out of the way."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WINDLASS_")}
    quiet = logging.NullHandler()
    log = logging.getLogger("windlass")
    log.addHandler(quiet)
    try:
        with mock.patch.dict(os.environ, kept, clear=True):
            yield
    finally:
        log.removeHandler(quiet)


class _Mail:
    name = "mail"

    def register(self, registrar: Registrar) -> None:
        @registrar.task(name="send", queue="mail")
        async def send() -> None: ...


def _app(url: str, held: asyncio.Event, go_on: asyncio.Event) -> Windlass:
    app = Windlass(url, max_attempts=1, event_log=True, durability="normal", grace=1)
    tenants = Limit("tenant", concurrency=2, key="{tenant}")

    @app.task(name="add", limits=[tenants, Limit("api", rate=Rate(10, per=60, burst=5))])
    async def add(ctx: Context, tenant: str) -> int:
        ctx.log("added")
        ctx.progress(0.5, "half", data={"left": 1})
        return 1

    @app.task(name="hold", limits=[tenants])
    async def hold(ctx: Context, tenant: str) -> None:
        ctx.progress(0.5, "half")
        held.set()
        await go_on.wait()

    @app.task(name="fail", queue="bank", breaker=Breaker(failures=1))
    async def fail() -> None:
        raise ValueError("no")

    @app.task(name="refuse", queue="api")
    async def refuse() -> None:
        raise Throttled(600)

    @app.task(name="later", unique=Unique())
    async def later(number: int) -> None: ...

    app.schedule(Cron("0 3 * * *"), name="nightly")(later.call(1))
    app.install(_Mail(), grants=Grants(tasks=True, queues=["mail"], max_running=2))
    return app


async def _asked(url: str, copy: str) -> list[tuple[str, Any]]:
    held, go_on, cooled = asyncio.Event(), asyncio.Event(), asyncio.Event()
    app = _app(url, held, go_on)
    parts_of(app).hooks.bus.subscribe(
        lambda event: cooled.set() if type(event).__name__ == COOLED else None
    )
    module = types.ModuleType(MODULE)
    vars(module)["app"] = app
    said: list[tuple[str, Any]] = []
    with mock.patch.dict(sys.modules, {MODULE: module}):
        async with app, app.worker():
            names = {**await _seed(app, held, cooled), "URL": url, "COPY": copy}
            for line in (LOOKS + ORDERS).splitlines():
                said += await asyncio.to_thread(_type, line, names)
            go_on.set()
        for line in ALONE.splitlines():
            said += await asyncio.to_thread(_type, line, names)
        async with app:
            names |= await _start_flow(app)
        for line in FLOWS.splitlines():
            said += await asyncio.to_thread(_type, line, names)
    return said


async def _start_flow(app: Windlass) -> dict[str, str]:
    flow = Flow("chain", key="chain", expires=3600)
    first = flow.add(app.tasks["later"].call(8))
    second = flow.add(app.tasks["later"].call(9), after=first)
    run = await app.start(flow)
    return {"FLOW": run.id, "BLOCKED": second.id}


async def _seed(app: Windlass, held: asyncio.Event, cooled: asyncio.Event) -> dict[str, str]:
    """Jobs in every state, by the words that replace their ids above."""
    task = app.tasks
    added = (
        await task["add"]
        .options(
            tags=["x"],
            correlation_id="c",
            principal="p",
            tenant="t",
            key="k",
            timeout=60,
            expires=3600,
        )
        .enqueue("a")
    )
    failed = await task["fail"].enqueue()
    refused = await task["refuse"].enqueue()
    holding = await task["hold"].enqueue("a")
    await asyncio.gather(added.result(), failed.result(), return_exceptions=True)
    await held.wait()
    await cooled.wait()
    broken = await task["fail"].enqueue()  # waits for its breaker
    waiting = await task["later"].options(delay=3600).enqueue(5)
    cancelled = await task["later"].options(delay=3600).enqueue(6)
    await cancelled.cancel()
    await app.admin.jobs.enqueue(task["later"].call(7))
    storage, (worker, *_) = await parts_of(app).storage(), await app.admin.workers.list()
    await storage.workers.beat(worker.start.id, readings=GAUGES)
    return {
        "ADDED": added.id,
        "BROKEN": broken.id,
        "CANCELLED": cancelled.id,
        "FAILED": failed.id,
        "HELD": holding.id,
        "REFUSED": refused.id,
        "TARGET": f"{MODULE}:app",
        "WAITING": waiting.id,
    }


def _type(line: str, names: dict[str, str]) -> list[tuple[str, Any]]:
    """Run one command here; the answer is a list, empty where it speaks no JSON."""
    words = [names.get(word, word) for word in line.split()]
    known = max((c for c in commands() if f"windlass {line} ".startswith(f"{c} ")), key=len)
    options = {name for parameter in commands()[known].params for name in parameter.opts}
    if "--url" in options and "TARGET" not in line and "--url" not in words:
        words += ["--url", names["URL"]]
    words += ["--json"] * ("--json" in options)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = program()(words)
    assert code == EXPECTED.get(line, 0), f"windlass {line}: exit code {code}\n{err.getvalue()}"
    if "--json" not in options:
        return []
    answer = json.loads(out.getvalue())
    if line == "errors list":
        names["GROUP"] = answer["groups"][0]["group"]
    if line.startswith("schedules list"):  # ours run at every full minute: now, or not
        answer = [row for row in answer if not row["name"].startswith("windlass.")]
    return [(known, answer)]


def _read(file: sqlite3.Connection) -> tuple[list[Any], list[Any], list[Any]]:
    """What the file is made of, and the JSON that it holds."""
    made = file.execute(
        "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL"
    ).fetchall()
    columns: list[Any] = []
    stored: list[Any] = []
    for table in [name for kind, name, _ in made if kind == "table" and name != "sqlite_sequence"]:
        for _, name, kind, needed, *_ in file.execute(
            "SELECT * FROM pragma_table_info(?)", [table]
        ):
            columns.append((table, name, kind, bool(needed)))
            query = f'SELECT "{name}" FROM "{table}"'  # noqa: S608 -- names of the schema itself
            if table == "schedules":
                query += " WHERE name NOT LIKE 'windlass.%'"  # see above
            for (value,) in file.execute(query):
                if isinstance(value, str | bytes) and value[:1] in ("{", b"{"):
                    with contextlib.suppress(ValueError):
                        stored.append((f"{table}.{name}", json.loads(value)))
    return columns, [(name, sql) for kind, name, sql in made if kind != "table"], stored
