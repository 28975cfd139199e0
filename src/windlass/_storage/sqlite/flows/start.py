"""Storing flows with their parts and jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby

import apsw
import msgspec

from windlass._core.flows.flow import (
    SEALED_FOR,
    SEALED_KEEPS_KEY,
    NewFlow,
    NewPart,
    PartKind,
    PartRecord,
)
from windlass._core.flows.part import Decision, Gate, decide, ranks_of
from windlass._core.job.job import FlowId, JobId, NewJob
from windlass._core.values.instants import LAST_US, add_clamped_us, span_us, to_us
from windlass._storage.protocol.copy import HeldMember
from windlass._storage.protocol.flows import StartedFlow
from windlass._storage.shared.job_ids import id_of
from windlass._storage.shared.sql_files import load_sql
from windlass._storage.sqlite.flows.parts import BLOCKED, PartChanges
from windlass._storage.sqlite.flows.settle import cancel_flow
from windlass._storage.sqlite.io.rows import NEVER, Row, fetch, first, ids_text, value_of
from windlass._storage.sqlite.io.wide_statement import WideStatement
from windlass._storage.sqlite.jobs.insert import (
    full_row,
    is_plain,
    plain_rows,
    require_limits,
)
from windlass._storage.sqlite.jobs.unique_keys import find_holder, take_key
from windlass._storage.sqlite.limits.lanes import LaneChanges
from windlass.errors import IdConflict, KeyConflict

__all__ = [
    "Members",
    "add_edges",
    "add_parts",
    "added_values",
    "extend_flow",
    "find_stored",
    "start_flow",
    "start_flows",
    "stored_kind",
    "timing_text",
]

_SQL = load_sql("windlass._storage.sqlite.sql", "flows.sql")
_STORED, _HOLDER, _LAST_SEQ, _OLDER_ID = (
    _SQL["stored"],
    _SQL["holder"],
    _SQL["last_seq"],
    _SQL["older_id"],
)
_GIVEN_UP = _SQL["given_up"]
_ADD_FLOW, _ADD_PART, _ADD_EDGE = _SQL["add_flow"], _SQL["add_part"], _SQL["add_edge"]
_NOTE_LAST, _PART_IDS = _SQL["note_last"], _SQL["part_ids"]
_EXTENDED, _ANY_STORED, _COUNT_NEW = _SQL["extended"], _SQL["any_stored"], _SQL["count_new"]
_NOTE_EXTENDED = _SQL["note_extended"]
_INSERT = WideStatement(_SQL["insert_member"])
_INSERT_PLAIN = WideStatement(_SQL["insert_plain_member"])

_encode = msgspec.json.Encoder().encode


def start_flows(
    connection: apsw.Connection, now: int, flows: Sequence[NewFlow]
) -> list[StartedFlow]:
    """`FlowStore.start` at the instant ``now``."""
    lanes = LaneChanges(connection)
    answers: list[StartedFlow] = []
    for flow in flows:
        stored = find_stored(connection, flow)
        if stored is not None and not stored.created and _gives_up(connection, flow.key, now):
            stored = None
        if stored is None:
            start_flow(connection, flow, lanes, now)
        answers.append(stored or StartedFlow(flow.id, created=True))
    lanes.settle()
    return answers


def find_stored(connection: apsw.Connection, flow: NewFlow) -> StartedFlow | None:
    """Return the answer to a flow that is not to be stored."""
    if first(connection, _STORED, (id_of(JobId(flow.id)),)) is not None:
        return StartedFlow(flow.id, created=True, repeated=True)
    holder = None if flow.key is None else value_of(connection, _HOLDER, (flow.key,))
    return None if holder is None else StartedFlow(FlowId(holder), created=False)


def _gives_up(connection: apsw.Connection, key: str | None, now: int) -> bool:
    """Cancel the holder of a flow's key if the rest of it does not come; whether it was so."""
    late = now + span_us(SEALED_FOR) - span_us(SEALED_KEEPS_KEY)
    holder = first(connection, _GIVEN_UP, (key, late))
    if holder is None:
        return False
    cancel_flow(connection, holder[0], now)
    return True


