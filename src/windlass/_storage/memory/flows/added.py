"""Storing the members of flows, and the flows that successes add."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from windlass._core.flows.flow import NewFlow, PartKind
from windlass._core.flows.part import rank_of
from windlass._core.flows.plan import parts_to_add
from windlass._core.job.job import FlowPlace, NewJob
from windlass._storage.memory.flows.rows import MemoryFlow, MemoryPart
from windlass._storage.memory.flows.settle import FlowRules
from windlass._storage.memory.io.database import MemoryDatabase

__all__ = ["AddedFlows", "add_jobs", "open_flow"]


def add_jobs(
    database: MemoryDatabase,
    flow: MemoryFlow,
    jobs: Sequence[tuple[int, NewJob]],
    now: datetime,
) -> None:
    """Store jobs, all of them blocked, each with the number of its part."""
    for number, job in jobs:
        part = flow.parts[number]
        row = database.add_member(job, FlowPlace(flow.asked.id, number), now)
        part.members.append(row.seq)
        part.counts.add("total", 1)
        part.counts.add("open", 1)
        part.block(row.seq)


def open_flow(database: MemoryDatabase, rules: FlowRules, flow: MemoryFlow, now: datetime) -> None:
    """Do what follows from the graph of a new flow alone."""
    for part in flow.parts:
        database.flows.spread(part, now)
    for part in flow.parts:
        if not part.asked.after and not flow.sealed:
            rules.settle_part(part, len(part.members), now)


class AddedFlows:
    """Stores the flows that successes add. Runs under the database's lock."""

    def __init__(self, database: MemoryDatabase, rules: FlowRules) -> None:
        self._db = database
        self._rules = rules

    def add(self, asked: NewFlow, part: MemoryPart | None, now: datetime) -> bool:
        """Store a flow; False: it was left out. With the part of a member, it joins that flow.
        For a callback, a new flow starts.
        """
        if self._is_left_out(asked, part):
            return False
        if part is None or part.asked.kind is PartKind.CALLBACK:
            self._start(asked, now)
        else:
            self.join(asked, part, now)
        return True

    def _is_left_out(self, asked: NewFlow, part: MemoryPart | None) -> bool:
        rows = self._db.flows
        known = asked.id in rows.by_id or asked.id in rows.added
        held = asked.key is not None and asked.key in rows.keys
        stored = any(job.id in self._db.by_id for _, job in asked.jobs)
        return known or held or stored or (part is not None and part.is_cancelled)

    def _start(self, asked: NewFlow, now: datetime) -> None:
        flow = self._db.flows.add(asked, now)
        add_jobs(self._db, flow, asked.jobs, now)
        open_flow(self._db, self._rules, flow, now)

    def join(self, asked: NewFlow, part: MemoryPart, now: datetime) -> None:
        """Let the parts of a flow join another one. All of its jobs are blocked at first."""
        flow, first = part.flow, len(part.flow.parts)
        parts = parts_to_add(asked, first, part.number)
        before = 0 if part.asked.kind is PartKind.END else first
        ranks = [rank_of(new.kind, number, before) for number, new in enumerate(parts, first)]
        self._db.flows.append(flow, parts, ranks)
        add_jobs(self._db, flow, [(first + number, job) for number, job in asked.jobs], now)
        for new in flow.parts[first:]:
            self._db.flows.spread(new, now)
