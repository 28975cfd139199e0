"""Named points of a job's life, and how a process is ended exactly there.

Production code knows nothing of this: the child patches the named function before it begins, and
sends itself a signal when it comes past. A further point is one line in `POINTS`.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import inspect
import signal
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

from tests.crash.harness.backends import POSTGRES, REDIS, SQLITE
from windlass._storage.protocol.workers import WorkerState
from windlass._storage.sqlite.io.transactor import Transactor

_TURNS = 20
"""Of the event loop: so that the first bytes of a request are under way."""

WORKER = "worker"
"""A worker with one job to run."""
BEATING = "beating"
"""A worker whose job takes long."""
REAPER = "reaper"
"""A worker that finds a dead one, whose job it was."""
STOPPING = "stopping"
"""A worker that is told twice to stop, with a job that can be interrupted."""
STUBBORN = "stubborn"
"""The same with a job that cannot."""
PRODUCER = "producer"
"""A process that enqueues one job."""
OPENER = "opener"
"""A worker that makes the database."""
PLANNER = "planner"
"""A process that starts one flow. Its attempts are how many flows are stored in the end."""
MEMBERS = "members"
"""A worker that runs the jobs of a flow. Its attempts and runs are not known: many jobs run."""

Passing = Callable[[tuple[Any, ...], Any], bool]


class Point(NamedTuple):
    """Where a process ends, and what must be true afterwards."""

    where: str
    """``module:name`` or ``module:Class.name``, as production code looks it up."""
    when: str
    """"before" the function is called, "after" it has returned, or, on a server, "amid" it: what
    was asked is on its way, is carried out or is not, and nobody is there to hear the answer."""
    who: str
    attempts: int
    """What the job's attempt must be in the end, after another worker has finished it."""
    runs: int
    """How often its handler must have begun in the end. Amid, both may be one less."""
    only: Passing = lambda _given, _result: True
    """Which passings count; an "after" sees the result."""
    at: int = 1
    """The how manieth passing it is."""
    locked: bool = False
    """Whether the process holds the write lock there."""


_JOBS = "windlass._storage.sqlite.jobs.jobs"
_WORKERS = "windlass._storage.sqlite.workers"
_APPLY = "windlass._storage.sqlite.jobs.apply"
_RUNNER = "windlass._worker.run.runner"
_CODEC = "windlass._core.values.payload:Codec"
_FINISHER = "windlass._worker.finish.finisher:Finisher"
_REAPER = "windlass._worker.liveness.reaper:Reaper"
_CLAIM = "windlass._storage.sqlite.jobs.claim:ClaimOperation"
_REGISTER = "windlass._worker.registration:Registration.register"


def _some(_given: tuple[Any, ...], result: Any) -> bool:
    return bool(result)


def _claimed(_given: tuple[Any, ...], result: Any) -> bool:
    return bool(result.claimed)


def _answered(_given: tuple[Any, ...], result: Any) -> bool:
    return bool(result.jobs)


def _holds_claims(given: tuple[Any, ...], _result: Any) -> bool:
    return bool(given[0].claimed)


def _buries(given: tuple[Any, ...], result: Any) -> bool:
    return bool(result) and given[2] is WorkerState.DEAD


def _leaves(given: tuple[Any, ...], result: Any) -> bool:
    return bool(result) and given[2] is WorkerState.GONE


class Stores(NamedTuple):
    """A backend's own classes, as ``module:Class``."""

    jobs: str
    workers: str
    pulse: str
    flows: str


_STORES = {
    SQLITE: Stores(
        f"{_JOBS}:SqliteJobs",
        f"{_WORKERS}:SqliteWorkers",
        "windlass._storage.shared.heartbeat_channel:SharedHeartbeatChannel",
        "windlass._storage.sqlite.flows.flows:SqliteFlows",
    ),
    POSTGRES: Stores(
        "windlass._storage.postgres.jobs.jobs:PostgresJobs",
        "windlass._storage.postgres.workers:PostgresWorkers",
        "windlass._storage.postgres.workers:PostgresHeartbeatChannel",
        "windlass._storage.postgres.flows.flows:PostgresFlows",
    ),
    REDIS: Stores(
        "windlass._storage.redis.jobs.jobs:RedisJobs",
        "windlass._storage.redis.workers:RedisWorkers",
        "windlass._storage.redis.workers:RedisHeartbeatChannel",
        "windlass._storage.redis.flows.flows:RedisFlows",
    ),
}


