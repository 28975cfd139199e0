"""The promises about whole queues, breakers, replaced jobs and follow-ups.

They carry on the numbers of the reliability plan: 16 gates, 17 unique keys, 20 follow-ups, and F6
jobs that runs add. Limits
themselves and the holders of keys are among the promises about jobs (`invariants`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

import msgspec

from tests.simulation.framework.history import Ask, Change, Ledger, QueueView, Rule
from tests.simulation.invariants.jobs import SPECS, ended, started
from windlass._core.flows.flow import PartKind
from windlass._core.job.job import FollowUp, JobId, NewJob
from windlass._core.job.state import FAILURE_VERBS, State, Verb
from windlass._core.job.unique import OnConflict
from windlass._core.limits.breaker import Breaker, BreakerState, record_failure, record_success
from windlass._core.limits.cooldown import MAX_STEPS, RESET_AFTER

__all__ = ["ADDED", "RULES_OF_GATES"]

ADDED = "sim.added"
"""The task of jobs that runs add to their success."""


class Rooms(Rule):
    """16: a queue runs no more than it may, in the whole cluster."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._running: defaultdict[str, set[JobId]] = defaultdict(set)

    def job_changed(self, change: Change) -> None:
        asked = self.ledger.asked.get(change.job)
        if asked is None:
            return
        running = self._running[asked.queue]
        if ended(change) is not None:
            running.discard(change.job)
        elif started(change):
            running.add(change.job)
            most = self.ledger.queues[asked.queue].max_running
            if most is not None and len(running) > most:
                self.ledger.object("16 max_running", f"{len(running)} of {most} in {asked.queue!r}")


