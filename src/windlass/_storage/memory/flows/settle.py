"""Settling: what becomes of the blocked jobs of parts that are due, and of cancelled flows."""

from __future__ import annotations

from datetime import datetime
from itertools import islice

from windlass._core.flows.flow import FlowState
from windlass._core.flows.part import Decision, MemberEnd, coming_back
from windlass._core.job.state import State
from windlass._storage.memory.flows.rows import MemoryFlow, MemoryPart
from windlass._storage.memory.io.database import MemoryDatabase
from windlass._storage.memory.io.rows import JobRow

__all__ = ["FlowRules"]

_REOPENED = 100
"""Members that one retry blocks again at once. The others follow by `FlowRules.settle`."""


class FlowRules:
    """The rules of `FlowStore.settle`. Runs under the database's lock."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._db = database

    def settle(self, limit: int, now: datetime) -> int:
        """Settle up to ``limit`` jobs, under the database's lock."""
        done = 0
        late = (flow for flow in self._db.flows.running() if _is_late(flow, now))
        for flow in [*islice(late, limit)]:
            self.cancel(flow, now)
        while done < limit and self._db.flows.sweeping:
            done += self._sweep(next(iter(self._db.flows.sweeping.values())), limit - done, now)
        while done < limit and self._db.flows.due:
            done += self.settle_part(self.next_part(), limit - done, now)
        return done

    def next_part(self) -> MemoryPart:
        """Return the due part to settle, in the order of the graph: what a part before it blocks
        again must not be passed.
        """
        return min(self._db.flows.due.values(), key=lambda due: (due.flow.number, due.rank))

    def settle_part(self, part: MemoryPart, limit: int, now: datetime) -> int:
        """Do what the part's numbers say with up to ``limit`` of its jobs."""
        decision = part.decision
        back = [seq for end in coming_back(decision) for seq in part.settled(end)][:limit]
        if back:
            for seq in back:
                self._block_again(part, self._db.rows[seq], now)
            return len(back)
        if decision is Decision.WAIT:
            return 0
        blocked = [*part.blocked][:limit]
        for seq in blocked:
            row = self._db.rows[seq]
            if decision is Decision.OPEN:
                part.unblock(seq)
                self._db.unblock(row, part.flow.created_at, now)
            else:
                ended = MemberEnd.STOPPED if decision is Decision.STOP else MemberEnd.SKIPPED
                row.explain(_reason(part, ended))
                state = State.CANCELLED if ended is MemberEnd.STOPPED else State.DISCARDED
                self._db.finish(row, state, now, ended)
        self._db.flows.look(part)
        return len(blocked)

    def reopen(self, flow: MemoryFlow, now: datetime) -> None:
        """Let a retried flow run from this write on: block at least one of its members again."""
        while flow.state is not FlowState.RUNNING:
            due = next((part for part in flow.in_order() if part.is_due), None)
            if due is None:
                return  # the keys of all its members are held by others
            self.settle_part(due, _REOPENED, now)

    def _block_again(self, part: MemoryPart, row: JobRow, now: datetime) -> None:
        unique = row.asked.unique
        holder = None if unique is None else self._db.holder(unique.key, now)
        ended = MemberEnd.STOPPED if row.seq in part.stopped else MemberEnd.SKIPPED
        part.count(row.seq, ended, -1)
        if holder is not None and holder is not row:
            # Its key was taken meanwhile: it stays cancelled, as a failure of its own.
            part.count(row.seq, MemberEnd.CANCELLED, 1)
            row.explain(f"its key is held by job {holder.asked.id}")
        else:
            row.requeue()
            if holder is None:
                self._db.take_key(row, now)
            self._db.block(row)
            part.block(row.seq)
        self._db.flows.spread(part, now)

    def _sweep(self, flow: MemoryFlow, limit: int, now: datetime) -> int:
        """Cancel members that wait, and ask the workers of running ones."""
        members = flow.members()
        some = members[flow.swept : flow.swept + limit]
        for seq in some:
            row = self._db.rows[seq]
            if row.state is State.RUNNING:
                row.request_cancel()
            elif row.state is State.WAITING and not row.blocked:
                self._db.finish(row, State.CANCELLED, now)
        flow.sweep(flow.swept + len(some))
        if flow.swept == len(members):
            self._db.flows.sweeping.pop(flow.asked.id, None)
        return max(len(some), 1)

    def cancel(self, flow: MemoryFlow, now: datetime) -> None:
        """Mark a flow. Its members follow in portions."""
        flow.mark_cancelled(cancelled=True)
        self._db.flows.retrying.pop(flow.asked.id, None)
        self._db.flows.sweeping[flow.asked.id] = flow
        if flow.sealed:  # it never runs
            self._db.flows.free_key(flow)
        for part in flow.parts:
            self._db.flows.spread(part, now)


def _reason(part: MemoryPart, ended: MemberEnd) -> str:
    if ended is MemberEnd.SKIPPED:
        return "not needed"
    if part.flow.cancelled:
        return "its flow was cancelled"
    for edge in part.asked.after:
        before = part.flow.parts[edge.part]
        if edge.strict and before.told.broken:
            return f"after {before.asked.name}, which failed"
    return "what it waits for failed"


def _is_late(flow: MemoryFlow, now: datetime) -> bool:
    return flow.expires_at is not None and flow.expires_at <= now and not flow.cancelled