def _everywhere(jobs: str, workers: str, pulse: str, flows: str) -> dict[str, Point]:
    return {
        # --- a worker's first steps
        "registration, not begun": Point(_REGISTER, "before", WORKER, 1, 1),
        "registration, lock held": Point(f"{workers}.register", "before", WORKER, 1, 1),
        "registration, stored": Point(_REGISTER, "after", WORKER, 1, 1),
        # --- the claim
        "claim, answered": Point(f"{jobs}.claim", "after", WORKER, 2, 1, _answered),
        # --- the run
        "run, about to begin": Point(f"{_RUNNER}:Runner.start", "before", WORKER, 2, 1),
        "run, before the handler": Point(f"{_CODEC}.decode", "after", WORKER, 2, 1),
        "run, in the handler": Point("tests.crash.harness.shop:halfway", "before", WORKER, 2, 2),
        "run, after the handler": Point(f"{_CODEC}.encode_result", "before", WORKER, 2, 2),
        # --- the finish
        "finish, decided": Point(f"{_FINISHER}.add", "after", WORKER, 2, 2),
        "finish, before it is sent": Point(f"{_FINISHER}._send", "before", WORKER, 2, 2),
        "finish, after its commit": Point(f"{jobs}.apply", "after", WORKER, 1, 1),
        "finish, answered": Point(f"{_FINISHER}._settle", "after", WORKER, 1, 1),
        # --- the heartbeat
        "beat, before it": Point(f"{pulse}.beat", "before", BEATING, 2, 2, at=3),
        "beat, after its commit": Point(f"{pulse}.beat", "after", BEATING, 2, 2, at=3),
        # --- the reaper
        "burial, after its commit": Point(f"{workers}.bury", "after", REAPER, 2, 2),
        "reaping, between look and write": Point(f"{_REAPER}._lost", "before", REAPER, 2, 2),
        "reaping, after its commit": Point(f"{_REAPER}._tell", "before", REAPER, 2, 2),
        # --- the stop
        "release, after its commit": Point(f"{_FINISHER}._settle", "before", STOPPING, 1, 2),
        "leaving, not begun": Point(f"{workers}.leave", "before", STUBBORN, 2, 2),
        "leaving, after its commit": Point(f"{workers}.leave", "after", STUBBORN, 1, 2),
        # --- the producer
        "enqueue, after its commit": Point(
            "windlass._client.client:Client._tell", "before", PRODUCER, 1, 1
        ),
        # --- flows
        "flow, not started": Point(f"{flows}.start", "before", PLANNER, 0, 0),
        "flow, after its commit": Point(f"{flows}.start", "after", PLANNER, 1, 1),
        "members, before they are ended": Point(f"{jobs}.apply", "before", MEMBERS, 0, 0, at=2),
        "members, after their commit": Point(f"{jobs}.apply", "after", MEMBERS, 0, 0, at=2),
        "members, claimed": Point(f"{jobs}.claim", "after", MEMBERS, 0, 0, _answered, at=2),
        "settling, answered": Point(f"{flows}.settle", "after", MEMBERS, 0, 0),
    }


_IN_THE_FILE = {
    "schema, in its transaction": Point(
        "windlass._storage.shared.migrations:apply_sqlite", "after", OPENER, 1, 1, locked=True
    ),
    "opening, about to be answered": Point(
        "windlass._storage.sqlite.io.writer:WriteQueue.settle", "before", WORKER, 1, 1
    ),
    "claim, before its commit": Point(f"{_CLAIM}.run", "after", WORKER, 1, 1, _claimed, 1, True),
    "claim, after its commit": Point(f"{_CLAIM}.reply", "before", WORKER, 2, 1, _holds_claims),
    "finish, in the midst of its writes": Point(
        "windlass._storage.sqlite.jobs.apply:_count",
        "before",
        WORKER,
        2,
        2,
        locked=True,
    ),
    "finish, before its commit": Point(f"{_JOBS}:apply", "after", WORKER, 2, 2, locked=True),
    "burial, before its commit": Point(f"{_WORKERS}:_end", "after", REAPER, 2, 2, _buries, 1, True),
    "reaping, before its commit": Point(f"{_JOBS}:apply", "after", REAPER, 2, 2, locked=True),
    "release, before its commit": Point(f"{_JOBS}:apply", "after", STOPPING, 2, 2, locked=True),
    "leaving, before its commit": Point(
        f"{_WORKERS}:_end", "after", STUBBORN, 2, 2, _leaves, locked=True
    ),
    "flow, in the midst of its writes": Point(
        "windlass._storage.sqlite.flows.start:add_parts", "after", PLANNER, 0, 0, locked=True
    ),
    "flow, before its commit": Point(
        "windlass._storage.sqlite.flows.flows:start_flows", "after", PLANNER, 0, 0, locked=True
    ),
    "members, before they are counted": Point(f"{_APPLY}:_end_members", "before", MEMBERS, 0, 0),
    "members, in the midst of settling": Point(
        "windlass._storage.sqlite.flows.settle:_place", "after", MEMBERS, 0, 0, locked=True
    ),
    "members, before their commit": Point(
        f"{_APPLY}:store_and_settle", "after", MEMBERS, 0, 0, locked=True
    ),
    "enqueue, before its commit": Point(f"{_JOBS}:insert", "after", PRODUCER, 0, 0, _some, 1, True),
}