def start_flow(connection: apsw.Connection, flow: NewFlow, lanes: LaneChanges, now: int) -> None:
    """Store a flow that is new, with its parts and jobs."""
    require_limits(connection, [job for _, job in flow.jobs])
    expires = None if flow.expires is None else min(span_us(flow.expires), LAST_US)
    expires_at = _us_after(now, span_us(SEALED_FOR) if flow.sealed else expires)
    flow_id = id_of(JobId(flow.id))
    about = (flow_id, flow.name, now, expires_at, expires, flow.key, flow.tenant, flow.sealed)
    connection.execute(_ADD_FLOW, about)
    number = connection.last_insert_rowid()
    open_ = [not flow.sealed and _is_open(part) for part in flow.parts]
    add_parts(connection, number, flow, open_, ranks_of(flow.parts))
    ids = [part for (part,) in fetch(connection, _PART_IDS, (number,))]
    members = Members(connection, lanes, now)
    members.store_all(flow.jobs, ids, open_)
    connection.execute(_NOTE_LAST, (number,))
    with_jobs = {part for part, _ in flow.jobs}
    changes = PartChanges(connection, now)
    changes.touch(
        ids[n] for n, part in enumerate(flow.parts) if n not in with_jobs or not part.after
    )
    changes.store()


def _is_open(part: NewPart) -> bool:
    """Return whether its jobs are placed with the start of the flow."""
    if part.after:
        return False
    return decide(part.kind, part.when, Gate()) is Decision.OPEN


def extend_flow(
    connection: apsw.Connection,
    now: int,
    wanted: FlowId,
    jobs: Sequence[tuple[int, NewJob]],
    *,
    last: bool,
) -> bool:
    """`FlowStore.extend` at the instant ``now``."""
    found = first(connection, _EXTENDED, (id_of(JobId(wanted)),))
    if found is None:
        return False
    number, sealed, cancelled, expires = found
    if any(value_of(connection, _ANY_STORED, (id_of(job.id),)) for _, job in jobs[:1]):
        return True  # a repeated call
    if cancelled or not sealed:
        return not cancelled
    require_limits(connection, [job for _, job in jobs])
    ids = [part for (part,) in fetch(connection, _PART_IDS, (number,))]
    Members(connection, LaneChanges(connection), now).store_all(jobs, ids, [False] * len(ids))
    counted = Counter(part for part, _ in jobs)
    connection.executemany(_COUNT_NEW, [(ids[part], more) for part, more in counted.items()])
    connection.execute(_NOTE_LAST, (number,))
    if last:
        connection.execute(_NOTE_EXTENDED, (number, _us_after(now, expires), False))
        changes = PartChanges(connection, now)
        changes.touch(ids)
        changes.store()
    else:
        connection.execute(_NOTE_EXTENDED, (number, _us_after(now, span_us(SEALED_FOR)), True))
    return True


def _us_after(now: int, span: int | None) -> int | None:
    return None if span is None else add_clamped_us(now, span)


def add_parts(
    connection: apsw.Connection,
    number: int,
    flow: NewFlow,
    open_: Sequence[bool],
    ranks: Sequence[int],
    *,
    start: int = 0,
) -> None:
    """Store the parts of a flow, numbered from ``start`` on. Its jobs name them from 0 on."""
    totals = [0] * len(flow.parts)
    for part, _ in flow.jobs:
        totals[part] += 1
    connection.executemany(
        _ADD_PART,
        [
            (
                *(number, start + n, part.name, stored_kind(part), part.task, part.when),
                *(totals[n], 0 if open_[n] else totals[n], len(part.after), ranks[n]),
                *added_values(part),
                0 if start else None,
            )
            for n, part in enumerate(flow.parts)
        ],
    )
    add_edges(connection, number, flow.parts, start=start)


def stored_kind(part: NewPart | PartRecord) -> str:
    """Return the kind of a part as it is stored."""
    return PartKind.JOIN.value if part.kind is PartKind.ADDED else part.kind.value


def added_values(part: NewPart | PartRecord) -> Row:
    """Return the columns of a part that say which added flow it is the join of."""
    added = part.added
    if added is None:
        return (None, None, None)
    return (id_of(JobId(added.id)), added.first, added.counts_for)


