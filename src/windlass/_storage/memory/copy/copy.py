"""Everything out of one storage and into another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from itertools import islice
from typing import Literal, assert_never

from msgspec.structs import replace

from windlass._core.job.job import FlowPlace
from windlass._core.job.state import State
from windlass._core.job.unique import OnConflict
from windlass._core.limits.limit import lane_key
from windlass._core.stats.rollup import Rollup
from windlass._storage.memory.io.database import MemoryDatabase
from windlass._storage.memory.io.rollups import RollupRow
from windlass._storage.memory.io.rows import JobRow, LastClaim, QueueRow
from windlass._storage.protocol.actions import AuditRecord
from windlass._storage.protocol.copy import CopiedRecord, HeldMember, StoredJob
from windlass._storage.protocol.flows import FlowGraph
from windlass._storage.protocol.journal import EventRecord
from windlass._storage.protocol.limits import LimitState
from windlass._storage.protocol.queues import QueueRecord
from windlass._storage.shared.restored_job import asked_of, require_flows
from windlass.errors import LimitUnknown

__all__ = ["MemoryCopy"]


class MemoryCopy:
    """A `CopyStore`."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._db = database

    # --- out ----------------------------------------------------------------------------------

    async def dump(self, *, after: int, limit: int) -> Sequence[StoredJob]:
        with self._db.view() as now:
            further = (row for row in self._db.rows.values() if row.seq > after)
            return [self._dumped(row, now) for row in islice(further, limit)]

    def _dumped(self, row: JobRow, now: datetime) -> StoredJob:
        held, unique = self._db.holds_key(row, now), row.asked.unique
        return StoredJob(
            job=row.to_job(key_held=held),
            # The behaviour on a conflict is over and is not stored.
            unique=unique and replace(unique, on_conflict=OnConflict.REUSE),
            key_until=row.key_until if held else None,
            ended=row.ended,
            held=self._held(row),
            history=tuple(row.history),
            logs=tuple(chunk for _, chunk in self._db.diary.chunks(row.seq)),
        )

    def _held(self, row: JobRow) -> HeldMember | None:
        if row.flow is None:
            return None
        part, asked = self._db.part_of(row), row.asked
        ended: Literal["stopped", "skipped"] | None = None
        if row.seq in part.stopped or row.seq in part.skipped:
            ended = "stopped" if row.seq in part.stopped else "skipped"
        elif not row.blocked:
            return None
        return HeldMember(ended=ended, at=asked.at, delay=asked.delay, expires=asked.expires)

    async def dump_flows(self, *, after: int, limit: int) -> Sequence[FlowGraph]:
        with self._db.view():
            further = (flow for flow in self._db.flows.by_id.values() if flow.number > after)
            return [
                FlowGraph(
                    flow.to_record(),
                    [part.to_record() for part in flow.parts],
                    None if flow.retry is None else flow.retry[0],
                )
                for flow in islice(further, limit)
            ]

    # --- in -----------------------------------------------------------------------------------

    async def restore(self, things: Sequence[CopiedRecord]) -> int:
        with self._db.moment() as now:
            self._require_limits(things)
            self._require_flows(things)
            new = sum(self._restore(thing, now) for thing in things)
        self._db.wake()
        return new

    def _require_limits(self, things: Sequence[CopiedRecord]) -> None:
        """Refuse records that count against undefined limits, before anything is stored."""
        specs = self._db.gates.specs
        for thing in things:
            names: list[str] = []
            if isinstance(thing, StoredJob):
                names = [use.name for use in thing.job.limits]
            elif isinstance(thing, LimitState):
                names = [thing.name]
            for name in names:
                if name not in specs:
                    raise LimitUnknown(name, specs)

    def _require_flows(self, things: Sequence[CopiedRecord]) -> None:
        """Refuse members whose flows are neither here nor among these, before anything is
        stored.
        """
        known = {*self._db.flows.by_id}
        known |= {thing.flow.id for thing in things if isinstance(thing, FlowGraph)}
        require_flows(things, known)

    def _restore(self, thing: CopiedRecord, now: datetime) -> bool:
        """Store one thing; False: it was here already."""
        match thing:
            case StoredJob():
                return self._restore_job(thing, now)
            case FlowGraph():
                return self._restore_flow(thing, now)
            case Rollup():
                return self._restore_rollup(thing)
            case QueueRecord():
                return self._restore_queue(thing)
            case LimitState():
                return self._db.gates.restore(thing)
            case AuditRecord():
                return self._db.audits.restore(thing)
            case EventRecord():
                return self._restore_event(thing)
            case _:
                assert_never(thing)

    def _restore_job(self, stored: StoredJob, now: datetime) -> bool:
        if stored.job.id in self._db.by_id:
            return False
        row = _row(stored)
        self._db.keep(row)
        self._restore_key(row, stored, now)
        if stored.job.flow is not None:
            self._join(row, stored, stored.job.flow)
        if row.state is State.WAITING and not row.blocked:
            self._db.stand(row, row.due, now)
        elif row.state is State.RUNNING:
            self._db.running[row.seq] = row
        for chunk in stored.logs:
            moved = replace(chunk, claim=replace(chunk.claim, seq=row.seq))
            self._db.diary.keep_chunk(row.seq, moved)
        return True

    def _join(self, row: JobRow, stored: StoredJob, place: FlowPlace) -> None:
        held = None if stored.held is None else stored.held.ended or "blocked"
        self._db.flows.by_id[place.flow].parts[place.part].take(row.seq, held)
        row.join(place)
        if held == "blocked":
            row.block()

    def _restore_flow(self, graph: FlowGraph, now: datetime) -> bool:
        if graph.flow.id in self._db.flows.by_id:
            return False
        self._db.flows.restore(graph.flow, graph.parts)
        if graph.retried is not None:
            self._db.flows.resume_retry(graph.flow.id, graph.retried, now)
        return True

    def _restore_key(self, row: JobRow, stored: StoredJob, now: datetime) -> None:
        """Give the job its key again, unless another job here took it."""
        unique = stored.unique
        if unique is not None and stored.job.key_held and not self._db.holder(unique.key, now):
            self._db.keys[unique.key] = row
            row.hold_key(stored.key_until)

    def _restore_rollup(self, rollup: Rollup) -> bool:
        key = (rollup.minute, rollup.queue, rollup.task)
        new = key not in self._db.copied
        self._db.copied[key] = RollupRow(
            Counter(rollup.counts), Counter(rollup.wait), Counter(rollup.run)
        )
        return new

    def _restore_queue(self, record: QueueRecord) -> bool:
        row = QueueRow(
            settings=record.settings,
            paused=record.paused,
            cool_until=record.cool_until,
            cool_downs=record.cool_downs,
        )
        new = row != self._db.queues[record.queue]
        self._db.queues[record.queue] = row
        return new

    def _restore_event(self, event: EventRecord) -> bool:
        row = self._db.by_id.get(event.job)
        if row is None or self._db.diary.has_event(row.seq, event):
            return False
        self._db.diary.keep_event(row.seq, event)
        return True


def _row(stored: StoredJob) -> JobRow:
    """Return the job as it was, but for its number."""
    job = stored.job
    row = JobRow(
        asked=asked_of(stored),
        created_at=job.created_at,
        due=job.due,
        max_attempts=job.max_attempts,
        lane_limits=lane_key(job.limits),
        expires_at=job.expires_at,
        key_spent=not job.key_held,
        state=job.state,
        attempt=job.attempt,
        claim_number=job.claim_number,
        ended=None if stored.ended is None else LastClaim(*stored.ended),
        worker=job.worker or "",
        started_at=job.started_at or job.created_at,
        finished_at=job.finished_at,
        result=job.result,
        reason=job.reason,
        cancel_requested=job.cancel_requested,
        lost=job.lost,
        solo=job.solo,
        missed_at=job.missed_at,
        missed_why=job.missed_why,
        throttled=job.throttled,
        progress=job.progress,
        metadata=job.metadata,
        history=[*stored.history],
    )
    row.blame(job.error)
    return row
