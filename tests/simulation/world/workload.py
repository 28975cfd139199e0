"""What runs in a simulated world: tasks whose handlers have moods."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from tests.simulation.framework.history import Body, Ledger
from tests.simulation.framework.loop import SimLoop
from tests.simulation.framework.process import PROCESS
from tests.simulation.invariants.jobs import SPECS
from tests.simulation.invariants.limits import ADDED
from windlass._app.app import Windlass
from windlass._core.flows.flow import NewFlow
from windlass._core.job.control import GiveUp, Retry, Snooze, Throttled
from windlass._core.job.job import JobId
from windlass._core.limits.backoff import Backoff
from windlass._core.limits.breaker import Breaker
from windlass._core.limits.limit import LimitSpec, Rate
from windlass._tasks.context import Context
from windlass._tasks.follow_ups import Failure, Success
from windlass._tasks.limits import Limit, breaker_name
from windlass._tasks.task import Task

__all__ = ["API", "DESK", "MOODS", "QUEUES", "Lab", "Seat", "payload_of", "result_of"]

QUEUES = ("mail", "bulk")

API = Limit("api", concurrency=2)
DESK = Limit("desk", concurrency=1, key="{tenant}")
FUSE = Breaker(2, cool_down=1.0, longest=3.0)
PRESS = Limit("press", rate=Rate(3, timedelta(seconds=2), burst=2))

SPECS.update(
    {
        spec.name: spec
        for spec in (
            *(API.spec, DESK.spec, PRESS.spec),
            LimitSpec(name="both", rate=Rate(4, timedelta(seconds=1)), concurrency=1),
            LimitSpec(name="fuse", breaker=FUSE),
            LimitSpec(name=breaker_name("sim.fused"), breaker=FUSE),
        )
    }
)

MOODS = (
    *("steady", "moody", "moody", "moody", "stubborn", "chatty", "parent"),
    *("steady", "moody", "slow", "moody", "long"),
)
"""What producers choose from; poison comes apart, because it ends whole processes."""

_BACKOFF = Backoff.exponential(first=0.3, factor=2.0, cap=3.0)
_ADDS_A_FLOW = 0.4
"""How often a run that splits adds a flow, too."""
_CODECS: dict[str, Any] = {}


def result_of(job: str, number: int) -> str:
    """What a handler returns, so that it is known whose result is stored."""
    return f"{job}/{number}"


def payload_of(task: str, *args: object) -> bytes:
    """The encoded arguments of a task that has been defined somewhere."""
    payload: bytes = _CODECS[task].encode(args, {}, limit=1000)
    return payload


class Lab:
    """What the handlers of a world share."""

    def __init__(
        self,
        loop: SimLoop,
        ledger: Ledger,
        chance: random.Random,
        *,
        cooling: float,
        mourning: bool,
        adding: bool,
    ) -> None:
        self.loop = loop
        self.ledger = ledger
        self.chance = chance
        self.cooling = cooling
        """How many of those who are throttled send their whole queue to rest."""
        self.mourning = mourning
        """Whether there is a job for every failure of a fussy one."""
        self.adding = adding
        """Whether runs add jobs to their success."""
        self.calm = False
        """Set at the end: handlers take it easy, so that the world comes to rest."""


class Seat:
    """One app's tasks, and the state of its handlers."""

    def __init__(
        self,
        lab: Lab,
        app: Windlass,
        *,
        old: bool = False,
        draw: Callable[[Seat], NewFlow] | None = None,
    ) -> None:
        """``old``: a release from before there were fussy tasks. ``draw`` draws the flows that runs
        add; None: they add none.
        """
        self.lab = lab
        self.draw = draw
        self.app = app
        app.state = self
        self.mourn: Task[[Failure], str] = app.task(name="sim.mourn", queue="mail")(mourn)
        taker = self.mourn if lab.mourning else None
        if not old:
            self.fussy: Task[[float, str], str] = app.task(
                name="sim.fussy", queue="bulk", timeout=1.5, backoff=_BACKOFF, on_failure=taker
            )(fussy)
        self.cheer: Task[[Success], str] = app.task(name="sim.cheer", queue="mail")(cheer)
        self.added: Task[[int], str] = app.task(name=ADDED, queue="mail", backoff=_BACKOFF)(added)
        self.steady: Task[[float], str] = app.task(
            name="sim.steady", queue="mail", backoff=_BACKOFF, on_success=self.cheer
        )(steady)
        self.keyed: Task[[float, str, int], str] = app.task(
            name="sim.keyed", queue="bulk", timeout=1.5, backoff=_BACKOFF, limits=[DESK]
        )(keyed)
        self.metered: Task[[float, str], str] = app.task(
            name="sim.metered", queue="mail", timeout=1.5, backoff=_BACKOFF, limits=[API, PRESS]
        )(metered)
        self.fused: Task[[float, str], str] = app.task(
            name="sim.fused",
            queue="bulk",
            timeout=1.5,
            max_attempts=2,
            backoff=_BACKOFF,
            breaker=FUSE,
            on_failure="sim.mourn",
        )(fused)
        self.split: Task[[float], str] = app.task(name="sim.split", queue="bulk", backoff=_BACKOFF)(
            split
        )
        for task in app.tasks:
            # Building a codec takes as long as simulating a second, and it never changes.
            if task.name not in _CODECS:
                _CODECS[task.name] = task.codec
            task.__dict__["codec"] = _CODECS[task.name]


