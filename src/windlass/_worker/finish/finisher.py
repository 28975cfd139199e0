"""Ended runs → transitions → batched, fenced writes → events."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec

from windlass._core.job.event import claimed_event
from windlass._core.job.job import AttemptError, Claim, ClaimedJob, NewJob, Progress
from windlass._core.job.outcome import Misfit, Missing
from windlass._core.job.state import Verb
from windlass._core.job.transition import Transition, fail
from windlass._observe.bus import Bus
from windlass._storage.protocol.jobs import Applied, JobStore, TransitionAnswer, Verdict
from windlass._storage.shared.errors import is_retryable
from windlass._worker.claim.slots import Slots
from windlass._worker.claim.unrunnable_jobs import UnrunnableJobs
from windlass._worker.finish.decisions import Decisions
from windlass._worker.finish.events import side_events, transition_event
from windlass._worker.finish.follow_ups import apply_one, fallback_transitions
from windlass._worker.periodic import rung_at
from windlass._worker.run.execution import RunEnded
from windlass._worker.run.progress import report_last
from windlass._worker.run.transaction_finish import CommittedFinish, UndecidedFinish
from windlass.errors import LimitUnknown, StorageError, StorageReplaced

__all__ = ["Finisher"]

log = logging.getLogger("windlass")

_LARGEST = 500
_MANY = 100
"""A transition that adds more jobs than this is written alone."""
_FIRST_WAIT, _LONGEST_WAIT = 0.05, 2.0
_UNDECIDED = 1000
"""Runs that are remembered because their outcome was not known when they ended."""
_Ended = tuple[ClaimedJob, Transition]


_ALERTING = frozenset((Verb.RETRY, Verb.FAIL, Verb.THROTTLE))
"""The events for listeners that only want failures."""


class _Added(NamedTuple):
    """The number of jobs that a run adds."""

    alone: int
    """Outside of flows."""
    jobs: int
    """All of them."""


class Finisher:
    """Stores outcomes. Nothing is forgotten until the store has answered for it.

    While one write is under way the next one collects. An outage is waited out; an outcome that
    can never be stored becomes a failure that says so.
    """

    def __init__(
        self,
        jobs: JobStore,
        bus: Bus,
        slots: Slots,
        decisions: Decisions,
        unrunnable: UnrunnableJobs,
        *,
        define: Callable[[Sequence[NewJob]], Awaitable[None]],
        chance: Callable[[], float],
    ) -> None:
        """Call `run` in a task, or `flush` by hand. ``slots`` wakes the claimer when there is room
        for more. ``define`` defines the limits of jobs.
        """
        self._jobs = jobs
        self._bus = bus
        self._slots = slots
        self._decisions = decisions
        self._unrunnable = unrunnable
        self._define = define
        self._chance = chance
        self.waiting: dict[Claim, _Ended] = {}
        """Outcomes that wait and are not being written right now."""
        self._sending: dict[Claim, _Ended] = {}
        self._notes: dict[Claim, Progress] = {}
        self._then: dict[Claim, _Added] = {}
        """The jobs that `Context.then` added to successes which are not stored yet."""
        self._added = asyncio.Event()
        self._awaited = False
        self._failing = False
        self._stuck: Exception | None = None
        self._bad: set[Claim] = set()  # their outcomes cannot even fail
        # Runs that ended and left it open how: few, if any.
        self._undecided: deque[Claim] = deque(maxlen=_UNDECIDED)
        self.counts: Counter[str] = Counter()
        """Accepted verbs since the start, and how many were refused."""

    def add(self, ended: RunEnded) -> None:
        """Decide what becomes of a job whose run has ended, and store it soon."""
        job, outcome = ended.job, ended.outcome
        if isinstance(outcome, UndecidedFinish):
            self._undecided.append(job.claim)
            return
        if isinstance(outcome, Missing | Misfit):
            outcome = self._unrunnable.met(job, outcome, self._decisions.policy_of(job))
        transition = self._decisions.decide(job, outcome, by=job.worker)
        if ended.metadata is not None:
            transition = msgspec.structs.replace(transition, metadata=ended.metadata)
        if isinstance(outcome, CommittedFinish):
            stored = TransitionAnswer(Verdict.APPLIED, transition.verb)
            applied = Applied(outcome.at, [stored], outcome.left_out)
            self._record([(job, transition)], applied)
            return
        if transition.then or transition.flows:
            added = _Added(len(transition.then), len(transition.new_jobs))
            self._then[job.claim] = added
        follow = self._decisions.follow
        if job.on_failure is not None or job.task in follow.with_on_success:
            transition = follow(job, transition)
        if ended.progress is not None:  # before its outcome: after that it would be too late
            self._notes[job.claim] = ended.progress
        self.waiting[job.claim] = (job, transition)
        self._added.set()

    def tell_given_back(
        self, jobs: Sequence[ClaimedJob], releases: Sequence[Transition], applied: Applied
    ) -> None:
        """Publish claims that were given back: first that they were taken, unless they ran here.

        Not before the store has answered: an apply that fails is tried again, and a claim is one
        event.
        """
        for job, ended, answer in zip(jobs, releases, applied.answers, strict=True):
            if self._bus.heard and answer.verb is not None:
                if job.claim not in self._undecided:
                    self._bus.publish(claimed_event(job))
                self._bus.publish(transition_event(job, ended, answer, applied.at))

    def holds(self, claim: Claim) -> bool:
        """Return whether an outcome of this claim waits to be stored."""
        return claim in self.waiting or claim in self._sending

    @property
    def unstored(self) -> list[Claim]:
        """The claims whose outcomes wait to be stored, or are being written."""
        return [*self._sending, *self.waiting]

    @property
    def idle(self) -> bool:
        """Whether every outcome is stored."""
        return not self.waiting and not self._sending

    def await_stored(self) -> bool:
        """Return whether every outcome is stored; if not, the claimer is woken once when they are.

        Those that the store refuses in any form do not count: they may be refused for ever.
        """
        stored = self._all_stored()
        self._awaited = not stored
        return stored

    def _all_stored(self) -> bool:
        return not self.waiting and self._sending.keys() <= self._bad

    async def run(self, stop: asyncio.Event) -> None:
        """Write as long as there is something to write, until ``stop`` and nothing is left. After a
        passing failure, wait a little longer each time.
        """
        pause = _FIRST_WAIT
        with rung_at(stop, self._added):
            while not (stop.is_set() and self.idle):
                if not self.waiting and not self._failing:
                    self._added.clear()
                    await self._added.wait()
                    continue
                try:
                    await self.flush()
                except StorageReplaced:
                    raise  # nothing can be stored any more, however long it is tried
                except Exception as error:  # noqa: BLE001 -- no error may lose outcomes
                    if not self._failing:
                        log.warning("outcomes cannot be stored, retrying: %s", error)
                    self._failing = True
                    await self._wait_out(pause * (0.5 + self._chance()))
                    pause = min(pause * 2, _LONGEST_WAIT)
                else:
                    if self._failing:
                        log.info("outcomes are stored again")
                    self._failing, pause = False, _FIRST_WAIT

    async def _wait_out(self, seconds: float) -> None:
        if self._stuck is None:
            await asyncio.sleep(seconds)
            return
        # One outcome is bad, not the store: those that come meanwhile do not wait for it.
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self.waiting:
                    self._added.clear()
                    await self._added.wait()

    async def flush(self) -> int:
        """Write what waits, in one batch; the number of transitions answered for."""
        if len(self.waiting) >= self._slots.total:  # the claimer may wait for room
            self._slots.ring()
        room = _LARGEST - len(self._sending)  # what a failed flush has left goes along
        if not self._sending and len(self.waiting) <= room:
            self._sending, self.waiting = self.waiting, {}
        else:
            for claim in list(self.waiting)[:room]:
                self._sending[claim] = self.waiting.pop(claim)
        sent, self._stuck = list(self._sending.values()), None
        if self._notes:
            notes, self._notes = self._notes, {}
            await report_last(self._jobs, list(notes.items()))
        for batch in self._batches(sent) if self._then else (sent,):
            await self._send(batch)
        if self._stuck is not None:
            raise self._stuck
        return len(sent)

    def _batches(self, ended: list[_Ended]) -> list[list[_Ended]]:
        """Return the transitions to write together. One that adds many jobs is written last and
        alone: the others do not wait for it.
        """
        large = {claim for claim, added in self._then.items() if added.jobs > _MANY}
        small = [one for one in ended if one[0].claim not in large]
        return [small, *([one] for one in ended if one[0].claim in large)]

    async def _send(self, batch: Sequence[_Ended]) -> None:
        """Store a batch. A transition that cannot be stored is found by halving and fails alone."""
        if not batch:
            return
        try:
            applied = await self._jobs.apply([transition for _, transition in batch])
        except Exception as error:
            if is_retryable(error) or isinstance(error, StorageReplaced):
                raise
            if len(batch) > 1:
                half = len(batch) // 2
                await self._send(batch[:half])
                await self._send(batch[half:])
                return
            await self._give_up(batch[0], error)
            return
        self._settle(batch, batch, applied)

    async def _give_up(self, ended: _Ended, error: Exception) -> None:
        job, transition = ended
        what = f"{transition.verb}: {type(error).__name__}: {error}"[:1000]
        failed = self._decisions.follow(
            job, fail(job, by=transition.by, error=AttemptError("OutcomeNotStorable", what))
        )
        stuck: Exception | None = None
        added = self._then.get(job.claim, _Added(0, 0)).alone
        if job.claim in self._then and isinstance(error, LimitUnknown):
            in_flows = [new for flow in transition.flows for new in flow.new_jobs]
            await self._define([*transition.then[:added], *in_flows])
        for told in _instead(transition, failed, added):
            kept = added if told.verb is transition.verb else 0
            try:
                stored, applied = await apply_one(self._jobs.apply, told, kept)
            except StorageError:
                raise
            except Exception as worse:  # noqa: BLE001 -- kept for the next flush, after the others
                stuck = worse
                continue
            if told is not transition:
                words = "the outcome of job %s cannot be stored unchanged: %s"
                log.error(words, job.claim.job, error)
            self._settle([ended], [(job, stored)], applied)
            return
        self._stuck = stuck
        self._bad.add(job.claim)
        self._tell_stored()

    def _settle(self, sent: Sequence[_Ended], stored: Sequence[_Ended], applied: Applied) -> None:
        """Drop the stored outcomes, so that no event is published twice, and publish the events."""
        if len(sent) == len(self._sending):
            self._sending = {}
        else:
            for job, _ in sent:
                del self._sending[job.claim]
        if self._bad:
            self._bad.intersection_update(self._sending)
        if self._then:
            for job, _ in sent:
                self._then.pop(job.claim, None)
        self._record(stored, applied)
        if self._awaited:
            self._tell_stored()

    def _tell_stored(self) -> None:
        if self._awaited and self._all_stored():
            self._awaited = False
            self._slots.wake.set()

    def _record(self, batch: Sequence[_Ended], applied: Applied) -> None:
        counts, heard, at = self.counts, self._bus.heard, applied.at
        for (job, transition), answer in zip(batch, applied.answers, strict=True):
            if answer.verb is not None:
                counts[answer.verb] += 1
                if heard or (answer.verb in _ALERTING and self._bus.alert):
                    self._bus.publish(transition_event(job, transition, answer, at))
                    for event in side_events(job, transition, answer, at, applied.left_out):
                        self._bus.publish(event)
                continue
            counts[answer.verdict] += 1
            if answer.verdict is Verdict.REFUSED:
                log.warning(
                    "job %s claim %d: the claim was lost, its outcome (%s) is not stored",
                    job.claim.job,
                    job.claim.number,
                    transition.verb,
                )


def _instead(transition: Transition, failed: Transition, added: int) -> Iterator[Transition]:
    """Return the replacements for a refused outcome, the fullest first. The ``on_failure`` job is
    given up last, after the error in its own words. A success stays one as long as it can: with
    the ``added`` jobs and the flows of `Context.then`, or not at all.
    """
    if transition.then and transition.verb is Verb.FAIL:
        less, least = fallback_transitions(transition)
        yield from (transition, less, *list(fallback_transitions(failed))[:1], least)
    else:
        if transition.then or transition.flows:
            yield from (transition, *fallback_transitions(transition, added))
        yield failed
        yield from fallback_transitions(failed)
    yield msgspec.structs.replace(failed, then=())
