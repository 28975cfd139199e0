"""Free slots → claim → runner. Wakes on hints, falls back to polling, cures lost answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

import msgspec

from windlass._client.job_events import publish_expired_events
from windlass._core.job.event import claimed_event
from windlass._core.job.job import Claim, ClaimedJob, JobId
from windlass._core.job.state import State
from windlass._core.job.transition import release
from windlass._observe.bus import Bus
from windlass._storage.protocol.jobs import ClaimReply, Verdict, Want
from windlass._storage.protocol.storage import Storage
from windlass._storage.protocol.wakeups import WorkHints
from windlass._worker.claim.slots import Slots
from windlass._worker.claim.stray_claims import claimed_again
from windlass._worker.claim.unrunnable_jobs import UnrunnableJobs
from windlass._worker.finish.finisher import Finisher
from windlass._worker.registration import Registration
from windlass._worker.run.runner import Runner
from windlass.errors import SchemaTooNew, StorageReplaced

__all__ = ["ClaimSettings", "Claimer"]

log = logging.getLogger("windlass")

_FIRST_WAIT, _LONGEST_WAIT = 0.05, 5.0
_SUSPECT_LOOK = 1.0
"""A worker that drains for a suspect looks this often whether it is still there."""
_NONE = timedelta(0)
_MANY_SLOTS = 100
"""With as many, running the jobs of one claim takes as long as storing the outcomes of another."""


class ClaimSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The queues to claim from, how much, and when to poll."""

    queues: Sequence[str]
    poll: timedelta
    most: int | None
    """The largest number of jobs at once."""
    quiet: asyncio.Event
    """Set when nothing more is to be taken."""
    unrunnable: UnrunnableJobs
    """Says how long jobs that could not be run here are left to other workers."""
    chance: Callable[[], float]


