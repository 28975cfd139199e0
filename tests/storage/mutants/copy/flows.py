"""Stores that lose something of flows when everything is moved."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from tests.storage.mutants.table import fails
from windlass._core.flows.flow import FlowRecord, PartKind, PartRecord
from windlass._core.job.job import FlowId, FlowPlace
from windlass._storage.memory.copy.copy import MemoryCopy
from windlass._storage.memory.flows.flows import MemoryFlows
from windlass._storage.memory.flows.rows import FlowRows, MemoryFlow
from windlass._storage.memory.io.rows import JobRow
from windlass._storage.protocol.copy import CopiedRecord, HeldMember, StoredJob
from windlass._storage.protocol.flows import FlowGraph
from windlass.testing.conformance import CopyFlowsConformance

# --- out --------------------------------------------------------------------------------------


@fails(
    CopyFlowsConformance.test_delay_and_expiry_of_blocked_members_count_from_their_turn_elsewhere
)
class DumpsNoDelay(MemoryCopy):
    """Blocked members forget when they were to be due."""

    def _held(self, row: JobRow) -> HeldMember | None:
        held = super()._held(row)
        return held and HeldMember(ended=held.ended)


@fails(CopyFlowsConformance.test_a_flow_whose_deletion_has_begun_stays_behind)
class DeletesFlowsAlone(MemoryFlows):
    """The jobs of a deleted flow stay, as plain jobs."""

    def _delete(self, flow: MemoryFlow) -> int:
        for seq in flow.members():
            self._db.rows[seq].flow = None
        self._db.flows.remove(flow)
        return 1


# --- in ---------------------------------------------------------------------------------------


@fails(CopyFlowsConformance.test_flows_are_elsewhere_what_they_were_here)
class RestoresWrongCounts(FlowRows):
    """Successes are not counted in restored parts."""

    def restore(self, record: FlowRecord, parts: Sequence[PartRecord]) -> None:
        super().restore(record, [replace(part, succeeded=0) for part in parts])


@fails(CopyFlowsConformance.test_a_flow_is_retried_elsewhere)
class RestoresStoppedAsCancelled(FlowRows):
    """Stopped members count as cancelled by a person, and no retry brings them back."""

    def restore(self, record: FlowRecord, parts: Sequence[PartRecord]) -> None:
        counted = [
            replace(part, stopped=0, cancelled=part.cancelled + part.stopped) for part in parts
        ]
        super().restore(record, counted)


@fails(CopyFlowsConformance.test_a_flow_continues_elsewhere_to_its_end)
class RestoresShutGates(FlowRows):
    """Restored parts wait for one part too many."""

    def restore(self, record: FlowRecord, parts: Sequence[PartRecord]) -> None:
        super().restore(record, parts)
        for part in self.by_id[record.id].parts:
            part.gate.waiting += 1


@fails(CopyFlowsConformance.test_a_cancel_reaches_the_rest_elsewhere)
class RestoresNoSweep(FlowRows):
    """A cancel that was under way does not continue."""

    def restore(self, record: FlowRecord, parts: Sequence[PartRecord]) -> None:
        super().restore(record, parts)
        self.sweeping.clear()


@fails(CopyFlowsConformance.test_a_sealed_flow_gets_its_last_jobs_elsewhere)
class RestoresOpenFlows(FlowRows):
    """A restored flow counts as whole."""

    def restore(self, record: FlowRecord, parts: Sequence[PartRecord]) -> None:
        super().restore(replace(record, sealed=False), parts)


@fails(CopyFlowsConformance.test_a_running_flow_holds_its_key_elsewhere)
class RestoresNoFlowKeys(FlowRows):
    """Restored flows hold no keys."""

    def restore(self, record: FlowRecord, parts: Sequence[PartRecord]) -> None:
        super().restore(record, parts)
        self.keys.clear()


@fails(CopyFlowsConformance.test_jobs_that_members_added_are_told_from_the_others_elsewhere)
class RestoresAddedAsGiven(MemoryCopy):
    """A restored member that another one added was given at the start."""

    def _join(self, row: JobRow, stored: StoredJob, place: FlowPlace) -> None:
        super()._join(row, stored, replace(place, added=False))


@fails(CopyFlowsConformance.test_a_flow_that_continued_is_not_set_back)
class RestoresFlowsAgain(MemoryCopy):
    """A flow that is stored is replaced."""

    def _restore_flow(self, graph: FlowGraph, now: datetime) -> bool:
        self._db.flows.restore(graph.flow, graph.parts)
        return True


@fails(CopyFlowsConformance.test_a_member_without_its_flow_is_refused)
class RestoresMembersAlone(MemoryCopy):
    """A member without its flow becomes a plain job."""

    def _require_flows(self, things: Sequence[CopiedRecord]) -> None:
        """Refuse nothing."""

    def _join(self, row: JobRow, stored: StoredJob, place: FlowPlace) -> None:
        """Join nothing."""


@fails(CopyFlowsConformance.test_an_added_flow_continues_elsewhere)
class RestoresAddedFlowsAlone(FlowRows):
    """The part of the job that added a flow is over without it."""

    def restore(self, record: FlowRecord, parts: Sequence[PartRecord]) -> None:
        super().restore(record, parts)
        for part in self.by_id[record.id].parts:
            part.gate.adding = 0


@fails(CopyFlowsConformance.test_a_flow_that_was_added_from_outside_continues_elsewhere)
class EndsRestoredFlowsEarly(FlowRows):
    """The end of a restored flow is over without what was added to it."""

    def restore(self, record: FlowRecord, parts: Sequence[PartRecord]) -> None:
        super().restore(record, parts)
        for part in self.by_id[record.id].parts:
            if part.asked.kind is PartKind.END:
                part.gate.adding = 0


@fails(CopyFlowsConformance.test_a_retry_reaches_the_rest_elsewhere)
class ForgetsRetries(FlowRows):
    """A restored flow does not know that it is being retried."""

    def resume_retry(self, wanted: FlowId, rank: int, now: datetime) -> None:
        pass


@fails(CopyFlowsConformance.test_a_flow_that_took_a_key_holds_it_elsewhere)
class GivesTheKeyToTheFirst(FlowRows):
    """The first restored flow with a key holds it, though it gave it up."""

    def free_key(self, flow: MemoryFlow) -> None:
        if not flow.sealed:
            super().free_key(flow)


@fails(CopyFlowsConformance.test_a_flow_that_waits_for_parts_continues_elsewhere)
class RestoresNoEdgesBetweenFlows(FlowRows):
    """What an added flow waits for in the running one is lost."""

    def restore(self, record: FlowRecord, parts: Sequence[PartRecord]) -> None:
        first = min((part.added.first for part in parts if part.added is not None), default=0)
        near = [
            replace(part, after=tuple(e for e in part.after if e.part >= first))
            if part.number >= first
            else part
            for part in parts
        ]
        super().restore(record, near)