def add_edges(
    connection: apsw.Connection,
    number: int,
    parts: Sequence[NewPart | PartRecord],
    *,
    start: int = 0,
) -> None:
    """Store what the parts of a flow wait for. They are numbered from ``start`` on."""
    connection.executemany(
        _ADD_EDGE,
        [
            (number, n, edge.part, int(edge.strict))
            for n, part in enumerate(parts, start)
            for edge in part.after
        ],
    )


def _refuse(connection: apsw.Connection, jobs: Sequence[NewJob], before: int) -> None:
    """Name an id that was stored before, or that two jobs of the call have."""
    seen: set[str] = set()
    for job in jobs:
        if job.id in seen:
            raise IdConflict(job.id)
        seen.add(job.id)
    stored = value_of(connection, _OLDER_ID, (ids_text(job.id for job in jobs), before))
    raise IdConflict(JobId(stored))


class Members:
    """Stores jobs in the order given. Neighbours of one kind share a statement."""

    def __init__(self, connection: apsw.Connection, lanes: LaneChanges, now: int) -> None:
        self._connection, self._lanes, self._now = connection, lanes, now
        self.stored: int = 0

    def store_all(
        self, jobs: Sequence[tuple[int, NewJob]], parts: Sequence[int], open_: Sequence[bool]
    ) -> None:
        """Store jobs of a flow, each with the number of its part, or raise IdConflict."""
        before = value_of(self._connection, _LAST_SEQ)
        for part, some in groupby(jobs, key=lambda one: one[0]):
            self.store([job for _, job in some], parts[part], blocked=not open_[part])
        if self.stored < len(jobs):
            _refuse(self._connection, [job for _, job in jobs], before)

    def store(self, jobs: Sequence[NewJob], part: int, *, blocked: bool) -> None:
        """Store jobs of one part."""
        for plain, run in groupby(jobs, is_plain):
            some, before = list(run), self._connection.total_changes()
            if plain:
                rows = self._plain_rows(some, part, blocked=blocked)
                _INSERT_PLAIN.run(self._connection, rows)
                self.stored += self._connection.total_changes() - before
            else:
                self._store_full(some, part, blocked=blocked)

    def _plain_rows(self, jobs: Sequence[NewJob], part: int, *, blocked: bool) -> list[Row]:
        rows = plain_rows(jobs, self._now)
        if not blocked:
            return [(*row, part, None, None) for row in rows]
        return [
            (*row[:3], 0, row[4], NEVER, *row[6:], part, BLOCKED, timing_text(job))
            for job, row in zip(jobs, rows, strict=True)
        ]

    def _store_full(self, jobs: Sequence[NewJob], part: int, *, blocked: bool) -> None:
        for keyed, run in groupby(jobs, lambda job: job.unique is not None):
            some = list(run)
            if keyed:
                for job in some:
                    self._store_keyed(job, part, blocked=blocked)
                continue
            before = self._connection.total_changes()
            rows = [self._row(job, part, blocked=blocked) for job in some]
            _INSERT.run(self._connection, rows)
            self.stored += self._connection.total_changes() - before

    def _row(self, job: NewJob, part: int, *, blocked: bool) -> Row:
        row = full_row(job, None if blocked else self._lanes, self._now)
        return (*row, part, BLOCKED if blocked else None, timing_text(job) if blocked else None)

    def _store_keyed(self, job: NewJob, part: int, *, blocked: bool) -> None:
        unique = job.unique
        if unique is None:
            return
        holder = find_holder(self._connection, unique.key, self._now)
        if holder is not None:
            raise KeyConflict(unique.key, JobId(holder.id.hex()))
        self._connection.execute(_INSERT.one, self._row(job, part, blocked=blocked))
        if self._connection.changes():
            self.stored += 1
            seq = self._connection.last_insert_rowid()
            period = None if unique.period is None else span_us(unique.period)
            take_key(self._connection, unique.key, seq, period=period, now=self._now)


def timing_text(job: NewJob | HeldMember) -> str | None:
    """Return what counts from a member's turn as JSON; None for nothing, as most jobs have."""
    if job.delay is None and job.at is None and job.expires is None:
        return None
    asked: dict[str, int] = {}
    if job.delay is not None:
        asked["delay"] = min(span_us(job.delay), LAST_US)
    elif job.at is not None:
        asked["at"] = min(to_us(job.at), LAST_US)
    if job.expires is not None:
        asked["expires"] = min(span_us(job.expires), LAST_US)
    return _encode(asked).decode()
