"""A world of schedulers: ``simulate_schedules(seed)``.

Three processes fire the same schedules while the one that leads is killed again and again, calls
fail, come late or twice, clocks are set and a person changes things meanwhile. Jobs are gone soon
after they were made, so that nothing but the fence of the store keeps a slot from a second one.
In the end every slot has had one job.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import msgspec

from tests.simulation.framework.history import Change, Ledger, Rule, Violation
from tests.simulation.framework.loop import SimLoop, TraceLine, run
from tests.simulation.framework.memory_stage import MemoryStage
from tests.simulation.framework.network import Surroundings
from tests.simulation.framework.process import SimProcess
from tests.simulation.framework.sqlite_stage import SqliteStage
from tests.simulation.world.cluster import POLL, Stage
from tests.simulation.world.faults import HEARTBEAT, LEASE, FaultPlan, Faults, Health
from windlass._core.job.job import JobId, NewJob
from windlass._core.job.state import State
from windlass._core.schedule.rules import Every
from windlass._core.schedule.schedule import (
    Missed,
    Schedule,
    ScheduleState,
    first_slot,
    planned_slots,
    slot_of,
)
from windlass._observe.bus import Bus
from windlass._schedules.edits import Schedules, decoded, encoded
from windlass._storage.protocol.schedules import ScheduleWrite
from windlass._worker.liveness.leader import Leader
from windlass._worker.periodic import run_every
from windlass._worker.registration import Registration
from windlass._worker.scheduler.scheduler import Scheduler
from windlass.errors import ScheduleBusy, ScheduleUnknown, StorageError
from windlass.testing._clock import LoopClock

__all__ = ["SLOTS", "Tale", "simulate_schedules"]

SLOTS = 1_000
"""Of the schedule each of whose slots must have its job."""
TICK, LONE = "tick", "lone"
_PERIOD = timedelta(milliseconds=250)
_CHAOS = SLOTS * _PERIOD.total_seconds()
_PARTS = 12
"""Each part of the chaos has times of its own without a store."""
_LONGEST_REST = 120.0
_LIMIT = 5_000.0


class Tale(NamedTuple):
    """One world in which every slot has had its job."""

    seed: int
    digest: str
    seconds: float
    slots: int
    counts: dict[str, int]


def simulate_schedules(
    seed: int, store: str = "memory", *, chronicle: list[TraceLine] | None = None
) -> Tale:
    """Run the world of a seed to its end; raises Violation if it broke a promise.

    ``chronicle`` receives the event log, also of a world that did.
    """

    async def main(loop: SimLoop) -> tuple[int, dict[str, int]]:
        try:
            return await _World(loop, store).run()
        finally:
            if chronicle is not None:
                chronicle.extend(loop.log)

    with _quiet():
        result = run(main, seed=seed, limit=_LIMIT)
    slots, counts = result.value
    return Tale(seed, result.digest, result.seconds, slots, counts)


@contextmanager
def _quiet() -> Iterator[None]:
    log = logging.getLogger("windlass")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


class _OneJobPerSlot(Rule):
    """Counts what is inserted, also of jobs that are gone again."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self.made: Counter[datetime | None] = Counter()
        self._alone: JobId | None = None

    def job_changed(self, change: Change) -> None:
        task = self.ledger.asked[change.job].task
        if task == LONE:
            self._one_at_a_time(change)
        elif change.before is None:
            slot = slot_of(change.job)
            self.made[slot] += 1
            if self.made[slot] > 1:
                self.ledger.object("slots", f"the job of {slot} was made {self.made[slot]} times")

    def _one_at_a_time(self, change: Change) -> None:
        if change.after is None or change.after.state is not State.WAITING:
            self._alone = None if self._alone == change.job else self._alone
        elif self._alone not in (None, change.job):
            self.ledger.object("overlap", f"{change.job} was made beside {self._alone}")
        else:
            self._alone = change.job


