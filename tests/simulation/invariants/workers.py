"""The promises about workers and what runs in them.

The numbers are those of the reliability plan: 11 no premature burial, 12 bounded recovery,
13 overlap, 19 cancel reaches the handler, 24 isolation of poison.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from tests.simulation.framework.history import Body, Change, Rule, WorkerView
from tests.simulation.framework.loop import SimLoop
from tests.simulation.framework.network import Surroundings
from tests.simulation.framework.process import SimProcess
from tests.simulation.invariants.jobs import ended
from tests.simulation.world.faults import HEARTBEAT, LEASE
from windlass._core.job.job import JobId
from windlass._core.job.state import State, Verb
from windlass._storage.protocol.workers import WorkerState

__all__ = ["RULES_OF_WORKERS", "WorldRule"]

_SLACK = 2.0
"""For the way there and back of the few calls that a rescue takes."""
_EDGES = {
    (None, WorkerState.LIVE),
    (WorkerState.LIVE, WorkerState.DEAD),
    (WorkerState.LIVE, WorkerState.GONE),
    (WorkerState.DEAD, None),
    (WorkerState.GONE, None),
}


class WorldRule(Rule):
    """A rule that must know how each process fared."""

    def __init__(self, around: Surroundings, *, proves_death: bool) -> None:
        super().__init__(around.ledger)
        self.around = around
        self.loop: SimLoop = around.loop
        self.proves_death = proves_death
        """Whether a death can be proven before the lease is over."""

    def later(self, seconds: float, check: Callable[..., None], *told: Any) -> None:
        """Look again then, whoever is dead by that time."""
        self.loop.call_as(None, self.loop.call_later, seconds, check, *told)


class Burials(WorldRule):
    """11: who is buried was silent for a lease, and had reasons of its own to be."""

    def worker_changed(
        self, worker: str, before: WorkerView | None, after: WorkerView | None
    ) -> None:
        was = None if before is None else before.state
        is_now = None if after is None else after.state
        if was is not is_now and (was, is_now) not in _EDGES:
            self.ledger.object("9 worker edges", f"{worker}: {was} → {is_now}")
        if before is None or after is None:
            return
        if was is is_now and was is not WorkerState.LIVE:
            self.ledger.object("6 fencing", f"{worker}, {was}, was renewed")
        if was is WorkerState.LIVE and is_now is WorkerState.DEAD:
            self._buried(worker, before)

    def _buried(self, worker: str, before: WorkerView) -> None:
        process = self.ledger.owners[worker]
        now, beat = self.loop.time(), before.beat.total_seconds()
        self.ledger.count("buried")
        if self.proves_death and not process.alive:
            return
        if timedelta(seconds=now) - before.beat <= before.lease:
            silent = now - beat
            self.ledger.object(
                "11 no premature burial", f"{worker} was heard of {silent:.3f} s ago"
            )
        elif self._had_no_reason(worker, process, beat, now):
            self.ledger.object(
                "11 an outage buries nobody", f"{worker} was well, and the store was away"
            )

    def _had_no_reason(self, worker: str, process: SimProcess, beat: float, now: float) -> bool:
        if self.around.identities.get(process) != worker:
            return False  # it never went by that name, or does not any more
        return self.around.health.well(process, beat, now)


class Recovery(WorldRule):
    """12: a dead worker's jobs come back in time, where somebody is well enough to see to it."""

    def death(self, process: SimProcess) -> None:
        now = self.loop.time()
        held: dict[str, list[tuple[JobId, int]]] = defaultdict(list)
        for job, view in self.ledger.jobs.items():
            if view.state is State.RUNNING and self.ledger.owners.get(view.worker) is process:
                held[view.worker].append((job, view.claim_number))
        for worker, claims in held.items():
            row = self.ledger.workers.get(worker)
            beat = now if row is None else row.beat.total_seconds()
            self._check_after(max(beat, now), worker, beat, claims)

    def _check_after(
        self, since: float, worker: str, beat: float, claims: list[tuple[JobId, int]]
    ) -> None:
        bound = since + LEASE + HEARTBEAT + 1.0 + _SLACK
        self.later(bound - self.loop.time(), self._check, worker, beat, claims)

    def _check(self, worker: str, beat: float, claims: list[tuple[JobId, int]]) -> None:
        now = self.loop.time()
        row = self.ledger.workers.get(worker)
        if row is not None and row.beat.total_seconds() > beat:
            # The network has brought a beat of the dead after its death. The lease counts from it.
            beat = row.beat.total_seconds()
            self._check_after(beat, worker, beat, claims)
            return
        late = [
            job
            for job, number in claims
            if (view := self.ledger.jobs.get(job)) is not None
            and view.state is State.RUNNING
            and view.claim_number == number
        ]
        if not late or self.around.faults.outage(beat - LEASE, now):
            return
        health = self.around.health
        observers = [
            process
            for process in health.born
            if process.name.startswith("worker") and health.well(process, beat - HEARTBEAT, now)
        ]
        if observers:
            self.ledger.object(
                "12 bounded recovery",
                f"{late} are still held by the dead, and {observers[0].name} is well",
            )