async def steady(ctx: Context, seconds: float) -> str:
    """Always ends well."""
    return await _run(ctx, seconds, "steady")


async def split(ctx: Context, seconds: float) -> str:
    """Adds a job or two, or a flow, with its success, unless it fails."""
    seat: Seat = ctx.state
    calls = [seat.fussy.call(seconds, "moody") for _ in range(seat.lab.chance.randint(1, 2))]
    ctx.then(*calls)
    if seat.draw is not None and seat.lab.chance.random() < _ADDS_A_FLOW:
        # Not a `Flow`, whose ids are not those of this world.
        ctx.cancelled.add([seat.draw(seat)])
    return await _run(ctx, seconds, "moody")


async def fussy(ctx: Context, seconds: float, mood: str) -> str:
    """Ends as it feels."""
    return await _run(ctx, seconds, mood)


async def keyed(ctx: Context, seconds: float, mood: str, tenant: int) -> str:
    """One at a time for each tenant."""
    return await _run(ctx, seconds, mood)


async def metered(ctx: Context, seconds: float, mood: str) -> str:
    """A few at a time, and a few in each window."""
    return await _run(ctx, seconds, mood)


async def fused(ctx: Context, seconds: float, mood: str) -> str:
    """Left alone for a while when it fails again and again, and mourned when it fails for good."""
    return await _run(ctx, seconds, mood)


async def mourn(ctx: Context, failure: Failure) -> str:
    """Hears of one that has failed for good."""
    told = (JobId(failure.job_id), failure.task, failure.attempt)
    ctx.state.lab.ledger.heard(ctx.claimed.claim.job, *told)
    return await _run(ctx, 0.0, "steady")


async def cheer(ctx: Context, success: Success) -> str:
    """Hears of one that has succeeded."""
    told = (JobId(success.job_id), success.task, success.attempt)
    ctx.state.lab.ledger.heard(ctx.claimed.claim.job, *told)
    return await _run(ctx, 0.0, "steady")


async def added(ctx: Context, number: int) -> str:
    """Exists because another run succeeded."""
    return await _run(ctx, 0.0, "steady")


async def _run(ctx: Context, seconds: float, mood: str) -> str:
    """One run as it is seen from outside: it begins, may be told to end, and ends."""
    lab: Lab = ctx.state.lab
    claim, process = ctx.claimed.claim, PROCESS.get()
    if process is None:
        raise RuntimeError("a handler runs outside every process")
    body = Body(claim.job, claim.number, ctx.claimed.worker, process, lab.loop.time())
    lab.ledger.began(body)
    how = "well"
    try:
        await _act(ctx, body, seconds, mood)
    except asyncio.CancelledError:
        body.told = lab.loop.time()
        if mood != "stubborn":
            how = "interrupted"
            raise
    except BaseException as error:
        how = f"raised {type(error).__name__}"
        body.cools = isinstance(error, Throttled) and error.cool_queue
        raise
    finally:
        lab.ledger.ended(body, how)
    return result_of(body.job, body.number)


async def _act(ctx: Context, body: Body, seconds: float, mood: str) -> None:
    seat: Seat = ctx.state
    chance = seat.lab.chance
    if seat.lab.adding and ctx.task != ADDED:
        # By the claim's number: a retry adds another number of jobs than the run before it.
        body.added = 1 + body.number % 3
        ctx.then(*map(seat.added.call, range(body.added)))
    await asyncio.sleep(seconds)
    if mood == "poison":
        body.how = "crashing"
        await body.process.crash()
    if mood == "parent":
        for _ in range(chance.randint(1, 3)):
            await ctx.enqueue(seat.fussy.call(seconds, "moody"))
    if mood == "chatty":
        ctx.progress(chance.random(), str(body.number))
        await asyncio.sleep(seconds)
    if mood == "busy" and body.number == 1 and not seat.lab.calm:
        raise Throttled(cool_queue=True)
    if mood == "moody" and not seat.lab.calm:
        _moan(chance, cools=chance.random() < seat.lab.cooling)


def _moan(chance: random.Random, *, cools: bool) -> None:
    """End in one of the ways a handler can."""
    after = chance.choice([0.0, 0.2, 1.5])
    match chance.choice(["", "", "raise", "raise", "retry", "snooze", "throttle", "give up"]):
        case "raise":
            raise RuntimeError("it did not work")
        case "retry":
            raise Retry(after=after)
        case "snooze":
            raise Snooze(after)
        case "throttle":
            raise Throttled(after, cool_queue=cools, drain=after > 1)
        case "give up":
            raise GiveUp("never again")
        case _:
            return
