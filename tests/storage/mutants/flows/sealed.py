"""Stores that handle flows in several writes wrongly: too early, in pieces, twice, or for ever."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from tests.storage.mutants.table import fails
from windlass._core.flows.flow import SEALED_KEEPS_KEY, NewFlow
from windlass._core.job.job import FlowId, NewJob
from windlass._storage.memory.admin.actions import MemoryActions
from windlass._storage.memory.flows.flows import MemoryFlows
from windlass._storage.memory.flows.rows import FlowRows, MemoryFlow, MemoryPart
from windlass._storage.memory.flows.settle import FlowRules
from windlass._storage.memory.io.rows import JobRow
from windlass._storage.protocol.actions import ActionResult
from windlass._storage.protocol.flows import StartedFlow
from windlass.testing.conformance import FlowSealConformance

Slice = Sequence[tuple[int, NewJob]]


@fails(FlowSealConformance.test_a_sealed_flow_starts_nothing_before_its_last_jobs)
class StartsWhatIsThere(MemoryFlows):
    """The first jobs of a sealed flow start with the first write."""

    async def start(self, flows: Sequence[NewFlow]) -> Sequence[StartedFlow]:
        return await super().start([replace(flow, sealed=False) for flow in flows])


@fails(FlowSealConformance.test_the_jobs_of_all_slices_are_read_in_the_order_given)
class AddsInFront(MemoryFlows):
    """Later jobs of a part stand before the earlier ones."""

    def _add_jobs(self, flow: MemoryFlow, jobs: Slice, now: datetime) -> None:
        super()._add_jobs(flow, jobs, now)
        for part in flow.parts:
            part.members.reverse()


@fails(FlowSealConformance.test_a_repeated_slice_stores_nothing_more)
class RefusesRepeats(MemoryFlows):
    """A slice that was stored before is refused."""

    async def extend(self, flow: FlowId, jobs: Slice, *, last: bool) -> bool:
        known = any(job.id in self._db.by_id for _, job in jobs)
        return not known and await super().extend(flow, jobs, last=last)


@fails(FlowSealConformance.test_a_slice_is_stored_whole_or_not_at_all)
class StoresUpToTheConflict(MemoryFlows):
    """What comes before a job that cannot be stored is stored."""

    async def extend(self, flow: FlowId, jobs: Slice, *, last: bool) -> bool:
        for job in jobs:
            await super().extend(flow, [job], last=False)
        return await super().extend(flow, [], last=last) if last else True


@fails(FlowSealConformance.test_an_empty_last_slice_opens_the_flow)
class IgnoresEmptySlices(MemoryFlows):
    """A slice without jobs does nothing."""

    async def extend(self, flow: FlowId, jobs: Slice, *, last: bool) -> bool:
        return not jobs or await super().extend(flow, jobs, last=last)


@fails(FlowSealConformance.test_a_flow_that_was_never_whole_is_not_retried)
class RetriesHalves(MemoryFlows):
    """A flow that was never whole is retried."""

    def _retry(self, flow: MemoryFlow, now: datetime) -> ActionResult:
        flow.unseal(now)
        return super()._retry(flow, now)


@fails(FlowSealConformance.test_a_cancelled_sealed_flow_ends_and_takes_no_more_jobs)
class WaitsForTheRest(FlowRules):
    """A cancelled flow waits for jobs that will not come."""

    def cancel(self, flow: MemoryFlow, now: datetime) -> None:
        if flow.sealed:
            flow.mark_cancelled(cancelled=True)
        else:
            super().cancel(flow, now)


@fails(
    FlowSealConformance.test_a_cancelled_job_of_a_sealed_flow_ends_nothing_before_the_flow_is_whole
)
class EndsInPieces(FlowRows):
    """The end of the first jobs of a sealed flow is the end of their part."""

    def spread(self, part: MemoryPart, now: datetime) -> None:
        sealed, part.flow.sealed = part.flow.sealed, False
        super().spread(part, now)
        part.flow.sealed = sealed


@fails(FlowSealConformance.test_a_requeued_job_of_a_sealed_flow_waits_for_the_rest)
class RequeuesIntoSealedFlows(MemoryActions):
    """A requeued job of a sealed flow is placed."""

    def requeue_one(self, row: JobRow, now: datetime) -> ActionResult:
        answer = super().requeue_one(row, now)
        if row.blocked and answer is ActionResult.DONE:
            self._db.part_of(row).unblock(row.seq)
            self._db.unblock(row, now, now)
        return answer


@fails(FlowSealConformance.test_a_sealed_flow_that_gets_no_more_jobs_is_cancelled)
class KeepsHalvesForEver(MemoryFlows):
    """A sealed flow has all the time it wants."""

    async def extend(self, flow: FlowId, jobs: Slice, *, last: bool) -> bool:
        taken = await super().extend(flow, jobs, last=last)
        if taken and not last:
            self._db.flows.by_id[flow].extend(self._db.clock.now() + timedelta(days=1))
        return taken


@fails(FlowSealConformance.test_the_expiry_of_a_sealed_flow_counts_from_its_last_jobs)
class CountsFromTheStart(MemoryFlows):
    """A sealed flow expires by its first write."""

    def _unseal(self, flow: MemoryFlow, now: datetime) -> None:
        super()._unseal(flow, now)
        flow.unseal(flow.created_at)


@fails(FlowSealConformance.test_a_flow_without_expiry_does_not_expire_once_it_is_whole)
class KeepsTheHour(MemoryFlows):
    """A flow that is whole still expires like a sealed one."""

    def _unseal(self, flow: MemoryFlow, now: datetime) -> None:
        super()._unseal(flow, now)
        flow.extend(now)


@fails(FlowSealConformance.test_an_unknown_flow_is_not_extended)
class StoresStrays(MemoryFlows):
    """Jobs of an unknown flow are stored without it."""

    async def extend(self, flow: FlowId, jobs: Slice, *, last: bool) -> bool:
        if flow not in self._db.flows.by_id:
            with self._db.moment() as now:
                for _, job in jobs:
                    self._db.add(replace(job), now)
        return await super().extend(flow, jobs, last=last)


@fails(FlowSealConformance.test_another_flow_takes_the_key_of_one_that_gets_no_more_jobs)
class KeepsItsKey(MemoryFlows):
    """A sealed flow keeps its key until it is cancelled."""

    def _stored(self, flow: NewFlow, now: datetime) -> StartedFlow | None:
        return super()._stored(flow, now - timedelta(days=1))


@fails(FlowSealConformance.test_the_flow_that_took_the_key_holds_it)
class TakesTheKeyBack(FlowRules):
    """The flow that gave its key up takes it again while it ends."""

    def _sweep(self, flow: MemoryFlow, limit: int, now: datetime) -> int:
        if flow.sealed and flow.asked.key is not None:
            self._db.flows.keys[flow.asked.key] = flow
        return super()._sweep(flow, limit, now)


@fails(FlowSealConformance.test_each_slice_keeps_the_key_for_a_minute)
class CountsFromTheFirstSlice(MemoryFlows):
    """Only the first jobs of a sealed flow count for its key."""

    def _stored(self, flow: NewFlow, now: datetime) -> StartedFlow | None:
        holder = None if flow.key is None else self._db.flows.keys.get(flow.key)
        if holder is not None and holder.sealed and now - holder.created_at >= SEALED_KEEPS_KEY:
            return None
        return super()._stored(flow, now)


@fails(FlowSealConformance.test_a_repeated_start_takes_no_key)
class TakesItsOwnKey(MemoryFlows):
    """A repeated start cancels what the first one has stored."""

    def _start(self, asked: NewFlow, now: datetime) -> StartedFlow:
        holder = None if asked.key is None else self._db.flows.keys.get(asked.key)
        if holder is not None and holder.gives_key_up(now):
            self._rules.cancel(holder, now)
        return super()._start(asked, now)


@fails(FlowSealConformance.test_one_that_is_cancelled_gives_its_key_up_at_once)
class KeepsItsKeyToTheEnd(FlowRules):
    """A cancelled flow holds its key until all its jobs have ended."""

    def cancel(self, flow: MemoryFlow, now: datetime) -> None:
        super().cancel(flow, now)
        if flow.asked.key is not None:
            self._db.flows.keys[flow.asked.key] = flow