class Cooling(Rule):
    """16: nothing starts while its queue rests, and one hit sends it to rest once."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._sent: set[str] = set()
        self._back = timedelta(0)
        """How far the clock was set back at most: the next claim lets a rest end by as much
        earlier. Until then a rest that begins is stored with an end that is as much later.
        """

    def clock_stepped(self) -> None:
        self._back = max(self._back, self.ledger.latest - self.ledger.clock.now())

    def job_changed(self, change: Change) -> None:
        if not started(change):
            return
        queue = self.ledger.asked[change.job].queue
        until = self.ledger.queues[queue].cool_until
        if until is not None and until > change.at:
            early = (until - change.at).total_seconds()
            self._object(queue, f"job {change.job} starts {early:.3f} s too early")

    def queue_changed(self, queue: str, before: QueueView, after: QueueView, op: str) -> None:
        was, until, now = before.cool_until, after.cool_until, self.ledger.clock.now()
        if (was, before.cool_downs) == (until, after.cool_downs):
            return
        same = before.cool_downs == after.cool_downs and op == "claim"
        if same and was and until and timedelta(0) < was - until <= self._back:
            return  # as much earlier as the clock was set back
        forgiven = was is not None and was <= now - RESET_AFTER
        if until is None:
            if op != "warm" and not forgiven:
                self._object(queue, f"forgotten by {op} while {was} is no {RESET_AFTER} ago")
            return
        self.ledger.count("cooled")
        self._sent.add(queue)
        counts = {min(before.cool_downs + 1, MAX_STEPS), *([1] if forgiven else [])}
        if was is not None and was > now + self._back:
            self._object(queue, f"sent to rest till {until} while it rests till {was}")
        elif after.cool_downs not in counts:
            self._object(queue, f"{before.cool_downs} cool-downs became {after.cool_downs}")

    def op_ended(self, op: str, changes: Sequence[Change]) -> None:
        sent, self._sent = self._sent, set()
        for change in changes:
            if ended(change) is not Verb.THROTTLE or change.before is None or change.after is None:
                continue
            queue = self.ledger.asked[change.job].queue
            body = self.ledger.bodies.get((change.job, change.before.claim_number))
            if body is not None and body.cools:
                sent.discard(queue)
                until = self.ledger.queues[queue].cool_until
                if until is None or until <= change.at or change.after.due < until - self._back:
                    self._object(queue, f"hit by {change.job}, and it rests till {until}")
        for queue in sorted(sent):
            self._object(queue, f"sent to rest by {op}, and nobody hit a limit")

    def _object(self, queue: str, what: str) -> None:
        self.ledger.object("16 cool-down", f"queue {queue!r}: {what}")


class Breakers(Rule):
    """16: an open breaker starts nothing, and then one trial at a time.

    What ended in one operation may have ended in any order: a breaker is in one of several states
    then, and only what all of them forbid is an offence.
    """

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._states: defaultdict[str, set[BreakerState]] = defaultdict(lambda: {record_success()})
        self._running: defaultdict[str, set[JobId]] = defaultdict(set)
        self._back = timedelta(0)
        """How far the clock was set back at most: an open breaker opens by as much earlier. Until a
        claim has moved it, one that opens since is open until as much later.
        """

    def clock_stepped(self) -> None:
        self._back = max(self._back, self.ledger.latest - self.ledger.clock.now())

    def job_changed(self, change: Change) -> None:
        for gate, breaker in _breakers(self.ledger.asked.get(change.job)):
            if ended(change) is not None:
                self._running[gate].discard(change.job)
            elif started(change):
                self._check(gate, breaker, change.at)
                self._running[gate].add(change.job)

    def _check(self, gate: str, breaker: Breaker, now: datetime) -> None:
        states = self._states[gate]
        if not all(state.holds(breaker) for state in states):
            return
        self.ledger.count("trial")
        opens = [state.open_until for state in states if state.open_until is not None]
        if opens and len(opens) == len(states) and min(opens) > now + self._back:
            early = (min(opens) - now).total_seconds()
            self.ledger.object("16 breaker", f"{gate!r} starts a job {early:.3f} s too early")
        elif self._running[gate]:
            self.ledger.object("16 breaker", f"{gate!r} starts a second trial")

    def op_ended(self, op: str, changes: Sequence[Change]) -> None:
        told: defaultdict[str, list[Verb]] = defaultdict(list)
        breakers: dict[str, Breaker] = {}
        for change in changes:
            verb = ended(change)
            if verb is Verb.SUCCEED or verb in FAILURE_VERBS:
                for gate, breakers[gate] in _breakers(self.ledger.asked.get(change.job)):
                    told[gate].append(Verb.FAIL if verb in FAILURE_VERBS else Verb.SUCCEED)
        for gate, verbs in told.items():
            self._states[gate] = {
                _after(breakers[gate], state, order, at)
                for state in self._states[gate]
                for order in _orders(verbs)
                for at in {changes[0].at, changes[0].at + self._back}
            }
        for gate, stored in self.ledger.breakers.items():
            states = self._states[gate]
            if not any(self._same(stored, state) for state in states):
                self.ledger.object("16 breaker", f"{gate!r} is {stored} by {op}, not {states}")
            elif gate in told and stored.open_until is not None:
                self.ledger.count("opened")
            self._states[gate] = {stored}

    def _same(self, stored: BreakerState, state: BreakerState) -> bool:
        """Whether a state is the one that is stored, but for a clock that was set back."""
        until, then = stored.open_until, state.open_until
        if until is None or then is None or abs(then - until) > self._back:
            return stored == state
        return stored == msgspec.structs.replace(state, open_until=until)

    async def close(self, ask: Ask) -> None:
        for name in [name for name, spec in SPECS.items() if spec.breaker is not None]:
            told = {state.name: state.breaker for state in await ask("limits.states", name)}
            shown, stored = told.get(name) or record_success(), self.ledger.breakers[name]
            if shown != stored:
                self.ledger.object("16 breaker", f"{name!r} is shown as {shown}, not {stored}")


def _breakers(asked: NewJob | None) -> Iterator[tuple[str, Breaker]]:
    for use in () if asked is None else asked.limits:
        breaker = SPECS[use.name].breaker
        if breaker is not None:
            yield use.gate, breaker


def _orders(verbs: Sequence[Verb]) -> list[list[Verb]]:
    """What may have happened since the last success among them, or since all of them began."""
    failures = [Verb(verb) for verb in verbs if verb is Verb.FAIL]
    if len(failures) == len(verbs):
        return [failures]
    return [[Verb.SUCCEED, *failures[:count]] for count in range(len(failures) + 1)]


def _after(
    breaker: Breaker, state: BreakerState, verbs: Sequence[Verb], now: datetime
) -> BreakerState:
    for verb in verbs:
        state = record_success() if verb is Verb.SUCCEED else record_failure(breaker, state, now)
    return state


class Replacing(Rule):
    """17: only a waiting job takes anything over, and only what came with its key for that."""

    def job_changed(self, change: Change) -> None:
        before, after = change.before, change.after
        asked = self.ledger.asked.get(change.job)
        if after is None or asked is None:
            return
        if after.differs(asked):
            self.ledger.count("replaced arguments")
            wanted = {OnConflict.REPLACE, OnConflict.REPLACE_ARGUMENTS}
            found = any(not after.differs(new) for new in self._rivals(change, wanted))
            self._check(change, found=found, what="arguments")
        if before is not None and change.op == "insert" and before.due != after.due:
            self.ledger.count("replaced due")
            wanted = {OnConflict.REPLACE, OnConflict.REPLACE_DUE}
            found = any(
                after.due == (change.at if new.delay is None else change.at + new.delay)
                for new in self._rivals(change, wanted)
            )
            self._check(change, found=found, what="due time")

    def _check(self, change: Change, *, found: bool, what: str) -> None:
        state = State.WAITING if change.before is None else change.before.state
        if state is not State.WAITING or change.op != "insert":
            how = f"{state}, changed its {what} by {change.op}"
            self.ledger.object("17 replacing", f"{change.job}, {how}")
        elif not found:
            self.ledger.object("17 replacing", f"nobody gave {change.job} its {what}")

    def _rivals(self, change: Change, wanted: set[OnConflict]) -> Iterator[NewJob]:
        mine = self.ledger.asked[change.job].unique
        for job, new in self.ledger.asked.items():
            theirs = new.unique
            if mine is None or theirs is None or job == change.job:
                continue
            if theirs.key == mine.key and theirs.on_conflict in wanted:
                yield new


class FollowUps(Rule):
    """20: each final failure of a job that wants one has one follow-up, and so has each success of
    a steady one; nothing else has.
    """

    def op_ended(self, op: str, changes: Sequence[Change]) -> None:
        causes = self.ledger.causes
        failed = {
            (change.job, change.before.claim_number)
            for change in changes
            if change.before is not None and ended(change) is Verb.FAIL
        }
        well = {
            (change.job, change.before.claim_number)
            for change in changes
            if change.before is not None and ended(change) is Verb.SUCCEED
        }
        cheered = {
            cause
            for cause in well
            if self.ledger.asked[cause[0]].task == "sim.steady" and not self._cut_short(cause[0])
        }
        born: defaultdict[tuple[JobId, int], list[JobId]] = defaultdict(list)
        for change in changes:
            if change.before is not None:
                continue
            cause = causes.get(change.job)
            if cause is not None and self.ledger.asked[change.job].task == ADDED:
                continue
            if cause is not None:
                born[cause].append(change.job)
            elif op not in {"insert", "write", "start", "add"}:
                self.ledger.object("2 no invention", f"{change.job} was made by {op}")
        for cause in born:
            if cause not in failed | well:
                self.ledger.object("20 follow-ups", f"{born[cause]} for {cause}: no such end")
        for cause in sorted(cheered):
            if [self.ledger.asked[job].task for job in born[cause]] != ["sim.cheer"]:
                self.ledger.object("20 follow-ups", f"{cause} succeeded and has {born[cause]}")
        for cause in sorted(failed):
            self._check(cause, born[cause])

    def _cut_short(self, job: JobId) -> bool:
        """Whether its flow was cancelled: it takes no more jobs."""
        view = self.ledger.jobs.get(job)
        flow = None if view is None or view.flow is None else self.ledger.flows.get(view.flow.flow)
        return flow is not None and flow.flow.cancel_requested

    def _check(self, cause: tuple[JobId, int], follow_ups: list[JobId]) -> None:
        job, number = cause
        wanted = self.ledger.asked[job].on_failure
        if len(follow_ups) != (wanted is not None):
            self.ledger.object("20 follow-ups", f"{job} #{number} failed and has {follow_ups}")
        elif wanted is not None:
            self.ledger.count("followed up")
            made = self.ledger.asked[follow_ups[0]]
            fields = {name: getattr(made, name) for name in FollowUp.__struct_fields__}
            if FollowUp(**fields) != wanted or made.on_failure is not None:
                self.ledger.object(
                    "20 follow-ups", f"{made} is not {msgspec.json.encode(wanted)!r}"
                )


class AddedJobs(Rule):
    """F6: what a run has added exists exactly if its success does."""

    def op_ended(self, op: str, changes: Sequence[Change]) -> None:
        born: defaultdict[tuple[JobId, int], list[JobId]] = defaultdict(list)
        for change in changes:
            cause = self.ledger.causes.get(change.job)
            if change.before is not None or cause is None:
                continue
            if self.ledger.asked[change.job].task == ADDED:
                born[cause].append(change.job)
        succeeded = {
            (change.job, change.before.claim_number)
            for change in changes
            if change.before is not None and ended(change) is Verb.SUCCEED
        }
        for cause in sorted(born.keys() - succeeded):
            self.ledger.object("F6 added jobs", f"{born[cause]} for {cause} by {op}: no success")
        for cause in sorted(succeeded):
            body = self.ledger.bodies.get(cause)
            wanted = 0 if body is None or self._cut_short(cause[0]) else body.added
            if len(born[cause]) != wanted:
                self.ledger.object(
                    "F6 added jobs", f"{cause} added {wanted} and has {born[cause]} after {op}"
                )
            self.ledger.count("added", wanted)

    def _cut_short(self, job: JobId) -> bool:
        """Whether its flow was cancelled before its end: members add no more jobs."""
        place = self.ledger.jobs[job].flow if job in self.ledger.jobs else None
        graph = None if place is None else self.ledger.flows_before.get(place.flow)
        if place is None or graph is None or not graph.flow.cancel_requested:
            return False
        return graph.parts[place.part].kind is PartKind.JOBS


RULES_OF_GATES: list[type[Rule]] = [Rooms, Cooling, Breakers, Replacing, FollowUps, AddedJobs]
