"""The promises about jobs and claims, each checked at the instant a row changes.

The numbers are those of the reliability plan: 4 one live claim, 5 claim numbers and attempts,
6 fencing, 7 one end per claim, 8 done needs a run, 9 state edges, 10 attempts, 14 order, 15 due
time, expiry and pause, 16 limits, 17 unique keys, 19 cancel, 24 losses.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta

from tests.simulation.framework.history import Body, Change, JobView, Ledger, Rule
from windlass._core.job.job import JobId, NewJob
from windlass._core.job.outcome import HEAD_START
from windlass._core.job.state import FINISHING, TERMINAL, State, Verb
from windlass._core.job.unique import Window
from windlass._core.limits.limit import LimitSpec, lane_key
from windlass._storage.protocol.workers import WorkerState

__all__ = ["RULES_OF_JOBS", "SETTLING", "SPECS", "ended", "settled", "started"]

SPECS: dict[str, LimitSpec] = {}
"""The limits of the simulated worlds; `workload` fills it."""

_BACK = {Verb.RETRY, Verb.SNOOZE, Verb.THROTTLE, Verb.RELEASE}
_FREE = {Verb.SNOOZE, Verb.THROTTLE, Verb.RELEASE}
_REQUEUABLE = {State.FAILED, State.CANCELLED, State.DISCARDED}

_FOLLOWS: defaultdict[str, set[Verb]] = defaultdict(
    lambda: {Verb.RETRY, Verb.FAIL, Verb.CANCEL},
    {
        "well": {Verb.SUCCEED},
        "interrupted": {Verb.RELEASE, Verb.RETRY, Verb.FAIL, Verb.CANCEL},
        "raised Snooze": {Verb.SNOOZE, Verb.CANCEL},
        "raised Throttled": {Verb.THROTTLE, Verb.CANCEL},
        "raised GiveUp": {Verb.FAIL, Verb.CANCEL},
    },
)
"""What may be stored of a run that ended so, by the worker it ran in."""


SETTLING = frozenset({"settle", "claim", "apply", "leave"})
"""The operations that may settle flows."""


def started(change: Change) -> bool:
    """Whether this is a claim."""
    return (
        change.after is not None
        and change.after.state is State.RUNNING
        and (change.before is None or change.before.state is not State.RUNNING)
    )


def ended(change: Change) -> Verb | None:
    """The verb by which a claim was ended, if this is the end of one."""
    before, after = change.before, change.after
    if before is None or before.state is not State.RUNNING:
        return None
    if after is None:
        return Verb.SUCCEED  # kept for no time at all: only a success is deleted at once
    if after.state is State.RUNNING:
        return None
    return Verb(after.ended_verb) if after.ended_verb else Verb.CLAIM


def settled(change: Change) -> bool:
    """Whether this is a member that its flow ended or brought back, perhaps both in one operation,
    and which may have been claimed in the same one.
    """
    before, after = change.before, change.after
    if before is None or after is None or after.flow is None or before.state is after.state:
        return False
    if change.op == "act" and before.state in _REQUEUABLE:
        return after.state is State.WAITING
    if change.op not in SETTLING or before.expires_at is not None:
        return False
    ended_by_flow = before.state in {State.CANCELLED, State.DISCARDED}
    if before.state is State.WAITING or ended_by_flow:
        by_claim = {State.RUNNING} if change.op == "claim" and ended_by_flow else set[State]()
        return after.state in {State.WAITING, State.CANCELLED, State.DISCARDED, *by_claim}
    return False


_BY_FLOW = (State.CANCELLED, State.DISCARDED)
"""The states in which a flow ends members that have not run."""


def _was_added(job: JobView) -> bool:
    return job.flow is not None and job.flow.added


class Edges(Rule):
    """9, 5, 10: only edges of the table, and exact books of claims and attempts."""

    def job_changed(self, change: Change) -> None:
        before, after = change.before, change.after
        if before is None:
            self._inserted(change)
        elif after is None:
            if before.state is State.WAITING or (
                before.state is State.RUNNING and change.op not in {"apply", "leave"}
            ):
                self._object("9 state edges", change, f"deleted while {before.state}")
        else:
            self._moved(change, before, after)

    def _object(self, rule: str, change: Change, what: str) -> None:
        self.ledger.object(rule, f"job {change.job} by {change.op}: {what}")

    def _inserted(self, change: Change) -> None:
        after = change.after
        if after is not None and after.state is State.CANCELLED and _was_added(after):
            return  # the same write cancels its flow, which expires
        if after is not None and change.job in self.ledger.added_to and after.state in _BY_FLOW:
            return  # the same write settles the flow that it was added with
        if after is None or after.state is not State.WAITING or after.claim_number:
            self._object("9 state edges", change, f"appeared as {after}")
        if change.job not in self.ledger.asked:
            self._object("2 no invention", change, "nobody asked for it")

    def _moved(self, change: Change, before: JobView, after: JobView) -> None:
        verb = self._verb(change, before, after)
        if verb is None:
            self._object("9 state edges", change, f"{before.state} → {after.state}")
            return
        claimed = verb is Verb.CLAIM
        if after.claim_number != before.claim_number + claimed:
            self._object(
                "5 claim numbers", change, f"#{before.claim_number} → #{after.claim_number}"
            )
        attempt = before.attempt + claimed
        # A loss gives the last attempt back, for the job to fail.
        spared = after.lost > before.lost and before.attempt >= before.max_attempts
        if verb in _FREE or (verb is Verb.RETRY and spared):
            attempt = max(0, attempt - 1)
        if after.attempt != attempt:
            self._object("5 attempts", change, f"{verb}: {before.attempt} became {after.attempt}")
        if after.attempt > after.max_attempts:
            self._object("10 attempts", change, f"{after.attempt} of {after.max_attempts}")
        if verb is Verb.RETRY and before.attempt >= before.max_attempts and not spared:
            self._object("10 attempts", change, "retried when all attempts were spent")

    def _verb(self, change: Change, before: JobView, after: JobView) -> Verb | str | None:
        """What took it from one state to the other; None: nothing may."""
        if settled(change):
            return Verb.CLAIM if after.state is State.RUNNING else "flow"
        match before.state, after.state:
            case State.WAITING, State.RUNNING:
                return Verb.CLAIM
            case State.RUNNING, State.WAITING | State.SUCCEEDED | State.FAILED | State.CANCELLED:
                verb = ended(change)
                if verb in _BACK and after.state is State.CANCELLED and after.flow is not None:
                    return verb  # it came back, and its cancelled flow ended it in the same write
                return verb if verb and FINISHING.get(verb) is after.state else None
            case State.WAITING, State.CANCELLED:
                return Verb.CANCEL if change.op == "cancel" else None
            case State.WAITING, State.DISCARDED:
                late = before.expires_at is not None and before.expires_at <= change.at
                return Verb.EXPIRE if late else None
            case State.FAILED, State.DISCARDED:
                return Verb.DISCARD if change.op == "discard" else None
            case (was, State.WAITING) if was in _REQUEUABLE:
                return Verb.REQUEUE if change.op == "requeue" else None
            case (was, same) if was is same:
                return "edit"
            case _:
                return None


class Fence(Rule):
    """4, 6, 7, 8: whoever ends a claim holds it, and success needs a run that ended well."""

    def job_changed(self, change: Change) -> None:
        before, after = change.before, change.after
        if started(change) and after is not None:
            owner = self.ledger.workers.get(after.worker)
            if owner is None or owner.state is not WorkerState.LIVE:
                state = "no row" if owner is None else owner.state
                self._object("4 one live claim", change, f"claimed by {after.worker}: {state}")
        verb = ended(change)
        if verb is not None and before is not None:
            self._check_end(change, before, verb)
        elif before and after and before.progress != after.progress:
            self._check_progress(change, after)

    def _check_end(self, change: Change, before: JobView, verb: Verb) -> None:
        number, after = before.claim_number, change.after
        body = self.ledger.bodies.get((change.job, number))
        if verb is Verb.SUCCEED and (body is None or body.how != "well"):
            how = "no run" if body is None else body.how or "still running"
            self._object("8 done needs a run", change, f"claim #{number} succeeded after {how}")
        if after is None:
            return
        if after.ended_number != number:
            self._object("6 fencing", change, f"#{after.ended_number} ended #{number}")
        by = after.ended_by
        if by.startswith("reaper:"):
            owner = self.ledger.workers.get(before.worker)
            if owner is not None and owner.state is WorkerState.LIVE:
                self._object("6 fencing", change, f"reaped while {before.worker} is live")
        elif self.ledger.owners.get(by) is not self.ledger.owners.get(before.worker):
            self._object("6 fencing", change, f"{by} ended a claim of {before.worker}")
        elif body is not None and body.runs:
            self._object("13 overlap", change, f"#{number} ended ({verb}) while its body runs on")
        elif body is not None and change.op == "apply" and verb not in _FOLLOWS[body.how]:
            self._object("8 outcome", change, f"#{number} {body.how}, and what is stored is {verb}")

    def _check_progress(self, change: Change, after: JobView) -> None:
        if after.progress and after.progress != str(after.claim_number):
            self._object("6 fencing", change, f"progress of #{after.progress} was stored")

    def _object(self, rule: str, change: Change, what: str) -> None:
        self.ledger.object(rule, f"job {change.job} by {change.op}: {what}")


class DueAndOpen(Rule):
    """15: nothing before it is due, nothing from a paused queue."""

    def job_changed(self, change: Change) -> None:
        before, after = change.before, change.after
        if not started(change) or before is None or after is None:
            return
        # A blocked job is due from its turn on, which this write may have brought. What was due
        # stays so when the clock is set back: the row is marked as ready.
        if not before.blocked and before.due > max(change.at, self.ledger.latest):
            early = (before.due - change.at).total_seconds()
            self.ledger.object("15 not before due", f"job {change.job} claimed {early:.3f} s early")
        queue = self.ledger.asked[change.job].queue
        if self.ledger.queues[queue].paused:
            self.ledger.object("15 paused", f"job {change.job} claimed from paused {queue!r}")
        if before.expires_at is not None and before.expires_at <= change.at:
            self.ledger.object("15 expiry", f"job {change.job} claimed after it expired")


class Starts(Rule):
    """15: a job that was started once does not expire; a claim without a start changes nothing."""

    def job_changed(self, change: Change) -> None:
        before, after, verb = change.before, change.after, ended(change)
        if verb not in _BACK or before is None or after is None:
            return
        begun = (change.job, before.claim_number) in self.ledger.bodies
        if begun and after.expires_at is not None:
            self.ledger.object("15 expiry", f"job {change.job} may expire after its start")
        if verb is Verb.RELEASE and not begun and after.expires_at != before.expires_at:
            self.ledger.object("15 expiry", f"job {change.job} lost its expiry before any start")


class Losses(Rule):
    """24: no job costs more than three workers for each of its attempts, and what teaches nothing
    about it leaves its losses as they were.
    """

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._lost: Counter[JobId] = Counter()

    def job_changed(self, change: Change) -> None:
        before, after, verb = change.before, change.after, ended(change)
        back = before is not None and before.state in _REQUEUABLE
        if back or before is None or after is None:
            del self._lost[change.job]  # another budget
        elif verb in _FREE and (after.lost < before.lost or (before.solo and not after.solo)):
            self.ledger.object("24 losses", f"job {change.job} forgot its losses by {verb}")
        elif verb is not None and after.lost > before.lost:
            self._lost[change.job] += 1
            lost, most = self._lost[change.job], 3 * self.ledger.asked[change.job].max_attempts
            if lost > most:
                self.ledger.object("24 losses", f"job {change.job} was lost {lost} times")


class Order(Rule):
    """14: a claim takes the first of each line, by priority, due time and insertion."""

    def op_ended(self, op: str, changes: Sequence[Change]) -> None:
        if op != "claim":
            return
        taken = [change for change in changes if started(change)]
        if not taken:
            return
        last: dict[tuple[str, str, bool], tuple[int, datetime, int]] = {}
        for change in taken:
            if change.before is not None:
                asked = self.ledger.asked[change.job]
                stood = change.after if change.before.blocked else change.before
                place = _place(asked, stood or change.before)
                # Every line is overtaken by its own jobs; the common one by nobody at all.
                lines = {_line(asked, change.before), (asked.queue, "", False)}
                for line in lines if not change.before.solo else {_line(asked, change.before)}:
                    last[line] = max(place, last.get(line, place))
        self._check_left(last, changes[0].at)

    def _check_left(
        self, last: dict[tuple[str, str, bool], tuple[int, datetime, int]], now: datetime
    ) -> None:
        for job, view in self.ledger.jobs.items():
            if view.state is not State.WAITING or view.due > now - _head_start(view):
                continue
            if view.blocked:
                continue
            if view.expires_at is not None and view.expires_at <= now:
                continue
            asked = self.ledger.asked[job]
            overtaker = last.get(_line(asked, view))
            if overtaker is not None and _place(asked, view) < overtaker:
                self.ledger.object("14 order", f"job {job} was overtaken in {asked.queue!r}")


def _head_start(view: JobView) -> timedelta:
    """How long a worker that could not run this job leaves it to the others."""
    return HEAD_START if view.ended_verb == Verb.RELEASE.value else timedelta(0)


def _line(asked: NewJob, view: JobView) -> tuple[str, str, bool]:
    return asked.queue, lane_key(asked.limits), view.solo


def _place(asked: NewJob, view: JobView) -> tuple[int, datetime, int]:
    return asked.priority, view.due, view.seq


class Limits(Rule):
    """16: concurrency at every instant, rates in every half-open window, as the store stamps."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._running: defaultdict[str, set[JobId]] = defaultdict(set)
        self._starts: defaultdict[str, list[datetime]] = defaultdict(list)

    def job_changed(self, change: Change) -> None:
        asked = self.ledger.asked.get(change.job)
        if asked is None or not asked.limits:
            return
        if started(change) and change.after is not None:
            for use in asked.limits:
                self._running[use.gate].add(change.job)
                self._starts[use.gate].append(change.after.started_at)
                self._check(use.gate, SPECS[use.name])
        elif ended(change) is not None:
            for use in asked.limits:
                self._running[use.gate].discard(change.job)

    def clock_stepped(self) -> None:
        """Windows are measured on that clock: what was before it was set counts no more."""
        self._starts.clear()

    def _check(self, gate: str, spec: LimitSpec) -> None:
        running = len(self._running[gate])
        if spec.concurrency is not None and running > spec.concurrency:
            self.ledger.object("16 concurrency", f"{running} of {spec.concurrency} in {gate!r}")
        if spec.rate is None:
            return
        starts, most = self._starts[gate], math.ceil(spec.rate.n) + spec.rate.burst - 1
        if len(starts) > most and starts[-1] - starts[-1 - most] < spec.rate.per:
            span: timedelta = starts[-1] - starts[-1 - most]
            self.ledger.object("16 rate", f"{most + 1} starts within {span} in {gate!r}")


