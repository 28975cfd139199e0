"""Transitions → batched, fenced writes → events."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime

import msgspec

from windlass._core.job.event import Event, JobMoved, QueueCooled, enqueued_event
from windlass._core.job.job import AttemptError, Claim, ClaimedJob, Progress
from windlass._core.job.state import Verb
from windlass._core.job.transition import Transition, fail
from windlass._observe.bus import Bus
from windlass._storage.protocol.jobs import Applied, JobStore, TransitionAnswer, Verdict
from windlass._storage.shared.batcher import is_retryable
from windlass._worker.finish.follow_ups import apply_one, fallback_transitions
from windlass._worker.run.progress import report_last
from windlass.errors import StorageError, StorageReplaced

__all__ = ["Finisher", "side_events", "transition_event"]

log = logging.getLogger("windlass")

_LARGEST = 500
_FIRST_WAIT, _LONGEST_WAIT = 0.05, 2.0
_Ended = tuple[ClaimedJob, Transition]


_ALERTING = frozenset((Verb.RETRY, Verb.FAIL, Verb.THROTTLE))
"""What listeners hear of that only want to know what goes wrong."""


class Finisher:
    """Stores outcomes. Nothing is forgotten until the store has answered for it.

    While one write is under way the next one collects. An outage is waited out; an outcome that
    can never be stored becomes a failure that says so.
    """

    def __init__(
        self,
        jobs: JobStore,
        bus: Bus,
        chance: Callable[[], float],
        on_taken: Callable[[], None],
        *,
        follow: Callable[[ClaimedJob, Transition], Transition] = lambda _, failed: failed,
    ) -> None:
        """Call `run` in a task of its own, or `flush` by hand.

        ``on_taken`` is called when what waited is being written: there is room for more.
        ``follow`` adds the job that is told of a failure.
        """
        self._follow = follow
        self._jobs = jobs
        self._on_taken = on_taken
        self._bus = bus
        self._chance = chance
        self._next: dict[Claim, _Ended] = {}
        self._sending: dict[Claim, _Ended] = {}
        self._notes: dict[Claim, Progress] = {}
        self._added = asyncio.Event()
        self._then: Callable[[], None] | None = None
        self._failing = False
        self._stuck: Exception | None = None
        self._bad: set[Claim] = set()  # their outcomes cannot even fail
        self.counts: Counter[str] = Counter()
        """Accepted verbs since the start, and how many were refused."""

    def add(self, job: ClaimedJob, transition: Transition) -> None:
        """Store this soon."""
        self._next[job.claim] = (job, transition)
        self._added.set()

    def note(self, claim: Claim, progress: Progress) -> None:
        """Store this, what a run said last, before its outcome: after that it would be too late."""
        self._notes[claim] = progress

    def tell(self, job: ClaimedJob, transition: Transition, at: datetime) -> None:
        """It is stored already: count it and tell."""
        self._record([(job, transition)], [TransitionAnswer(Verdict.APPLIED, transition.verb)], at)

    def holds(self, claim: Claim) -> bool:
        """Whether an outcome of this claim waits to be stored."""
        return claim in self._next or claim in self._sending

    @property
    def backlog(self) -> int:
        """Outcomes that wait and are not being written right now."""
        return len(self._next)

    @property
    def unstored(self) -> list[Claim]:
        """The claims whose outcomes wait to be stored, or are being written."""
        return [*self._sending, *self._next]

    @property
    def idle(self) -> bool:
        """Whether every outcome is stored."""
        return not self._next and not self._sending

    def all_stored(self, then: Callable[[], None]) -> bool:
        """Whether every outcome is stored; if not, call ``then`` once when they are.

        Those that the store refuses in any form do not count: they may be refused for ever.
        """
        stored = self._all_stored()
        self._then = None if stored else then
        return stored

    def _all_stored(self) -> bool:
        return not self._next and self._sending.keys() <= self._bad

    async def run(self, stop: asyncio.Event) -> None:
        """Write as long as there is something to write, until ``stop`` and nothing is left."""
        stopping = asyncio.ensure_future(stop.wait())
        stopping.add_done_callback(lambda _: self._added.set())
        try:
            while not (stop.is_set() and self.idle):
                if self._next:
                    await self._persist()
                    continue
                self._added.clear()
                await self._added.wait()
        finally:
            stopping.cancel()

    async def _persist(self) -> None:
        """One flush; after a passing failure, wait a little longer each time."""
        pause = _FIRST_WAIT
        while True:
            try:
                await self.flush()
            except StorageReplaced:
                raise  # nothing can be stored any more, however long it is tried
            except Exception as error:  # noqa: BLE001 -- whatever it is, outcomes must not be lost
                if not self._failing:
                    log.warning("outcomes cannot be stored, retrying: %s", error)
                self._failing = True
                await self._wait_out(pause * (0.5 + self._chance()))
                pause = min(pause * 2, _LONGEST_WAIT)
            else:
                if self._failing:
                    log.info("outcomes are stored again")
                self._failing = False
                return

    async def _wait_out(self, seconds: float) -> None:
        if self._stuck is None:
            await asyncio.sleep(seconds)
            return
        # One outcome is bad, not the store: those that come meanwhile do not wait for it.
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._next:
                    self._added.clear()
                    await self._added.wait()

    async def flush(self) -> int:
        """Write what waits, in one batch; the number of transitions answered for."""
        room = _LARGEST - len(self._sending)  # what a failed flush has left goes along
        if not self._sending and len(self._next) <= room:
            self._sending, self._next = self._next, {}
        else:
            for claim in list(self._next)[:room]:
                self._sending[claim] = self._next.pop(claim)
        self._on_taken()
        sent, self._stuck = list(self._sending.values()), None
        if self._notes:
            notes, self._notes = self._notes, {}
            await report_last(self._jobs, list(notes.items()))
        await self._send(sent)
        if self._stuck is not None:
            raise self._stuck
        return len(sent)

    async def _send(self, batch: Sequence[_Ended]) -> None:
        """Strangers in a batch do not meet: a bad one is found by halving and fails alone."""
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
        failed = self._follow(
            job, fail(job, by=transition.by, error=AttemptError("OutcomeNotStorable", what))
        )
        stuck: Exception | None = None
        for told in _instead(transition, failed):
            try:
                stored, applied = await apply_one(self._jobs.apply, told)
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
        """The store has answered: forget these, so that nothing is told twice, and tell."""
        if len(sent) == len(self._sending):
            self._sending = {}
        else:
            for job, _ in sent:
                del self._sending[job.claim]
        if self._bad:
            self._bad.intersection_update(self._sending)
        self._record(stored, applied.answers, applied.at)
        self._tell_stored()

    def _tell_stored(self) -> None:
        if self._then is not None and self._all_stored():
            then, self._then = self._then, None
            then()

    def _record(
        self, batch: Sequence[_Ended], answers: Sequence[TransitionAnswer], at: datetime
    ) -> None:
        counts, heard = self.counts, self._bus.heard
        alert = not heard and self._bus.alert
        for (job, transition), answer in zip(batch, answers, strict=True):
            if answer.verb is not None:
                counts[answer.verb] += 1
                if heard or (alert and answer.verb in _ALERTING):
                    self._bus.publish(transition_event(job, transition, answer, at))
                    for event in side_events(job, transition, answer, at):
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


def _instead(transition: Transition, failed: Transition) -> Iterator[Transition]:
    """What to store in place of an outcome that is refused, the most first. The ``on_failure`` job
    is given up last, after the error in its own words.
    """
    if transition.then is not None:
        less, least = fallback_transitions(transition)
        yield from (transition, less, *list(fallback_transitions(failed))[:1], least)
    else:
        yield failed
        yield from fallback_transitions(failed)
    yield msgspec.structs.replace(failed, then=None)


def transition_event(
    job: ClaimedJob, transition: Transition, answer: TransitionAnswer, at: datetime
) -> JobMoved:
    """What listeners are told about a transition that was accepted."""
    verb = answer.verb or transition.verb
    back = verb in (Verb.RETRY, Verb.SNOOZE, Verb.THROTTLE, Verb.RELEASE)
    delay = transition.delay
    if answer.cool_until is not None:  # the queue rests: nothing of it starts before
        delay = max(delay, answer.cool_until - at)
    return JobMoved(
        verb=verb,
        job=job.claim.job,
        task=job.task,
        queue=job.queue,
        claim_number=job.claim.number,
        attempt=job.attempt,
        max_attempts=job.max_attempts,
        worker=job.worker,
        at=at,
        waited=job.started_at - job.due,
        ran=at - job.started_at,
        delay=delay if back else None,
        error=transition.error,
        missed=transition.missed and verb is Verb.RELEASE,
        correlation_id=job.correlation_id,
        tenant=job.tenant,
        record=job,
    )


def side_events(
    job: ClaimedJob, transition: Transition, answer: TransitionAnswer, at: datetime
) -> Iterator[Event]:
    """What else happened in the same write."""
    if answer.cooled and answer.cool_until is not None:
        yield QueueCooled(
            queue=job.queue,
            until=answer.cool_until,
            at=at,
            job=job.claim.job,
            task=job.task,
            worker=job.worker,
        )
    if transition.then is not None and answer.verb is Verb.FAIL:
        yield enqueued_event(transition.then)
