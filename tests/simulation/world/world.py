"""One simulated world from its first to its last instant: ``simulate(seed)``.

A few worker processes, producers and an operator, each with a real app on its own storage, all on
one store. For a while everything goes wrong that the seed enables; then the world heals, comes to
rest within a bounded time, and is held to its promises.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple

from tests.simulation.framework.history import JobView, Ledger, Violation
from tests.simulation.framework.loop import SimLoop, TraceLine, run
from tests.simulation.framework.memory_stage import MemoryStage
from tests.simulation.framework.network import Surroundings
from tests.simulation.framework.sqlite_stage import SqliteStage
from tests.simulation.invariants.events import Events
from tests.simulation.invariants.final_accounts import Accounts
from tests.simulation.invariants.flows import RULES_OF_FLOWS
from tests.simulation.invariants.jobs import RULES_OF_JOBS, SPECS
from tests.simulation.invariants.limits import RULES_OF_GATES
from tests.simulation.invariants.workers import RULES_OF_WORKERS
from tests.simulation.world.cluster import POLL, Cluster, Stage
from tests.simulation.world.faults import LEASE, FaultPlan, Faults, Health
from tests.simulation.world.shape import Shape
from tests.simulation.world.workload import QUEUES, Lab
from windlass._core.job.job import JobId
from windlass._core.job.state import TERMINAL, State, Verb
from windlass._core.limits.backoff import Backoff
from windlass._core.limits.queue_settings import QueueSettings
from windlass.testing._clock import LoopClock

__all__ = ["Report", "StoreName", "simulate"]

_ADDING = (4, 7)
"""Worlds whose seed leaves one of these when divided by nine have runs that add jobs. The others
stay as they were without such runs."""

StoreName = Literal["memory", "sqlite"]

_LONGEST_REST = 180.0
_LONGEST_MISS = 600.0
"""A job that a worker gave back, since it lacks the task, waits up to ten minutes more."""
_COOL_DOWN = Backoff.exponential(0.5, factor=2, cap=4.0, jitter="none")
_LIMIT = 2_000.0


class Report(NamedTuple):
    """One world that kept its promises."""

    seed: int
    store: str
    digest: str
    seconds: float
    jobs: int
    counts: dict[str, int]
    log: tuple[TraceLine, ...]


def simulate(
    seed: int,
    store: StoreName = "memory",
    *,
    flows: bool = False,
    chronicle: list[TraceLine] | None = None,
) -> Report:
    """Run the world of a seed to its end; raises Violation if it broke a promise.

    With ``flows`` its people start flows, too. ``chronicle`` receives the event log, also of a
    world that broke a promise.
    """

    async def main(loop: SimLoop) -> tuple[int, dict[str, int]]:
        try:
            return await _world(loop, store, flows=flows)
        finally:
            if chronicle is not None:
                chronicle.extend(loop.log)

    # Only plain values come back: whatever outlives the run is not freed with it.
    with _quiet():
        result = run(main, seed=seed, limit=_LIMIT)
    jobs, counts = result.value
    return Report(seed, store, result.digest, result.seconds, jobs, counts, result.log)


@contextmanager
def _quiet() -> Iterator[None]:
    """The workers log what befalls them; here that is most of the time."""
    log = logging.getLogger("windlass")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


async def _world(loop: SimLoop, store: StoreName, *, flows: bool) -> tuple[int, dict[str, int]]:
    chance = random.Random(loop.seed)
    shape = Shape.draw(chance)
    names = [f"worker-{n}." for n in range(shape.workers)]
    plan = FaultPlan.draw(chance, names)
    loop.trace(f"{shape}")
    loop.trace(f"{plan}")
    ledger = Ledger(loop, LoopClock(loop))
    faults = Faults(plan, random.Random(loop.seed + 1))
    around = Surroundings(loop, ledger, faults, Health(), flows=flows)
    stage: Stage = MemoryStage(around) if store == "memory" else SqliteStage(around)
    of_flows = RULES_OF_FLOWS if flows else []
    rules_of_jobs = [rule(ledger) for rule in (*RULES_OF_JOBS, *RULES_OF_GATES, *of_flows)]
    rules_of_workers = [rule(around, proves_death=stage.proves_death) for rule in RULES_OF_WORKERS]
    events = Events(ledger, calm=plan.calm)
    ledger.obey([*rules_of_jobs, *rules_of_workers, Accounts(ledger), events])
    lab = Lab(
        loop,
        ledger,
        random.Random(loop.seed + 2),
        cooling=shape.cooling,
        mourning=shape.mourning,
        adding=loop.seed % 9 in _ADDING,
    )
    story = loop.create_task(_story(around, stage, Cluster(around, stage, lab, shape)))
    alarm = loop.create_task(ledger.alarm.wait())
    try:
        await asyncio.wait({story, alarm}, return_when=asyncio.FIRST_COMPLETED)
        if ledger.violations:
            raise Violation("\n".join(ledger.violations))
        story.result()
        return len(ledger.jobs) + len(ledger.deleted), ledger.counts
    finally:
        ledger.sealed = True
        stage.close()


async def _story(around: Surroundings, stage: Stage, cluster: Cluster) -> None:
    """Chaos, healing, rest, a last test of strength, and the books."""
    await stage.begin()
    await stage.ask("limits.define", [*SPECS.values()])
    for queue in QUEUES:
        most = cluster.shape.max_running if queue == QUEUES[-1] else None
        settings = QueueSettings(max_running=most, cool_down=_COOL_DOWN)
        await stage.ask("queues.change", queue, settings, old=QueueSettings())
    cluster.start()
    chaos = around.loop.create_task(cluster.suffer())
    await asyncio.sleep(around.faults.plan.chaos)
    chaos.cancel()
    await asyncio.wait([chaos])
    around.loop.trace("heal")
    cluster.heal()
    await cluster.people_done()
    for queue, view in sorted(around.ledger.queues.items()):
        if view.paused:
            await stage.ask("admin.resume", queue)
    await _rest(around)
    around.loop.trace("at rest")
    if cluster.shape.probed and not around.ledger.violations:
        await _probe(around, stage, cluster)
        await _rest(around)
    await cluster.stop()
    for rule in around.ledger.rules:
        await rule.close(stage.ask)
    await stage.check_mirror()


async def _probe(around: Surroundings, stage: Stage, cluster: Cluster) -> None:
    """23: what the world went through has cost no capacity: every slot takes a job."""
    ledger, loop, plan = around.ledger, around.loop, around.faults.plan
    # A claimer that waits longer and longer outlasts the chaos.
    await asyncio.sleep(max(0.0, plan.chaos + LEASE * 2 - loop.time()))
    await _stalled(around)
    while not all(node.working for node in cluster.workers):  # noqa: ASYNC110 -- they come and go
        await asyncio.sleep(0.5)
    await _open_up(stage)
    news = cluster.full_load(seconds=3.0)
    ledger.wishes("jobs.insert", (news,))
    ledger.unheard.update(new.id for new in news)
    await stage.ask("jobs.insert", news)
    await asyncio.sleep(2 * POLL)
    states = [view.state for new in news if (view := ledger.jobs.get(new.id)) is not None]
    if len(states) < len(news):
        ledger.object("1 no loss", f"{len(news) - len(states)} of {len(news)} jobs are not stored")
    elif idle := states.count(State.WAITING):
        ledger.object("23 liveness", f"{idle} of {len(news)} slots take no job any more")


async def _open_up(stage: Stage) -> None:
    """Let every queue run as much as there are slots for."""
    for record in await stage.ask("queues.queues"):
        await stage.ask("queues.warm", record.queue)
        await stage.ask("queues.change", record.queue, QueueSettings(), old=record.settings)


async def _stalled(around: Surroundings) -> None:
    """Wait for calls that stall: they outlast the chaos, and may store a job."""
    plan = around.faults.plan
    if plan.stalled:
        await asyncio.sleep(max(0.0, plan.chaos + LEASE * 3 - around.loop.time()))


async def _rest(around: Surroundings) -> None:
    """23: everything comes to an end in bounded time."""
    ledger, loop = around.ledger, around.loop
    await _stalled(around)
    began, extended, first_seen = loop.time(), dict[JobId, float](), dict[JobId, float]()
    while True:
        waiting = {job: view for job, view in ledger.jobs.items() if view.state not in TERMINAL}
        if not waiting and not around.echoes:
            return
        now, last = loop.time(), began + _LONGEST_REST + _LONGEST_MISS
        extended.update(
            (job, min(now + _LONGEST_REST, last)) for job, view in waiting.items() if _missed(view)
        )
        # A run that was missed for long may enqueue a job just before its own time is over.
        usual = {job: min(first_seen.setdefault(job, now) + _LONGEST_REST, last) for job in waiting}
        late = [job for job in waiting if now > extended.get(job, usual[job])]
        if late or (not waiting and now > began + _LONGEST_REST):
            blocked = [job for job in late if waiting[job].blocked]
            rule = "F4 blocked" if blocked and len(blocked) == len(late) else "23 liveness"
            ledger.object(rule, f"{late} do not come to an end")
            return
        await asyncio.sleep(0.5)


def _missed(view: JobView) -> bool:
    """Whether it waits because the last worker that had it could not run it."""
    return view.state is State.WAITING and view.ended_verb == Verb.RELEASE.value