class Keys(Rule):
    """17: a key has one holder, and a refused job was refused for a reason."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._holders: dict[str, tuple[JobId, datetime | None]] = {}
        self._begun: set[JobId] = set()
        """Jobs that were started once, or requeued: they do not take such a key again."""

    def body_began(self, body: Body) -> None:
        self._begun.add(body.job)

    def op_ended(self, op: str, changes: Sequence[Change]) -> None:
        """What was given back before its start holds its key again, if nobody does by now."""
        back = [c for c in changes if ended(c) is Verb.RELEASE and c.job not in self._begun]
        for change in sorted(back, key=lambda c: 0 if c.after is None else c.after.seq):
            unique = self.ledger.asked[change.job].unique
            if unique is None or unique.window is not Window.UNTIL_STARTED:
                continue
            if self.holder(unique.key, change.at) is None:
                self._holders[unique.key] = (change.job, None)

    def holder(self, key: str, now: datetime) -> JobId | None:
        """Who holds it."""
        job, until = self._holders.get(key, (None, None))
        return None if until is not None and until <= now else job

    def job_changed(self, change: Change) -> None:
        asked = self.ledger.asked.get(change.job)
        unique = None if asked is None else asked.unique
        if unique is None:
            return
        mine = self.holder(unique.key, change.at) == change.job
        before, after = change.before, change.after
        if change.op == "requeue" or ended(change) not in {None, Verb.RELEASE}:
            self._begun.add(change.job)
        requeued = change.op == "requeue" and unique.window is not Window.UNTIL_STARTED
        if before is None or (requeued and after is not None and after.state is State.WAITING):
            other = self.holder(unique.key, change.at)
            if other not in {None, change.job} and not self._lapsed(other, change.at):
                self.ledger.object("17 unique", f"{unique.key!r} of {other} given to {change.job}")
            if not mine:
                until = None if unique.period is None else change.at + unique.period
                self._holders[unique.key] = (change.job, until)
        elif mine and _lets_go(unique.window, change):
            del self._holders[unique.key]

    def _lapsed(self, holder: JobId | None, now: datetime) -> bool:
        """Whether a holder waits past its expiry: whoever comes next discards it, and may be told
        of before that is.
        """
        view = None if holder is None else self.ledger.jobs.get(holder)
        if view is None or view.state is not State.WAITING or view.expires_at is None:
            return False
        return view.expires_at <= now


def _lets_go(window: Window, change: Change) -> bool:
    if change.after is None:
        return True
    if window is Window.UNTIL_STARTED and started(change):
        return True
    return window is not Window.FOR_A_TIME and change.after.state in TERMINAL


class CancelWins(Rule):
    """19: a requested cancel beats every outcome but success."""

    def job_changed(self, change: Change) -> None:
        before, after = change.before, change.after
        if before is None or after is None or not before.cancel_requested:
            return
        if ended(change) is not None and after.state not in {State.SUCCEEDED, State.CANCELLED}:
            self.ledger.object(
                "19 cancel", f"job {change.job} became {after.state} in spite of the request"
            )


RULES_OF_JOBS: list[type[Rule]] = [
    *(Edges, Fence, DueAndOpen, Starts, Losses, Order, Limits, Keys, CancelWins),
]