class _World:
    def __init__(self, loop: SimLoop, store: str) -> None:
        self._loop = loop
        self._chance = random.Random(loop.seed)
        self._names = [f"scheduler-{n}." for n in range(3)]
        self._ledger = Ledger(loop, LoopClock(loop))
        faults = Faults(self._draw_plan(), random.Random(loop.seed + 1))
        self._around = Surroundings(loop, self._ledger, faults, Health())
        self._stage: Stage = (
            MemoryStage(self._around) if store == "memory" else SqliteStage(self._around)
        )
        self._rule = _OneJobPerSlot(self._ledger)
        self._ledger.obey([self._rule])
        self._over = False
        self._ids = 0
        self._alive: dict[SimProcess, Leader | None] = {}
        start = self._ledger.clock.now()
        ends = start + SLOTS * _PERIOD
        job = NewJob(id=JobId(""), task=TICK)
        self._plans = {
            TICK: Schedule(
                rule=Every(_PERIOD, anchor=start),
                job=job,
                missed=Missed.ALL,
                most_missed=10_000,
                overlap="allow",
                ends=ends + _PERIOD / 2,
            ),
            LONE: Schedule(rule=Every(2 * _PERIOD), job=msgspec.structs.replace(job, task=LONE)),
        }
        self._expected = planned_slots(self._plans[TICK], start, 2 * SLOTS)

    def _draw_plan(self) -> FaultPlan:
        drawn = [FaultPlan.draw(self._chance, self._names) for _ in range(_PARTS)]
        cuts = [
            msgspec.structs.replace(cut, start=cut.start + by, end=cut.end + by)
            for number, part in enumerate(drawn)
            for by in [number * _CHAOS / _PARTS]
            for cut in part.cuts
        ]
        killed_every = self._chance.uniform(2, 8)
        return msgspec.structs.replace(
            drawn[0], chaos=_CHAOS, cuts=tuple(cuts), killed_every=killed_every
        )

    async def run(self) -> tuple[int, dict[str, int]]:
        """Chaos, healing, and the count."""
        story = self._loop.create_task(self._story())
        alarm = self._loop.create_task(self._ledger.alarm.wait())
        try:
            await asyncio.wait({story, alarm}, return_when=asyncio.FIRST_COMPLETED)
            if self._ledger.violations:
                raise Violation("\n".join(self._ledger.violations))
            story.result()
            return len(self._rule.made), self._ledger.counts
        finally:
            self._ledger.sealed = True
            self._stage.close()

    async def _story(self) -> None:
        await self._stage.begin()
        await self._deploy()
        create, plan = self._loop.create_task, self._around.faults.plan
        keepers = [create(self._keep(name, self._schedule)) for name in self._names]
        keepers.append(create(self._keep("operator.", self._operate)))
        chaos = [
            create(self._now_and_then(plan.killed_every, self._strike)),
            create(self._now_and_then(plan.paused_every, self._freeze)),
            create(self._now_and_then(plan.stepped_every, self._step_clock)),
            create(self._clear_away()),
        ]
        await asyncio.sleep(_CHAOS)
        self._around.faults.healed = True
        for task in chaos[:3]:
            task.cancel()
        await self._rest()
        self._over = True
        for process in [*self._alive]:
            process.kill()
        await asyncio.wait([*keepers, *chaos])
        missing = [slot for slot in self._expected if not self._rule.made[slot]]
        if missing:
            self._ledger.object("slots", f"{len(missing)} have no job, the first is {missing[0]}")

    async def _deploy(self) -> None:
        """Everything has once been well: what is counted from then on has a beginning."""
        now = self._ledger.clock.now()
        writes = [
            ScheduleWrite(
                name=name,
                revision=0,
                body=encoded(ScheduleState(plan=plan, written=plan, changed_at=now)),
                next_at=first_slot(plan, now),
            )
            for name, plan in self._plans.items()
        ]
        await self._stage.ask("schedules.write", writes)
        await self._stage.ask("schedules.declare", [*self._plans])

    async def _rest(self) -> None:
        """Until the last slot has been, in bounded time."""
        deadline = self._loop.time() + _LONGEST_REST
        while self._loop.time() < deadline:
            rows = {row.name: row for row in await self._stage.ask("schedules.rows")}
            if decoded(rows[TICK]).state.ended:  # type: ignore[union-attr]
                return
            await asyncio.sleep(0.5)
        self._ledger.object("liveness", "the schedule does not come to its end")

    # --- processes ----------------------------------------------------------------------------

    async def _keep(
        self, name: str, main: Callable[[SimProcess], Coroutine[Any, Any, None]]
    ) -> None:
        lives = 0
        while not self._over:
            lives += 1
            process = self._start(f"{name}{lives}", main)
            try:
                await process.join()
            except StorageError:
                self._ledger.count("failed to start")
            await asyncio.sleep(self._chance.uniform(0.1, 2.0))

    def _start(
        self, name: str, main: Callable[[SimProcess], Coroutine[Any, Any, None]]
    ) -> SimProcess:
        found: list[SimProcess] = []

        async def body() -> None:
            await main(found[0])

        process = self._loop.spawn_process(name, body)
        found.append(process)
        self._alive[process] = None

        def ended() -> None:
            self._alive.pop(process, None)
            self._stage.let_go(process)

        process.at_end(ended)
        return process

    async def _schedule(self, process: SimProcess) -> None:
        """What a worker does about schedules."""
        storage = await self._stage.open(process)
        book = Schedules(storage.schedules, storage.now, self._new_ids)
        await book.declare(self._plans, by="code")
        identity = cast("Registration", SimpleNamespace(id=process.name))
        leader = Leader(storage.leader, identity, lease=timedelta(seconds=LEASE / 2))
        self._alive[process] = leader
        scheduler = Scheduler(
            storage, leader, Bus(), {}, poll=timedelta(seconds=POLL), token=self._new_ids(1)[0]
        )
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            beat = timedelta(seconds=HEARTBEAT)
            group.create_task(run_every(beat, leader.step, stop=stop, what="the lead"))
            group.create_task(scheduler.run(stop))
            group.create_task(
                run_every(
                    timedelta(minutes=1),
                    lambda: book.still_declared(self._plans),
                    stop=stop,
                    what="the declaration",
                )
            )

    async def _operate(self, process: SimProcess) -> None:
        """Somebody who changes schedules while they fire."""
        storage = await self._stage.open(process)
        book = Schedules(storage.schedules, storage.now, self._new_ids)
        while True:
            await asyncio.sleep(self._chance.uniform(0.5, 5.0))
            jitter = timedelta(milliseconds=self._chance.randrange(100))
            # Who changes something may find the store away, or nothing there yet.
            with suppress(StorageError, ScheduleUnknown, ScheduleBusy):
                match self._chance.randrange(4):
                    case 0:
                        await book.change(TICK, jitter=jitter, by="ann")
                    case 1:
                        await book.trigger(LONE, by="ann")
                    case 2:
                        await book.pause(LONE, by="ann")
                    case _:
                        await book.resume(LONE, by="ann")

    def _new_ids(self, count: int) -> Sequence[JobId]:
        self._ids += count
        return [JobId(f"{self._ids - number:032x}") for number in range(count)]

    async def _clear_away(self) -> None:
        """Jobs end soon, and nothing is kept of them."""
        while not self._over:
            await asyncio.sleep(self._chance.uniform(0.1, 1.5))
            ended = [job for job in self._ledger.jobs if self._chance.random() < 0.8]
            if ended:
                await self._stage.ask("jobs.cancel", ended)
            await self._stage.ask(
                "maintenance.prune",
                state=State.CANCELLED,
                older_than=timedelta(0),
                limit=10_000,
                apart=None,
            )

    # --- what befalls them --------------------------------------------------------------------

    async def _now_and_then(self, mean: float, act: Callable[[], None]) -> None:
        with suppress(asyncio.CancelledError):
            while mean:
                await asyncio.sleep(self._chance.expovariate(1 / mean))
                act()

    def _victim(self) -> SimProcess | None:
        """Whoever leads, every other time."""
        leading = [one for one, leader in self._alive.items() if leader and leader.leading]
        some = leading if leading and self._chance.random() < 0.5 else [*self._alive]
        return self._chance.choice(some) if some else None

    def _strike(self) -> None:
        process = self._victim()
        if process is not None:
            leader = self._alive[process]
            self._ledger.count("leader killed" if leader and leader.leading else "killed")
            process.kill()

    def _freeze(self) -> None:
        process = self._victim()
        if process is not None and not process.paused:
            self._ledger.count("paused")
            process.pause()
            length = self._chance.uniform(0.1, self._around.faults.plan.longest_pause)
            self._loop.call_later(length, process.resume)

    def _step_clock(self) -> None:
        self._ledger.step_clock(self._chance.choice([-2.0, -0.5, 1.0, 20.0]))