class Claimer:
    """Keeps the slots full and holds nothing beyond them."""

    def __init__(
        self,
        storage: Storage,
        identity: Registration,
        runner: Runner,
        finisher: Finisher,
        slots: Slots,
        *,
        bus: Bus,
        settings: ClaimSettings,
    ) -> None:
        """Claims nothing until it is run or stepped. ``runner`` runs what was claimed, and
        ``finisher`` stores what became of it.
        """
        self._storage = storage
        self._identity = identity
        self._runner = runner
        self._finisher = finisher
        self._slots = slots
        self._bus = bus
        self._settings = settings
        self._queues = settings.queues
        self._wake = slots.wake
        self._work: WorkHints | None = None
        self._hint = False
        self._dry = False
        self._next_at: float | None = None
        """When something may become claimable by itself, in the loop's seconds."""
        self._solo_due = False
        self._next_look = 0.0
        self._solo: Claim | None = None
        self._after_solo = False
        self._holding: Sequence[Claim] = ()
        self.quiet: asyncio.Event = settings.quiet
        """Set to take nothing more."""
        self.resting: bool = False
        """Set by `rest`: nothing for now."""
        self.claimed: int = 0
        """Jobs taken since the start."""

    # --- what wakes it ---

    def hint(self) -> bool:
        """Check the store again now. Return whether this worker has room for a job.

        Called after any change that may have made a job ready. An exact hint is for this worker
        alone, so it claims without a look before, if a queue of the hint has room.
        """
        self._hint = True
        self._wake.set()
        if self._work is None or not self._work.exact:
            return True
        about = self._work.about
        if not any(not about or queue in about for queue in self._queues_with_room()):
            return False
        self._dry = False
        return True

    def _queues_with_room(self) -> Sequence[str]:
        """Name the queues from which this worker would start a job now."""
        busy = self._solo is not None or len(self._finisher.waiting) >= self._slots.total
        if busy or self._solo_due or self.quiet.is_set() or self.resting:
            return ()
        return self._slots.open_queues

    def compare(self, holding: Sequence[Claim]) -> None:
        """Take what the store says this worker holds, to be looked at between two claims."""
        self._holding = holding
        if any(not self._holds(claim) for claim in holding):
            self._wake.set()

    def _holds(self, claim: Claim) -> bool:
        """Return whether this claim runs, or waits to be stored, in this process."""
        return claim in self._runner.active or self._finisher.holds(claim)

    def stop(self) -> None:
        """Take nothing more."""
        self.quiet.set()
        self._wake.set()

    @property
    def takes_jobs(self) -> bool:
        """Whether the worker is neither stopping nor paused."""
        return not self.quiet.is_set() and not self.resting

    def rest(self, *, resting: bool) -> None:
        """Claim no jobs until called again, or continue."""
        if resting is not self.resting:
            self.resting, self._dry = resting, False
            self._slots.await_room(awaited=True)
            self._wake.set()

    # --- what it does ---

    async def run(self) -> None:
        """Claim until told to be quiet, or the store is lost for good or too new."""
        self._work = self._storage.wakeups.work(self.hint, self._queues)
        pause = _FIRST_WAIT
        failing = False
        try:
            while not self.quiet.is_set():
                try:
                    await self._turn()
                except (StorageReplaced, SchemaTooNew):
                    raise
                except Exception as error:  # noqa: BLE001 -- an outage is waited out
                    if not failing:
                        log.warning("cannot claim jobs, retrying: %s", error)
                    failing = True
                    await self._wait_out(pause * (0.5 + self._settings.chance()))
                    pause = min(pause * 2, _LONGEST_WAIT)
                    continue
                if failing:
                    log.info("claiming again")
                failing, pause = False, _FIRST_WAIT
        finally:
            self._work.close()

    async def _wait_out(self, seconds: float) -> None:
        """Sleep, but not through a stop."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self.quiet.is_set():
                    self._wake.clear()
                    await self._wake.wait()

    async def _turn(self) -> None:
        self._wake.clear()  # first: any change from here on ends the sleep below
        if self._next_at is not None and self._next_at <= asyncio.get_running_loop().time():
            self._next_at = None  # this is the look that it was for
        if self._holding:
            await self._give_back_strays()
        if self.resting:
            await self._wake.wait()
            return
        if not self._dry or await self._worth_it():
            took = await self.step()
            if took and not self._dry:
                # Let what was just started run: what ends at once leaves room for the next claim.
                await asyncio.sleep(0)
                total = self._slots.total
                if total < _MANY_SLOTS:
                    # Let the finisher send those outcomes: stores commit them with the claim. With
                    # many slots they are stored while the next jobs run.
                    await asyncio.sleep(0)
                if self._slots.used < total and len(self._finisher.waiting) < total:
                    return
        await self._sleep()

    async def step(self) -> int:
        """Claim once. Return the number of jobs started."""
        solo = self._solo_due
        took = await self._claim(solo=solo)
        if not took and self._solo_due is not solo and not self._slots.used:
            # None of this kind, jobs that run alone or the others: ask once for the other kind.
            took = await self._claim(solo=self._solo_due)
        return took

    async def _claim(self, *, solo: bool) -> int:
        if self._solo is not None and not self._solo_ended():
            return 0
        if len(self._finisher.waiting) >= self._slots.total:
            return 0  # outcomes come faster than they are stored
        if solo and self._slots.used:
            if await self._suspect_waits():
                return 0  # drain first: the suspect runs alone
            solo = False
        wants, total = self._slots.wants()
        if self._settings.most is not None:
            total = min(total, self._settings.most - self.claimed)
        if total <= 0:
            return 0
        if (solo or self._after_solo) and not self._outcomes_are_safe():
            return 0
        self._hint = False
        worker, asked = self._identity.id, asyncio.get_running_loop().time()
        unrunnable = self._settings.unrunnable
        head_start = unrunnable.head_start if unrunnable.met_some else _NONE
        reply = await self._storage.jobs.claim(
            worker, wants, total=total, solo=solo, head_start=head_start
        )
        if not reply.live or worker != self._identity.id or self.quiet.is_set() or self.resting:
            return await self._refused(reply, worker)
        self._start(reply, total)
        if not solo:  # one that asked for a suspect alone has not looked what the others wait for
            self._next_at = None
        if reply.next_at is not None:
            self._expect(asked, reply.at, reply.next_at)
        if reply.expired:  # last: what was claimed must not wait for it
            await self._tell_expired(reply.expired)
        return len(reply.jobs)

    def _start(self, reply: ClaimReply, total: int) -> None:
        """Run what was just claimed, and learn from the answer."""
        slots = self._slots
        for job in reply.jobs:
            slots.take(job.queue)
            if job.solo:
                self._solo = job.claim
        if self._bus.heard:
            for job in reply.jobs:
                self._bus.publish(claimed_event(job))
        self._runner.start(reply.jobs)
        self.claimed += len(reply.jobs)
        # Having asked for a suspect says nothing about the others, nor does a queue's full pool.
        few = len(reply.jobs) < total and not (slots.separate and slots.some_pool_full)
        self._dry = few and not self._hint and not self._solo_due
        self._solo_due = reply.solo_due and not self._solo_due
        slots.await_room(awaited=not self._dry or self._solo_due)

    async def _refused(self, reply: ClaimReply, worker: str) -> int:
        """Release jobs that may not start here: the store declared this worker dead, or the answer
        was too late.
        """
        if not reply.live:
            if worker == self._identity.id:
                self._identity.lost.set()
            self._dry = False
            self._slots.await_room(awaited=True)
            return 0
        await self._release(reply.jobs, worker)
        await self._tell_expired(reply.expired)
        return 0

    async def _tell_expired(self, jobs: Sequence[JobId]) -> None:
        await publish_expired_events(self._storage, self._bus, jobs)

    def _solo_ended(self) -> bool:
        """Return whether the job that runs alone, if there is one, runs no longer."""
        if self._solo in self._runner.active:
            return False
        self._solo, self._after_solo = None, True
        return True

    def _outcomes_are_safe(self) -> bool:
        """Return whether a job that ends this process would cost no other job its outcome.

        An outcome that is not stored is lost with the process. Before a suspect those of the others
        must be stored; after it the suspect's, which would be a loss while it ran alone.
        """
        if not self._finisher.await_stored():
            return False
        self._after_solo = False
        return True

    async def _suspect_waits(self) -> bool:
        """Return whether what this worker drains for is still there: others may have taken it."""
        now = asyncio.get_running_loop().time()
        if now < self._next_look or not self._slots.free:
            # Every change in a busy store wakes us, and the look takes the write lock.
            self._next_at = self._next_look
            return True
        self._next_look = self._next_at = now + _SUSPECT_LOOK
        worker, wants = self._identity.id, [Want(queue, 1) for queue in self._queues]
        reply = await self._storage.jobs.claim(worker, wants, total=0)
        await self._tell_expired(reply.expired)
        if not reply.live and worker == self._identity.id:
            self._identity.lost.set()
        if not reply.live or reply.solo_due:
            return True
        self._solo_due = self._dry = False
        self._slots.await_room(awaited=True)
        return False

    def _expect(self, asked: float, now: datetime, then: datetime) -> None:
        """Look again at ``then``, told by a store that was ``asked`` and whose clock said ``now``;
        or before, if something is known to come before.

        Counted from the question, not from the answer: too early costs a look, too late is lost
        for good where a rate has no burst.
        """
        told = asked + (then - now).total_seconds()
        self._next_at = told if self._next_at is None else min(self._next_at, told)

    async def _worth_it(self) -> bool:
        """Read before any write lock is asked for. Return whether a claim is worth it."""
        if self._solo_due and self._slots.used == 0:
            return True
        asked = asyncio.get_running_loop().time()
        outlook = await self._storage.jobs.outlook(self._queues)
        if outlook.claimable:
            return True
        if outlook.next_at is not None:
            self._expect(asked, outlook.at, outlook.next_at)
        self._hint = False
        return False

    async def _sleep(self) -> None:
        if self._work is not None and self._work.exact:
            self._work.want(self._queues_with_room())
        seconds = self._settings.poll.total_seconds()
        if self._next_at is not None and self._slots.used < self._slots.total:
            seconds = min(seconds, self._next_at - asyncio.get_running_loop().time())
        try:
            async with asyncio.timeout(max(seconds, 0.0005)):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _give_back_strays(self) -> None:
        """Release claims that the store says we hold and that are unknown here: the answer to a
        claim was lost.
        """
        holding, self._holding = self._holding, ()
        strays = [claim for claim in holding if not self._holds(claim)]
        if not strays:
            return
        by = self._identity.id
        found = await self._storage.admin.get([claim.job for claim in strays])
        jobs = [
            claimed_again(job, claim, by)
            for claim, job in zip(strays, found, strict=True)
            if job is not None and (job.state, job.claim_number) == (State.RUNNING, claim.number)
        ]
        given = await self._release(jobs, by)
        if given:
            log.info("released %d claims whose answer was lost", given)

    async def _release(self, jobs: Sequence[ClaimedJob], worker: str) -> int:
        """Give back what was never run here, which is as suspect as before; how many."""
        if not jobs:
            return 0
        releases = [release(job, by=worker, started=False) for job in jobs]
        applied = await self._storage.jobs.apply(releases)
        self._finisher.tell_given_back(jobs, releases, applied)
        return sum(1 for answer in applied.answers if answer.verdict is Verdict.APPLIED)