def _on_a_server(jobs: str, workers: str, _pulse: str, flows: str) -> dict[str, Point]:
    return {
        "registration, on its way": Point(f"{workers}.register", "amid", WORKER, 1, 1),
        "finish, on its way": Point(f"{jobs}.apply", "amid", WORKER, 2, 2),
        "burial, on its way": Point(f"{workers}.bury", "amid", REAPER, 2, 2),
        "reaping, on its way": Point(f"{jobs}.apply", "amid", REAPER, 2, 2),
        "leaving, on its way": Point(f"{workers}.leave", "amid", STUBBORN, 2, 2),
        "enqueue, on its way": Point(f"{jobs}.insert", "amid", PRODUCER, 1, 1),
        "flow, on its way": Point(f"{flows}.start", "amid", PLANNER, 1, 1),
        "members, on their way": Point(f"{jobs}.apply", "amid", MEMBERS, 0, 0, at=2),
        "settling, on its way": Point(f"{flows}.settle", "amid", MEMBERS, 0, 0),
    }


POINTS: dict[str, dict[str, Point]] = {
    SQLITE: _everywhere(*_STORES[SQLITE]) | _IN_THE_FILE,
    POSTGRES: _everywhere(*_STORES[POSTGRES]) | _on_a_server(*_STORES[POSTGRES]),
    REDIS: _everywhere(*_STORES[REDIS]) | _on_a_server(*_STORES[REDIS]),
}


def arm(backend: str, name: str, number: str) -> None:
    """Send this process the signal ``number`` when it comes to the point. Once."""
    point = POINTS[backend][name]
    owner, attribute = _find(point.where)
    original = getattr(owner, attribute)
    passings = 0
    stops = signal.Signals[number] is signal.SIGSTOP and not point.locked
    outside: AbstractContextManager[object] = nullcontext()
    if stops and backend == SQLITE:
        outside = _outside_of_the_file()

    def passed(given: tuple[Any, ...], result: Any) -> None:
        nonlocal passings
        if point.only(given, result):
            passings += 1
            if passings == point.at:
                with outside:
                    # To this thread. A signal to the process may go to another thread, and this one
                    # would commit before that one gets a processor.
                    signal.pthread_kill(threading.get_ident(), signal.Signals[number])

    setattr(owner, attribute, _patched(original, passed, point.when))


def _outside_of_the_file() -> AbstractContextManager[object]:
    """No other thread of this process is inside a transaction: whoever stops there stops everybody,
    which is another story.
    """
    lock, run = threading.Lock(), Transactor.run

    def alone(self: Transactor, *given: Any, **named: Any) -> Any:
        with lock:
            return run(self, *given, **named)

    setattr(Transactor, "run", alone)  # noqa: B010 -- a method, for this process alone
    return lock


def _find(where: str) -> tuple[Any, str]:
    """The module or class, and the attribute; a name that does not exist is an error."""
    module, _, path = where.partition(":")
    *owners, attribute = path.split(".")
    owner: Any = importlib.import_module(module)
    for name in owners:
        owner = getattr(owner, name)
    if attribute not in vars(owner):
        message = f"{where} does not exist; tests/crash/harness/points.py names it"
        raise LookupError(message)
    return owner, attribute


def _patched(
    original: Callable[..., Any], passed: Callable[[tuple[Any, ...], Any], None], when: str
) -> Callable[..., Any]:
    before = when == "before"
    if when == "amid":
        return _left_alone(original, passed)
    if inspect.iscoroutinefunction(original):

        @functools.wraps(original)
        async def coroutine(*given: Any, **named: Any) -> Any:
            if before:
                passed(given, None)
            result = await original(*given, **named)
            if not before:
                passed(given, result)
            return result

        return coroutine

    @functools.wraps(original)
    def function(*given: Any, **named: Any) -> Any:
        if before:
            passed(given, None)
        result = original(*given, **named)
        if not before:
            passed(given, result)
        return result

    return function


def _left_alone(
    original: Callable[..., Any], passed: Callable[[tuple[Any, ...], Any], None]
) -> Callable[..., Any]:
    @functools.wraps(original)
    async def coroutine(*given: Any, **named: Any) -> Any:
        call = asyncio.ensure_future(original(*given, **named))
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        passed(given, None)
        return await call

    return coroutine
