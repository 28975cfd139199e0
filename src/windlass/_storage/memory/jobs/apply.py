"""Ending claims: the fence, the cancel request, history, rollups, and what becomes of the job."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from windlass._core.flows.flow import NewFlow
from windlass._core.job.job import Attempt, JobId, NewJob
from windlass._core.job.state import FAILURE_VERBS, FINISHING, State, Verb
from windlass._core.job.transition import Transition
from windlass._core.job.unique import Window
from windlass._core.stats.rollup import bucket_of
from windlass._core.values.instants import add_clamped, span_us
from windlass._storage.memory.flows.added import AddedFlows
from windlass._storage.memory.flows.rows import MemoryPart
from windlass._storage.memory.io.database import MemoryDatabase
from windlass._storage.memory.io.rows import JobRow, LastClaim
from windlass._storage.memory.jobs.insert import insert
from windlass._storage.memory.queues import forget_old_cooldown, start_cooldown
from windlass._storage.protocol.jobs import TransitionAnswer, Verdict
from windlass._storage.shared.insert_rules import skip_if_key_held

__all__ = ["HISTORY_WITH_ERROR", "ApplyRules"]

HISTORY_WITH_ERROR = 32
"""Ended claims with an error that a job remembers."""
HISTORY_WITHOUT_ERROR = 8
"""And without one: snoozes and their like push no error out."""


class ApplyRules:
    """The rules of `JobStore.apply`. Runs under the database's lock."""

    def __init__(self, database: MemoryDatabase, flows: AddedFlows) -> None:
        self._db = database
        self._flows = flows
        self._following: list[tuple[NewJob, MemoryPart | None]] = []
        self._new_flows: list[tuple[NewFlow, MemoryPart | None]] = []
        self._unstarted: list[JobRow] = []
        self._left_out: list[JobId] = []

    def end_all(self, transitions: Sequence[Transition], now: datetime) -> list[TransitionAnswer]:
        """Judge each on its own; what cannot be stored is refused before anything changes."""
        self._db.gates.require([job for one in transitions for job in one.new_jobs])
        answers = [self.end(transition, now) for transition in transitions]
        # After all of them: the follow-up jobs may take keys that any of them released.
        unstarted, self._unstarted = self._unstarted, []
        for row in sorted(unstarted, key=lambda row: row.seq):
            self.retake_key(row, now)
        following, self._following = self._following, []
        for job, part in following:
            inserted = insert(self._db, job, now)
            stored = inserted.created and not inserted.repeated
            if not stored:
                self._left_out.append(job.id)
            if part is not None:
                self._db.join_later(job.id if stored else None, part, now)
        flows, self._new_flows = self._new_flows, []
        for flow, part in flows:
            self.add_flow(flow, part, now)
        return answers

    def take_left_out(self) -> list[JobId]:
        """Return the jobs that were to follow, and that the last call did not store."""
        left_out, self._left_out = self._left_out, []
        return left_out

    def end(self, transition: Transition, now: datetime) -> TransitionAnswer:
        """Judge one transition, and do what it says if its claim holds."""
        row = self._db.rows.get(transition.claim.seq)
        if row is None:
            return TransitionAnswer(Verdict.UNKNOWN)
        if self._db.held(transition.claim) is row:
            verb = self.verb(row, transition)
            if verb is not Verb.THROTTLE or not transition.cools:
                self.accept(row, transition, verb, now)
                return TransitionAnswer(Verdict.APPLIED, verb)
            queue = row.asked.queue
            until, cooled = start_cooldown(self._db, queue, transition.cools, transition.delay, now)
            self.accept(row, transition, verb, now)
            return TransitionAnswer(Verdict.APPLIED, verb, until, cooled)
        ended = row.ended
        if ended and (ended.number, ended.by) == (transition.claim.number, transition.by):
            return TransitionAnswer(Verdict.REPEATED, ended.verb)
        return TransitionAnswer(Verdict.REFUSED)

    def verb(self, row: JobRow, transition: Transition) -> Verb:
        """Return the verb that takes effect: the alternative, if there is one and a cancel was
        requested.
        """
        if row.cancel_requested and transition.if_cancelled is not None:
            return transition.if_cancelled
        return transition.verb

    def accept(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        due = self.due(row, transition, verb, now)
        self.count(row, verb, now)
        self.remember(row, transition, verb, now)
        row.note(transition.metadata)
        row.end_claim(
            LastClaim(transition.claim.number, verb, transition.by),
            (
                self.missed_at(row, transition, verb, now),
                self.missed_why(row, transition, verb),
            ),
            lost=transition.lost,
            solo=transition.solo,
        )
        del self._db.running[row.seq]
        if verb is transition.verb:
            self.follow_all(row, transition.then, verb)
            self.expect_flows(row, transition.flows)
        state = FINISHING[verb]
        if state is State.WAITING:
            if transition.refund:
                row.refund()
            self.note_start(row, started=transition.started)
            self._db.stand(row, due, now)
        else:
            row.keep(result=transition.result if verb is Verb.SUCCEED else None)
            self._db.finish(row, state, now)
            if not transition.keep and row.flow is None:
                self._db.remove(row)
        self.tell_gates(row, transition, verb, now)

    def note_start(self, row: JobRow, *, started: bool) -> None:
        """Mark a started job as not expiring; a job that was not started is as it was before."""
        if started:
            row.note_started()
        elif not row.key_spent:
            self._unstarted.append(row)

    def retake_key(self, row: JobRow, now: datetime) -> None:
        """Give a job that was not started its key again, unless another one holds it by now."""
        unique = row.asked.unique
        if unique is None or unique.window is not Window.UNTIL_STARTED:
            return
        if self._db.holder(unique.key, now) is None:
            self._db.take_key(row, now)

    def follow_all(self, row: JobRow, then: Sequence[NewJob], verb: Verb) -> None:
        """Insert what is to happen next. What a member adds by its success belongs to its part,
        and is counted before its end.
        """
        part = None
        if row.flow is not None and verb is Verb.SUCCEED:
            part = self._db.part_of(row)
            if part.is_cancelled:
                self._left_out.extend(job.id for job in then)
                return
            part.expect(len(then))
        for job in then:
            self.follow(job, part)

    def expect_flows(self, row: JobRow, flows: Sequence[NewFlow]) -> None:
        """Store the flows that a success adds when all has ended. The part of a member is not over
        before.
        """
        part = None if row.flow is None else self._db.part_of(row)
        for flow in flows:
            if part is not None:
                part.expect_flow()
            self._new_flows.append((flow, part))

    def add_flow(self, flow: NewFlow, part: MemoryPart | None, now: datetime) -> None:
        """Store a flow, or leave it out."""
        if not self._flows.add(flow, part, now):
            self._left_out.extend(job.id for job in flow.new_jobs)
        if part is not None:  # it is counted by itself now
            part.expect_flow(-1)
            self._db.flows.spread(part, now)

    def follow(self, job: NewJob, part: MemoryPart | None = None) -> None:
        """Insert a job when all has ended; not if its key is held then."""
        self._following.append((skip_if_key_held(job), part))

    def tell_gates(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        """Apply the effect of the outcome on breakers, rates and the queue."""
        gates = self._db.gates
        if verb is Verb.THROTTLE:
            row.count_throttle()
            if transition.drains:
                gates.drain(row.asked.limits, now)
        elif verb in FAILURE_VERBS:
            gates.trip(row.asked.limits, now)
        elif verb is Verb.SUCCEED:
            gates.close_breakers(row.asked.limits)
            forget_old_cooldown(self._db.queues[row.asked.queue], now)

    def due(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> datetime:
        due = add_clamped(now, transition.delay)
        cool_until = self._db.queues[row.asked.queue].cool_until
        if verb is Verb.THROTTLE and transition.cools and cool_until is not None:
            return max(due, cool_until - self._db.gates.set_back_by(now))
        return due

    def missed_at(
        self, row: JobRow, transition: Transition, verb: Verb, now: datetime
    ) -> datetime | None:
        if verb is not Verb.RELEASE:
            return None
        return now if transition.missed and row.missed_at is None else row.missed_at

    def missed_why(self, row: JobRow, transition: Transition, verb: Verb) -> str | None:
        if verb is not Verb.RELEASE:
            return None
        if not transition.missed:
            return row.missed_why
        return "" if transition.error is None else transition.error.message

    def remember(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        """Add a claim that did not succeed to the history, unless it was only missed."""
        if verb is Verb.SUCCEED:
            row.blame(None)
            return
        if verb is Verb.RELEASE and transition.missed:
            return
        if transition.error is not None:
            row.blame(transition.error)
        row.history.append(
            Attempt(
                claim_number=row.claim_number,
                attempt=row.attempt,
                verb=verb,
                worker=row.worker,
                started_at=row.started_at,
                ended_at=now,
                error=transition.error,
                metadata=transition.metadata,
            )
        )
        plain = transition.error is None
        alike = [past for past in row.history if (past.error is None) is plain]
        if len(alike) > (HISTORY_WITHOUT_ERROR if plain else HISTORY_WITH_ERROR):
            row.forget(alike[0])

    def count(self, row: JobRow, verb: Verb, now: datetime) -> None:
        """Add one finish to its minute. Before anything moves: it reads due and start."""
        tally = self._db.tallies.at(now, row.asked.queue, row.asked.task)
        tally.counts[verb.value] += 1
        tally.wait[bucket_of(span_us(row.started_at - row.due))] += 1
        tally.run[bucket_of(span_us(now - row.started_at))] += 1