class CancelArrives(WorldRule):
    """19: a request reaches the handler with the next beat."""

    def job_changed(self, change: Change) -> None:
        before, after = change.before, change.after
        if before is None or after is None or before.cancel_requested:
            return
        if after.cancel_requested and after.state is State.RUNNING:
            body = self.ledger.bodies.get((change.job, after.claim_number))
            if body is not None and body.runs:
                self.later(HEARTBEAT + 1.0 + _SLACK, self._check, body, self.loop.time())

    def _check(self, body: Body, since: float) -> None:
        now = self.loop.time()
        if not body.runs or body.told is not None or self.around.faults.outage(since, now):
            return
        if self.around.health.well(body.process, since - HEARTBEAT, now):
            self.ledger.object("19 cancel", f"the handler of {body.job} never heard of it")


class Bodies(WorldRule):
    """13, 24: one body per claim, started only under it; suspects alone."""

    def body_began(self, body: Body) -> None:
        name = f"job {body.job} #{body.number}"
        if (body.job, body.number) in self.ledger.bodies:
            self.ledger.object("7 one run per claim", f"{name} was started twice")
        view = self.ledger.jobs.get(body.job)
        if body.job not in self.ledger.deleted and (not view or view.claim_number < body.number):
            self.ledger.object("4 one live claim", f"{name} runs, and nobody claimed it")
        held = view is not None and view.state is State.RUNNING and view.claim_number == body.number
        row = self.ledger.workers.get(body.worker)
        if not held and (row is None or row.state is not WorkerState.DEAD):
            self.ledger.object("13 overlap", f"{name} was started after its claim had ended")
        body.solo = held and view is not None and view.solo
        neighbours = self.ledger.running_in(body.process)
        if neighbours and (body.solo or any(other.solo for other in neighbours)):
            self.ledger.object("24 poison", f"{name} does not run alone")

    def body_ended(self, body: Body) -> None:
        self.ledger.count(f"body {body.how}")


class Poison(WorldRule):
    """24: a job that is fatal to its worker is fatal three times at most, and convicts nobody."""

    def __init__(self, around: Surroundings, *, proves_death: bool) -> None:
        super().__init__(around, proves_death=proves_death)
        self._deaths: defaultdict[JobId, int] = defaultdict(int)

    def job_changed(self, change: Change) -> None:
        before, after, verb = change.before, change.after, ended(change)
        if before is None or after is None:
            return
        if verb is Verb.RELEASE and (before.lost, before.solo) != (after.lost, after.solo):
            self.ledger.object("24 poison", f"a release told something about {change.job}")
        by_reaper = after.ended_by.startswith("reaper:")
        learnt = verb not in {None, Verb.SNOOZE, Verb.THROTTLE, Verb.RELEASE}
        if change.op == "requeue" or (learnt and not by_reaper):
            # A success or a failure of its own clears the suspicion: the row counts anew.
            self._deaths[change.job] = 0

    def death(self, process: SimProcess) -> None:
        for body in self.ledger.running_in(process):
            if body.how == "crashing":
                self._deaths[body.job] += 1
                if self._deaths[body.job] > 3:
                    self.ledger.object("24 poison", f"{body.job} ended its worker a fourth time")


class SingleRuns(WorldRule):
    """24: a job that must not run twice is not given back once its handler was entered."""

    def job_changed(self, change: Change) -> None:
        before, asked = change.before, self.ledger.asked.get(change.job)
        if before is None or asked is None or asked.on_lost != "fail":
            return
        entered = (change.job, before.claim_number) in self.ledger.bodies
        last = before.attempt >= before.max_attempts
        if last and entered and ended(change) in {Verb.RETRY, Verb.RELEASE}:
            self.ledger.object("24 single runs", f"job {change.job} runs a second time")


RULES_OF_WORKERS: list[type[WorldRule]] = [
    *(Burials, Recovery, CancelArrives, Bodies, Poison, SingleRuns),
]
