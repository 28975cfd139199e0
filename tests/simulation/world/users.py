"""Who uses a simulated world: producers with real clients, and an operator."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import msgspec

from tests.simulation.world.workload import MOODS, QUEUES, Seat
from windlass._app.parts import parts_of
from windlass._client.client import new_job
from windlass._core.job.job import JobId, LimitUse, NewJob
from windlass._core.job.state import State
from windlass._core.job.unique import OnConflict, UniqueKey, Window, compose_key
from windlass._tasks.task import Call
from windlass.errors import (
    JobNotFound,
    KeyConflict,
    ResultError,
    ResultTimeout,
    StorageError,
    WrongState,
)

__all__ = ["Orders", "operate", "produce"]

_LIMITS = (
    (LimitUse("fuse"),),
    (LimitUse("both", "k"),),
    (LimitUse("fuse"), LimitUse("desk", "1")),
)
_WINDOWS = (Window.UNTIL_FINISHED, Window.UNTIL_STARTED, Window.FOR_A_TIME)
_CONFLICTS = (
    *(OnConflict.REPLACE, OnConflict.REPLACE, OnConflict.REPLACE_ARGUMENTS),
    *(OnConflict.REPLACE_DUE, OnConflict.REUSE, OnConflict.RAISE),
)


class Orders:
    """How much a producer still has to ask for; outlives the producer's process."""

    def __init__(self, jobs: int, pause: float, poison: float) -> None:
        self.left = jobs
        self.pause = pause
        self.poison = poison


async def produce(seat: Seat, orders: Orders, drawn: list[JobId]) -> None:
    """Ask for jobs in every way there is, until all orders are placed."""
    chance = seat.lab.chance
    ways = [_single, _many, _crowd, _limited, _gated, _debounced, _patient]
    while orders.left > 0:
        await asyncio.sleep(chance.expovariate(1 / orders.pause))
        drawn.clear()
        try:
            orders.left -= await chance.choice(ways)(seat, orders)
        except KeyConflict:
            orders.left -= 1
        except StorageError:
            # The answer is missing, and the jobs may be stored or not.
            orders.left -= 1
            if chance.random() < 0.7:
                await _insist(seat, drawn)


async def _insist(seat: Seat, drawn: list[JobId]) -> None:
    """Repeat what nobody answered, with the same ids, until somebody does."""
    ledger = seat.lab.ledger
    unanswered = [
        ledger.asked[job] for job in drawn if job in ledger.asked and job not in ledger.acknowledged
    ]
    for _ in range(5):
        try:
            storage = await parts_of(seat.app).storage()
            if unanswered:
                ledger.unheard.update(new.id for new in unanswered)
                await storage.jobs.insert(unanswered)
        except KeyConflict:
            return
        except StorageError:
            await asyncio.sleep(0.1)
        else:
            return


def _call(seat: Seat, orders: Orders) -> Call[Any]:
    """One wish, with random options."""
    chance = seat.lab.chance
    seconds = chance.choice([0.0, 0.01, 0.1, 0.5, 1.0])
    mood = "poison" if chance.random() < orders.poison else chance.choice(MOODS)
    wishes: dict[str, object] = {"queue": chance.choice(QUEUES)}
    if chance.random() < 0.3:
        wishes["priority"] = chance.choice([-1, 1, 5])
    if chance.random() < 0.3:
        wishes["delay"] = chance.choice([0.5, 2.0, 6.0])
    if chance.random() < 0.25:
        wishes["key"] = str(chance.randrange(4))
        window = chance.choice(["until_finished", "until_started", "for a time"])
        if window == "for a time":
            wishes["unique_for"] = chance.choice([1.0, 5.0])
        else:
            wishes["unique"] = window
        if chance.random() < 0.4:
            wishes["on_conflict"] = chance.choice(_CONFLICTS).value
    if chance.random() < 0.1:
        wishes["expires"] = chance.choice([1.0, 6.0])
    if chance.random() < 0.4:
        wishes["max_attempts"] = chance.choice([1, 2, 3])
        if wishes["max_attempts"] == 1 and (seconds >= 0.5 or mood in {"slow", "long"}):
            wishes["on_lost"] = "fail"  # it must not run twice
    if mood in {"steady", "long"}:
        seconds = 6.0 if mood == "long" else seconds
        return seat.steady.options(**wishes).call(seconds)  # type: ignore[arg-type]
    if mood == "slow":
        seconds = 2.0
    return seat.fussy.options(**wishes).call(seconds, mood)  # type: ignore[arg-type]


async def _single(seat: Seat, orders: Orders) -> int:
    await parts_of(seat.app).producer.enqueue_call(_call(seat, orders))
    return 1


async def _many(seat: Seat, orders: Orders) -> int:
    calls = [_call(seat, orders) for _ in range(seat.lab.chance.randint(2, 6))]
    await seat.app.enqueue_many(calls)
    return len(calls)


async def _crowd(seat: Seat, orders: Orders) -> int:
    """Singles at the same time: they are merged into one flush."""
    calls = [_call(seat, orders) for _ in range(3)]
    answers = await asyncio.gather(
        *(parts_of(seat.app).producer.enqueue_call(call) for call in calls), return_exceptions=True
    )
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return len(calls)


