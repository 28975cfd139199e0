"""Due schedules → jobs, each slot once, with any number of schedulers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial

import msgspec

from windlass._client.job_events import publish_expired_events
from windlass._core.job.event import enqueued_event
from windlass._core.job.job import JobId
from windlass._core.schedule.schedule import ScheduleRun
from windlass._observe.bus import Bus
from windlass._plugins.names import OURS
from windlass._schedules.edits import (
    UNDECLARED,
    Schedules,
    ScheduleView,
    UnreadableSchedule,
    decoded,
    trim_runs,
    write_of,
)
from windlass._storage.protocol.schedules import (
    DueSchedules,
    ScheduleAnswer,
    ScheduleRow,
    ScheduleWrite,
    Written,
)
from windlass._storage.protocol.storage import Storage
from windlass._storage.protocol.wakeups import Topic
from windlass._tasks.limits import breaker_name
from windlass._worker.liveness.leader import Leader
from windlass._worker.periodic import run_every, rung_at
from windlass._worker.scheduler.fire_decision import (
    FireDecision,
    decide_firing,
    hold_schedule,
    without_held_keys,
)
from windlass.errors import StorageError, StoreBusy, WindlassError

__all__ = ["BoundChore", "Scheduler"]

log = logging.getLogger("windlass")

BoundChore = Callable[[], Awaitable[str]]
"""One round of a chore; the answer says what it did."""

DUE_PER_STEP = 200
_MOST_JOBS = 1_000
"""In one write: what was missed by many schedules at once must not hold up the store."""
STANDBY_DELAY = timedelta(seconds=2)
"""Seconds after which other workers fire what the leader has left: its death is no gap."""
_NOTICE = timedelta(milliseconds=50)
_TRIES = 5
_CHORES_END, _CHORES_UNWIND = 0.5, 0.5
"""Seconds that chores get to end by themselves when their worker stops, and to end cancelled."""
_Fired = tuple[FireDecision, ScheduleAnswer]


class Scheduler:
    """Fires what is due. The store refuses all but one of those who fire the same slot."""

    def __init__(
        self,
        storage: Storage,
        leader: Leader,
        bus: Bus,
        chores: Mapping[str, BoundChore],
        *,
        poll: timedelta,
        token: str,
        declared: Collection[str] = (),
    ) -> None:
        """``chores``: what schedules without a job do, by their names. ``token``: one that no other
        scheduler has. ``declared``: what this process has in its code, however long it could not
        say so.
        """
        self._token = token
        self._storage = storage
        self._store = storage.schedules
        self._leader = leader
        self._bus = bus
        self._chores = chores
        self._poll = poll
        self._declared = declared
        self._running: dict[str, asyncio.Task[None]] = {}
        self._bell = asyncio.Event()
        self._changed = asyncio.Event()
        self._looks_soon = False
        self._notice = _NOTICE
        self._hinted = False
        self._all_paused = False
        self._next_at: datetime | None = None
        self.pause: timedelta = poll
        """Until something is due."""

    async def run(self, stop: asyncio.Event) -> None:
        """Fire what comes due, until ``stop``; then let the chores under way end."""
        undo = self._storage.wakeups.subscribe(self._changed.set, Topic.SCHEDULE)
        following = asyncio.get_running_loop().create_task(self._follow_hints())
        try:
            with rung_at(stop, self._bell):
                what = "the scheduler"
                await run_every(
                    lambda: self.pause, self.step, stop=stop, what=what, bell=self._bell
                )
        finally:
            undo()
            following.cancel()
            await self.close()

    def look(self) -> None:
        """Look now. For this process's own schedules, which are no hint that may mean anything."""
        self._bell.set()

    async def _follow_hints(self) -> None:
        """Look soon after something was written: a schedule, perhaps. Hints of a busy store come
        all the time.
        """
        while True:
            await self._changed.wait()
            if not self._leader.leading:
                self._changed.clear()
                continue
            self._looks_soon = True
            await asyncio.sleep(self._notice.total_seconds())
            if self._looks_soon:
                self._take_hint()
                self._bell.set()

    def _take_hint(self) -> None:
        """Forget the hints so far: the look that follows is for them."""
        self._looks_soon, self._hinted = False, True
        self._changed.clear()

    def _learn(self, next_at: datetime | None) -> None:
        """Hints that meant something else, time after time, are followed less and less often."""
        vain = self._hinted and next_at == self._next_at
        self._notice = min(self._notice * 2, self._poll) if vain else _NOTICE
        self._hinted, self._next_at = False, next_at

    async def step(self) -> int:
        """Fire what is due; how many jobs were made."""
        self.pause = self._poll
        if self._looks_soon:  # this look is also the one that a hint has asked for
            self._take_hint()
        due = await self._due()
        self._learn(due.rows[0].next_at if due.rows else due.next_at)
        patience = timedelta(0) if self._leader.leading else STANDBY_DELAY
        ours = [row for row in due.rows if due.at - (row.next_at or due.at) >= patience]
        fired = await self._fire(ours, due.at) if ours else 0
        waiting = [row.next_at for row in due.rows if row not in ours and row.next_at is not None]
        if due.next_at is not None:
            waiting.append(due.next_at)
        until = min(waiting) + patience - due.at if waiting else self._poll
        full = len(due.rows) == DUE_PER_STEP and bool(ours)
        self.pause = timedelta(0) if full else min(max(until, timedelta(0)), self._poll)
        return fired

    async def _due(self) -> DueSchedules:
        """Read what is due. A pause of all schedules leaves out the upkeep of the storage."""
        due = await self._store.due(DUE_PER_STEP)
        if due.paused is not self._all_paused:
            self._all_paused = due.paused
            log.info("all schedules are %s", "paused" if due.paused else "resumed")
        if not due.paused:
            return due
        ours = [name for name in self._chores if name.startswith(f"{OURS}.")]
        planned = [(row.next_at, row) for row in await self._store.rows(ours) if row.next_at]
        later = [at for at, _ in planned if at > due.at]
        rows = [row for at, row in planned if at <= due.at]
        return DueSchedules(due.at, rows, min(later, default=None), paused=True)

    async def _fire(self, rows: Sequence[ScheduleRow], at: datetime) -> int:
        known: list[ScheduleView] = []
        moves: list[FireDecision] = []
        for found in map(decoded, rows):
            if isinstance(found, UnreadableSchedule):
                await self._disable(found)
            elif found.undeclared(at) and found.row.name not in self._declared:
                log.warning("schedule %s is held: %s", found.row.name, "no process declares it")
                moves.append(hold_schedule(found, UNDECLARED))
            else:
                mine = msgspec.structs.replace(found.state, writer=self._token)
                known.append(msgspec.structs.replace(found, state=mine))
        moves += await self._decide(known, at)
        made = 0
        busy: StoreBusy | None = None
        for chunk in _in_chunks(moves):
            try:
                made += await self._write(chunk)
            except StoreBusy as error:  # one waits for a key, perhaps: not the others for it
                busy = error
        if busy is not None:
            raise busy
        return made

    async def _took_effect(self, fired: Sequence[_Fired]) -> int:
        """Start the chores of these moves, and publish the jobs they have stored; how many."""
        self._start_chores([one for one, _ in fired])
        made = [
            job for one, answer in fired for job in one.write.jobs if job.id not in answer.known
        ]
        if self._bus.heard:
            for job in made:
                self._bus.publish(enqueued_event(job))
            expired = [job for _, answer in fired for job in answer.expired]
            await publish_expired_events(self._storage, self._bus, expired)
        return len(made)

    async def _disable(self, broken: UnreadableSchedule) -> None:
        """Keep it as it is and never due again, until an operator repairs it."""
        row = broken.row
        log.error("schedule %s cannot be read and does not fire: %s", row.name, broken.problem)
        await self._store.write(
            [ScheduleWrite(name=row.name, revision=row.revision, body=row.body)]
        )

    async def _decide(self, known: Sequence[ScheduleView], at: datetime) -> list[FireDecision]:
        active = [r.job for k in known for r in k.state.runs if r.active and r.job is not None]
        settled = await self._storage.jobs.settled(active) if active else ()
        ended = {s.id: "gone" if s.state is None else s.state.value for s in settled}
        ends = await self._ends(known, ended)
        open_now = await self._open_breakers(known, at)
        moves: list[FireDecision] = []
        for each in known:
            job = each.state.plan.job
            shut = job is not None and any(use.name in open_now for use in job.limits)
            last = each.state.runs[-1].job if each.state.runs else None
            end = None if last is None else ends.get(last)
            try:
                moves.append(
                    decide_firing(each, at=at, ended=ended, last_end=end, breaker_open=shut)
                )
            except Exception as error:
                # Its own fault alone: a zone that is gone, a rule that counts past the calendar.
                log.exception("cannot compute the next slot of schedule %s", each.row.name)
                state = msgspec.structs.replace(
                    each.state, problem=f"cannot compute its next slot: {error}"
                )
                moves.append(FireDecision(each, write_of(each, state, None)))
        return moves

    async def _ends(
        self, known: Sequence[ScheduleView], ended: Mapping[JobId, str]
    ) -> Mapping[JobId, datetime]:
        """Return when the last runs of those that wait for it have ended, where it can be read."""
        last = [k.state.runs[-1].job for k in known if k.state.plan.follows and k.state.runs]
        asked = [job for job in last if job is not None and job in ended]
        jobs = await self._storage.admin.get(asked) if asked else ()
        return {
            job.id: job.finished_at
            for job in jobs
            if job is not None and job.finished_at is not None
        }

    async def _open_breakers(self, known: Sequence[ScheduleView], at: datetime) -> set[str]:
        jobs = [each.state.plan.job for each in known if each.state.plan.job is not None]
        names = {
            use.name for job in jobs for use in job.limits if use.name == breaker_name(job.task)
        }
        shut: set[str] = set()
        for name in names:
            for state in await self._storage.limits.states(name):
                until = None if state.breaker is None else state.breaker.open_until
                if until is not None and until > at:
                    shut.add(name)
        return shut

    async def _write(self, moves: Sequence[FireDecision]) -> int:
        """Write them, and tell at once: what comes after may fail. How many jobs were made."""
        if not moves:
            return 0
        try:
            answers = await self._store.write([one.write for one in moves])
        except StorageError:
            raise
        except Exception as error:  # noqa: BLE001 -- a limit that is gone, a job that cannot be stored
            if len(moves) > 1:  # one schedule must not fail the others of its batch
                half = len(moves) // 2
                return await self._write(moves[:half]) + await self._write(moves[half:])
            log.warning(
                "schedule %s is held: its jobs cannot be stored: %s", moves[0].known.row.name, error
            )
            held = hold_schedule(moves[0].known, f"its jobs cannot be stored: {error}")
            await self._store.write([held.write])
            return 0
        told = list(zip(moves, answers, strict=True))
        fired = [(m, answer) for m, answer in told if answer.what is Written.WRITTEN and m.slots]
        made = await self._took_effect(fired)
        busy = [m.instead for m, a in told if a.what is Written.BUSY and m.instead is not None]
        if busy:
            await self._store.write(busy)
        # Without the jobs that met a key: each answer takes some away, so this comes to an end.
        met = [without_held_keys(m, a.holders) for m, a in told if a.what is Written.HELD]
        return made + await self._write(met)

    # --- chores ---

    def _start_chores(self, fired: Sequence[FireDecision]) -> None:
        for one in fired:
            name = one.known.row.name
            chore = self._chores.get(name)
            # One that takes longer than its period does not run beside itself.
            if one.known.state.plan.job is None and chore is not None and name not in self._running:
                task = asyncio.get_running_loop().create_task(
                    self._run_chore(name, one.slots[-1], chore)
                )
                self._running[name] = task
                task.add_done_callback(partial(self._chore_ended, name))

    def _chore_ended(self, name: str, _: asyncio.Task[None]) -> None:
        del self._running[name]

    async def _run_chore(self, name: str, slot: datetime, chore: BoundChore) -> None:
        try:
            outcome = await chore()
        except StorageError as error:
            log.warning("%s failed, retrying at its next slot: %s", name, error)
            return  # and cannot be told to the store either
        except (Exception, SystemExit, asyncio.CancelledError) as error:
            # An exit would end the event loop, and with it the program around a worker.
            if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                raise
            log.exception("%s failed", name)
            outcome = f"failed: {type(error).__name__}: {error}"
        try:
            await self._tell(name, slot, outcome)
        except WindlassError as error:  # the storage failed, or it was deleted meanwhile
            log.debug("cannot store the outcome of %s: %s", name, error)

    async def _tell(self, name: str, slot: datetime, outcome: str) -> None:
        schedules = Schedules(self._store, self._storage.now, lambda _: ())
        for _ in range(_TRIES):
            known = await schedules.get(name, removed=True)
            run = ScheduleRun(slot, None, outcome[:500], await self._storage.now())
            state = msgspec.structs.replace(
                known.state, runs=trim_runs([*known.state.runs, run], known.state.plan)
            )
            (answer,) = await self._store.write([write_of(known, state, known.row.next_at)])
            if answer.what is Written.WRITTEN:
                return

    async def close(self) -> None:
        """Let chores under way end, but not for long: the worker has yet to give its jobs back."""
        names = {chore: name for name, chore in self._running.items()}
        if not names:
            return
        _, late = await asyncio.wait(names, timeout=_CHORES_END)
        for chore in late:
            log.info("%s is still running and is cancelled: its worker stops", names[chore])
            chore.cancel()
        if late:
            _, late = await asyncio.wait(late, timeout=_CHORES_UNWIND)
        for chore in late:
            log.warning("%s did not end when it was cancelled and is abandoned", names[chore])


def _is_cancelled() -> bool:
    """Return whether this task was asked to end, and not merely something that it awaits."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _in_chunks(moves: Sequence[FireDecision]) -> Iterator[list[FireDecision]]:
    """Yield decisions in order, with a bounded number of jobs in each chunk; one schedule stays
    whole.
    """
    chunk: list[FireDecision] = []
    jobs = 0
    for one in moves:
        if chunk and jobs + len(one.write.jobs) > _MOST_JOBS:
            yield chunk
            chunk, jobs = [], 0
        chunk.append(one)
        jobs += len(one.write.jobs)
    if chunk:
        yield chunk
