"""Bugs of flows, planted one at a time in worlds that have flows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from tests.simulation.mutants.jobs import Patch, mutant
from windlass._core.flows.flow import NewFlow
from windlass._core.flows.part import Decision, Tidings
from windlass._core.job.state import State, Verb
from windlass._storage.memory.flows.added import AddedFlows
from windlass._storage.memory.flows.flows import MemoryFlows
from windlass._storage.memory.flows.rows import FlowRows, MemoryFlow, MemoryPart
from windlass._storage.memory.flows.settle import FlowRules
from windlass._storage.memory.io.database import MemoryDatabase
from windlass._storage.memory.jobs.apply import ApplyRules
from windlass._storage.protocol.flows import StartedFlow
from windlass._storage.sqlite.flows import settle as sqlite_settle
from windlass._storage.sqlite.flows.parts import CountedPart


@mutant("memory", "F1 placing", flows=True)
def a_part_opens_with_the_first_end_before_it(patch: Patch) -> None:
    add = FlowRows.add

    def impatient(self: FlowRows, *asked: Any) -> MemoryFlow:
        flow = add(self, *asked)
        for part in flow.parts:
            part.gate.waiting = min(part.gate.waiting, 1)
        return flow

    patch(FlowRows, "add", impatient)


@mutant("memory", "F1 placing", first=12, flows=True)
def a_failure_does_not_matter_to_those_that_wait_for_it(patch: Patch) -> None:
    learn = MemoryPart.learn

    def lenient(self: MemoryPart, before: Tidings, after: Tidings, *, strict: bool) -> None:
        learn(self, before, after, strict=False)

    patch(MemoryPart, "learn", lenient)


@mutant("memory", "F2 counts", flows=True)
def a_requeued_member_still_counts_as_ended(patch: Patch) -> None:
    patch(MemoryDatabase, "bring_back", lambda self, row, now: None)


@mutant("memory", "F3 ends", flows=True)
def a_flow_that_continues_stays_ended(patch: Patch) -> None:
    end = FlowRows._end

    def once(self: FlowRows, flow: MemoryFlow, told: Tidings, now: datetime) -> None:
        if told.over:
            end(self, flow, told, now)

    patch(FlowRows, "_end", once)


@mutant("memory", "F4 blocked", flows=True)
def a_failure_stops_nothing(patch: Patch) -> None:
    look = FlowRows.look

    def forgetful(self: FlowRows, part: MemoryPart) -> None:
        look(self, part)
        if part.decision is Decision.STOP:
            self.due.pop((part.flow.asked.id, part.number), None)

    patch(FlowRows, "look", forgetful)


@mutant("memory", "F5 whole", flows=True)
def the_last_job_of_a_flow_is_not_stored(patch: Patch) -> None:
    start = MemoryFlows._start

    def shorter(self: MemoryFlows, asked: NewFlow, now: datetime) -> StartedFlow:
        return start(self, msgspec.structs.replace(asked, jobs=asked.jobs[:-1]), now)

    patch(MemoryFlows, "_start", shorter)


@mutant("memory", "F6 added", flows=True)
def what_a_member_adds_belongs_to_no_flow(patch: Patch) -> None:
    def outside(self: ApplyRules, row: Any, then: Sequence[Any], verb: Verb) -> None:
        for job in then:
            self.follow(job)

    patch(ApplyRules, "follow_all", outside)


@mutant("memory", "F3 ends", first=12, flows=True)
def a_flow_does_not_wait_for_the_flows_that_its_jobs_added(patch: Patch) -> None:
    patch(MemoryPart, "expect_flow", lambda self, more=1: None)
    patch(MemoryPart, "learn_added", lambda self, before, after: None)


@mutant("memory", "F6 added", flows=True)
def the_last_job_of_an_added_flow_is_not_stored(patch: Patch) -> None:
    join = AddedFlows.join

    def shorter(self: AddedFlows, asked: NewFlow, part: MemoryPart, now: datetime) -> None:
        join(self, msgspec.structs.replace(asked, jobs=asked.jobs[:-1]), part, now)

    patch(AddedFlows, "join", shorter)


@mutant("memory", "F7 cancelled flow", flows=True)
def a_cancel_reaches_running_members_only(patch: Patch) -> None:
    def sweep(self: FlowRules, flow: MemoryFlow, limit: int, now: datetime) -> int:
        for seq in flow.members():
            if self._db.rows[seq].state is State.RUNNING:
                self._db.rows[seq].request_cancel()
        del self._db.flows.sweeping[flow.asked.id]
        return 1

    patch(FlowRules, "_sweep", sweep)
    patch(MemoryPart, "is_cancelled", property(lambda part: False))


@mutant("memory", "F8 deletion", first=10, flows=True)
def callbacks_are_left_when_their_flow_is_deleted(patch: Patch) -> None:
    def delete(self: MemoryFlows, flow: MemoryFlow) -> int:
        self._db.flows.remove(flow)
        for seq in flow.members():
            self._db.remove(self._db.rows[seq])
        return len(flow.members())

    patch(MemoryFlows, "_delete", delete)


@mutant("sqlite", "F1 placing", first=3, flows=True)
def a_file_lets_a_failure_pass(patch: Patch) -> None:
    learn = CountedPart.learn

    def lenient(self: CountedPart, before: Tidings, after: Tidings, *, strict: bool) -> None:
        learn(self, before, after, strict=False)

    patch(CountedPart, "learn", lenient)


@mutant("sqlite", "F2 counts", flows=True)
def placed_jobs_of_a_file_count_as_blocked(patch: Patch) -> None:
    patch.sql(sqlite_settle, "flow_state = NULL\n WHERE seq IN", "flow_state = 1\n WHERE seq IN")