async def _gated(seat: Seat, orders: Orders) -> int:
    """Tasks that are limited by what they are."""
    chance = seat.lab.chance
    moods = [chance.choice(["steady", "moody"]) for _ in range(chance.randint(2, 5))]
    seconds = chance.choice([0.0, 0.1, 0.5])
    match chance.choice(["rate", "key", "fuse", "hit"]):
        case "rate":
            calls = [seat.metered.call(seconds, mood) for mood in moods]
        case "key":
            calls = [seat.keyed.call(seconds, mood, chance.randrange(2)) for mood in moods]
        case "fuse":
            calls = [seat.fused.call(seconds, mood) for mood in moods]
        case _:
            # All of them meet somebody else's limit at about the same time.
            calls = [seat.fussy.call(seconds, "busy") for _ in moods]
    await seat.app.enqueue_many(calls)
    return len(calls)


async def _limited(seat: Seat, orders: Orders) -> int:
    """Jobs of one task with limits of their own: straight into the store."""
    chance = seat.lab.chance
    limits = chance.choice(_LIMITS)
    return await _insert(
        seat,
        [
            msgspec.structs.replace(new, limits=limits, unique=None)
            for new in _new_jobs(seat, orders, chance.randint(1, 5))
        ],
    )


async def _debounced(seat: Seat, orders: Orders) -> int:
    """Jobs that take over each other's arguments, limits and due times while they wait."""
    chance, news = seat.lab.chance, []
    for new in _new_jobs(seat, orders, chance.randint(1, 4)):
        window = chance.choice(_WINDOWS)
        unique = UniqueKey(
            compose_key(new.task, "debounced"),
            window,
            timedelta(seconds=chance.choice([1, 5])) if window is Window.FOR_A_TIME else None,
            chance.choice(_CONFLICTS),
        )
        delay = chance.choice([None, timedelta(seconds=1), timedelta(seconds=3)])
        limits = chance.choice([(), *_LIMITS])
        news.append(msgspec.structs.replace(new, unique=unique, delay=delay, limits=limits))
    return await _insert(seat, news)


def _new_jobs(seat: Seat, orders: Orders, count: int) -> list[NewJob]:
    fresh = parts_of(seat.app).connections.seams.new_job_ids(count)
    return [new_job(_call(seat, orders), seat.app.settings, job) for job in fresh]


async def _insert(seat: Seat, news: list[NewJob]) -> int:
    seat.lab.ledger.unheard.update(new.id for new in news)
    await (await parts_of(seat.app).storage()).jobs.insert(news)
    return len(news)


async def _patient(seat: Seat, orders: Orders) -> int:
    """Wait for what comes of it, but not for ever."""
    job = await parts_of(seat.app).producer.enqueue_call(_call(seat, orders))
    try:
        result = await job.result(timeout=3.0)
    except (ResultError, ResultTimeout, JobNotFound):
        return 1
    if not str(result).startswith(job.id):
        seat.lab.ledger.object("8 done needs a run", f"{job.id} answered with {result!r}")
    return 1


# --- the operator -----------------------------------------------------------------------------


_ORDERS = (
    *("cancel", "cancel", "cancel", "requeue", "requeue", "now", "drop", "pause", "set", "warm"),
)


async def operate(seat: Seat, pause: float, over: Callable[[], bool]) -> None:
    """Cancel, requeue, hurry and discard jobs, pause, resume, set and warm queues, at random."""
    chance, admin = seat.lab.chance, seat.app.admin
    while not over():
        await asyncio.sleep(chance.expovariate(1 / pause))
        with suppress(StorageError, WrongState, KeyConflict, JobNotFound):
            match chance.choice(_ORDERS):
                case "cancel":
                    states = chance.choice([None, {State.RUNNING}])
                    await admin.jobs.cancel(_pick(seat, chance, states))
                case "requeue":
                    ended = {State.FAILED, State.CANCELLED, State.DISCARDED}
                    await admin.jobs.requeue(_pick(seat, chance, ended))
                case "now":
                    await admin.jobs.run_now(_pick(seat, chance, {State.WAITING}))
                case "drop":
                    await admin.jobs.discard(_pick(seat, chance, {State.FAILED}))
                case "set":
                    most = chance.choice([None, 1, 2, 3])
                    await admin.queues.set(chance.choice(QUEUES), max_running=most)
                case "warm":
                    await admin.queues.warm(chance.choice(QUEUES))
                case _:
                    queue = chance.choice(QUEUES)
                    await admin.queues.pause(queue)
                    await asyncio.sleep(chance.choice([0.5, 2.0]))
                    await admin.queues.resume(queue)


def _pick(seat: Seat, chance: random.Random, states: set[State] | None) -> JobId:
    """A job that probably is where the operator wants it."""
    ledger = seat.lab.ledger
    active = {State.WAITING, State.RUNNING} if states is None else states
    fitting = [job for job, view in ledger.jobs.items() if view.state in active]
    return chance.choice(fitting or [*ledger.asked] or [JobId("0" * 32)])
