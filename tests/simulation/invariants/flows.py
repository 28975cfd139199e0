"""The promises about flows, each checked when an operation has ended.

F1 a member is placed only when its part may open, F2 the stored counts are those of the jobs, F3 a
flow ends exactly with its last member, F4 nothing stays blocked, F5 a flow is stored whole, F6 a
member's success and what it adds are stored together, F7 a cancelled flow starts no member, F8 a
flow is deleted as a whole.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import timedelta

from tests.simulation.framework.history import Ask, Change, JobView, Ledger, Rule
from tests.simulation.invariants.jobs import SETTLING, ended, started
from windlass._core.flows.flow import FlowState, PartKind, PartRecord
from windlass._core.job.job import FlowId, FlowPlace, JobId
from windlass._core.job.state import TERMINAL, State, Verb
from windlass._storage.protocol.flows import FlowGraph

__all__ = ["RULES_OF_FLOWS"]

_BAD = {State.FAILED, State.CANCELLED, State.DISCARDED}


class Placing(Rule):
    """F1: a member is placed only when its part may open.

    An operation may do several things one after the other. So a part counts as not over if one of
    its jobs was open before the operation and still is.
    """

    def op_ended(self, op: str, changes: Sequence[Change]) -> None:
        placed = [change for change in changes if _placed(change)]
        if placed:
            parts = _Parts(self.ledger, changes)
            for change in placed:
                if (why := parts.why_closed(change)) is not None:
                    self.ledger.object("F1 placing", f"{change.job} was placed by {op}: {why}")


class _Parts:
    """The jobs of all parts before and after one operation."""

    def __init__(self, ledger: Ledger, changes: Sequence[Change]) -> None:
        self._ledger = ledger
        before = {change.job: change.before for change in reversed(changes)}
        self._jobs: defaultdict[tuple[FlowId, int], list[tuple[JobView, JobView]]]
        self._jobs = defaultdict(list)
        for job, view in _members(ledger):
            if view.flow is not None:
                was = before.get(job, view) or view
                self._jobs[view.flow.flow, view.flow.part].append((was, view))

    def why_closed(self, change: Change) -> str | None:
        """Return why a job must not be placed; None: it may be."""
        place = None if change.after is None else change.after.flow
        if place is None:
            return None
        flow = self._ledger.flows.get(place.flow)
        if flow is None:
            return None
        part = flow.parts[place.part]
        for edge in part.after:
            if self._waits(flow, edge.part):
                return f"{flow.parts[edge.part].name} has not ended"
            failed = self._has(flow.flow.id, edge.part, {State.FAILED})
            if edge.strict and failed and part.when == "succeeded":
                return f"{flow.parts[edge.part].name} has failed"
        needed = part.when == "succeeded" or any(self._may_fail(flow, e.part) for e in part.after)
        return None if needed else "nothing has failed"

    def _waits(self, flow: FlowGraph, number: int) -> bool:
        """Whether a part was not over at any time of the operation."""
        jobs = self._jobs[flow.flow.id, number]
        if jobs:
            if any(w.state not in TERMINAL and v.state not in TERMINAL for w, v in jobs):
                return True
            return any(self._waits(flow, join) for join in _joins(flow, number))
        part = flow.parts[number]
        # A part without jobs passes a failure on at once, and the end of a flow does not.
        if part.kind is not PartKind.END and self._may_fail(flow, number):
            return False
        return any(self._waits(flow, edge.part) for edge in part.after)

    def _may_fail(self, flow: FlowGraph, number: int) -> bool:
        """Whether a part, or one that it waits for, had a job that ended badly at some time."""
        if flow.flow.cancel_requested or self._has(flow.flow.id, number, _BAD):
            return True
        before = [edge.part for edge in flow.parts[number].after]
        return any(self._may_fail(flow, one) for one in (*before, *_joins(flow, number)))

    def _has(self, flow: FlowId, number: int, states: set[State]) -> bool:
        """Whether a job of the part was in one of these states before the operation or is now;
        a failure counts if it is there all the time.
        """
        both = all if states == {State.FAILED} else any
        return any(both(v.state in states for v in views) for views in self._jobs[flow, number])


def _joins(flow: FlowGraph, number: int) -> list[int]:
    """Return the joins of the flows that jobs of a part have added."""
    return [one.number for one in flow.parts if one.added and one.added.counts_for == number]


class Counting(Rule):
    """F2, F3: counts and the flow's state follow from the jobs after every operation.

    A flow that the operation has not touched is as it was when it was counted last.
    """

    def op_ended(self, op: str, changes: Sequence[Change]) -> None:
        touched = self.ledger.flows_touched
        if not touched:
            return
        found: defaultdict[tuple[FlowId, int], Counter[str]] = defaultdict(Counter)
        for _, view in _members(self.ledger):
            if view.flow is not None and view.flow.flow in touched:
                counts = found[view.flow.flow, view.flow.part]
                counts["total"] += 1
                counts["open"] += view.state not in TERMINAL
                counts["blocked"] += view.blocked
                counts[view.state.value] += 1
        for flow, graph in self.ledger.flows.items():
            if flow not in touched:
                continue
            for part in graph.parts:
                self._check_part(flow, part, found[flow, part.number], op)
            kinds = {part.number for part in graph.parts if part.kind is PartKind.JOBS}
            open_ = sum(found[flow, number]["open"] for number in kinds)
            if (graph.flow.state is FlowState.RUNNING) != bool(open_):
                what = f"{flow} is {graph.flow.state} by {op}, and {open_} members are open"
                self.ledger.object("F3 ends", what)
            if (graph.flow.ended_at is None) != (graph.flow.state is FlowState.RUNNING):
                self.ledger.object("F3 ends", f"{graph.flow} has the wrong end")

    def _check_part(self, flow: FlowId, part: PartRecord, found: Counter[str], op: str) -> None:
        stored = {
            "total": part.total,
            "open": part.open,
            "blocked": part.blocked,
            "succeeded": part.succeeded,
            "failed": part.failed,
        }
        wrong = {
            name: (stored[name], found[name]) for name in stored if stored[name] != found[name]
        }
        others = part.cancelled + part.stopped + part.skipped
        if others != found["cancelled"] + found["discarded"]:
            wrong["cancelled"] = others, found["cancelled"] + found["discarded"]
        if wrong:
            self.ledger.object("F2 counts", f"{flow} {part.name} after {op}: {wrong}")


class Adding(Rule):
    """F6: what a member adds is stored with its success, as a member of its part, or not at all."""

    def op_ended(self, op: str, changes: Sequence[Change]) -> None:
        successes = {
            (change.job, change.before.claim_number): change
            for change in changes
            if change.before is not None and ended(change) is Verb.SUCCEED
        }
        for job, cause in self.ledger.causes.items():
            success = successes.get(cause)
            if success is None or success.after is None or success.after.flow is None:
                continue
            place, view = success.after.flow, self.ledger.jobs.get(job)
            graph = self.ledger.flows.get(place.flow)
            if view is None:
                if graph is None or not graph.flow.cancel_requested:
                    self.ledger.object("F6 added", f"{cause} succeeded by {op} without {job}")
            elif view.flow is None or (view.flow.flow, view.flow.part) != self._place(job, place):
                self.ledger.object("F6 added", f"{job} of {cause} is at {view.flow}, not {place}")
            else:
                inside = job in self.ledger.added_to
                self.ledger.count("added with a flow" if inside else "added to a flow")

    def _place(self, job: JobId, adder: FlowPlace) -> tuple[FlowId, int]:
        """Return where a job must be that a member at this place has added."""
        if job not in self.ledger.added_to:
            return adder.flow, adder.part
        added, part = self.ledger.added_to[job]
        graph = self.ledger.flows.get(adder.flow)
        for one in () if graph is None else graph.parts:
            if one.added is not None and one.added.id == added:
                return adder.flow, one.added.first + part
        return added, part  # a callback has started it


class Cancelling(Rule):
    """F7: from its cancel on, a flow starts no member."""

    def job_changed(self, change: Change) -> None:
        after = change.after
        if not started(change) or after is None or after.flow is None:
            return
        graph = self.ledger.flows_before.get(after.flow.flow)
        if graph is None or not graph.flow.cancel_requested:
            return
        if graph.parts[after.flow.part].kind is PartKind.JOBS:
            self.ledger.object("F7 cancelled flow", f"{change.job} was started by {change.op}")


class Starting(Rule):
    """F5: a flow is stored with all its parts and jobs in one operation, or not at all."""

    def op_ended(self, op: str, changes: Sequence[Change]) -> None:
        ledger = self.ledger
        for flow in ledger.flows.keys() - ledger.flows_before.keys():
            asked = ledger.asked_flows[flow]
            places = [(job, ledger.jobs.get(job.id), part) for part, job in asked.jobs]
            missing = [
                job.id
                for job, view, part in places
                if view is None or view.flow is None or view.flow.part != part
            ]
            if missing or len(ledger.flows[flow].parts) != len(asked.parts):
                ledger.object("F5 whole", f"{flow} was stored by {op} without {missing}")
        for change in changes:
            place = None if change.after is None else change.after.flow
            if change.before is None and place is not None and place.flow not in ledger.flows:
                ledger.object("F5 whole", f"{change.job} was stored by {op} without its flow")


class Deleting(Rule):
    """F8: no job of a flow is deleted before its flow is, and none is left behind.

    A store may delete the jobs in several operations. The first of them deletes the flow.
    """

    def op_ended(self, op: str, changes: Sequence[Change]) -> None:
        ledger = self.ledger
        ledger.count("flow deleted", len(ledger.flows_before.keys() - ledger.flows.keys()))
        for change in changes:
            place = None if change.before is None else change.before.flow
            if change.after is None and place is not None and place.flow in ledger.flows:
                ledger.object("F8 deletion", f"{op} deleted {change.job} of {place.flow}")

    async def close(self, ask: Ask) -> None:
        never = timedelta(days=1_000)  # only deletions that have begun continue
        await ask("flows.prune", state=FlowState.SUCCEEDED, older_than=never, limit=10_000)
        left = [
            job
            for job, view in _members(self.ledger)
            if view.flow is not None and view.flow.flow not in self.ledger.flows
        ]
        if left:
            self.ledger.object("F8 deletion", f"{left} are left of deleted flows")


class Resting(Rule):
    """F4: in a world at rest no flow runs; and none that was acknowledged is lost."""

    async def close(self, ask: Ask) -> None:
        ledger = self.ledger
        for flow, graph in ledger.flows.items():
            if graph.flow.state is FlowState.RUNNING:
                ledger.object("F4 rest", f"{flow} runs in a world at rest")
            ledger.count(f"flow {graph.flow.state}")
        recount = await ask("flows.recount", limit=10_000)
        if recount.wrong:
            ledger.object("F2 counts", f"{recount.wrong}")
        for flow in sorted(ledger.acknowledged_flows - ledger.flows.keys()):
            jobs = [job.id for _, job in ledger.asked_flows[flow].jobs]
            if lost := [job for job in jobs if job not in ledger.deleted]:
                ledger.object("1 no loss", f"{lost} of {flow} are not there")


def _placed(change: Change) -> bool:
    """Whether a blocked job, or one that its flow had ended, came among the others."""
    before, after = change.before, change.after
    if before is None or after is None or after.flow is None or after.blocked:
        return False
    if after.state in TERMINAL:
        return False
    by_flow = change.op in SETTLING and before.state in TERMINAL
    return before.blocked or by_flow


def _members(ledger: Ledger) -> Iterator[tuple[JobId, JobView]]:
    return ((job, view) for job, view in ledger.jobs.items() if view.flow is not None)


RULES_OF_FLOWS: list[type[Rule]] = [
    *(Placing, Starting, Adding, Deleting, Counting, Cancelling, Resting),
]
