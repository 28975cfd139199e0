"""Everything out of one storage and into another: see lua/dump.lua and lua/restore.lua."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import datetime
from typing import Any, assert_never

import msgspec

from windlass._core.job.state import Verb
from windlass._core.stats.rollup import Rollup
from windlass._core.values.instants import instant_of, to_us
from windlass._storage.protocol.actions import AuditRecord
from windlass._storage.protocol.copy import CopiedRecord, StoredJob
from windlass._storage.protocol.flows import FlowGraph
from windlass._storage.protocol.journal import EventRecord
from windlass._storage.protocol.limits import LimitState
from windlass._storage.protocol.queues import QueueRecord
from windlass._storage.redis.admin.audit import note_bytes
from windlass._storage.redis.admin.listed_jobs import pairs, shown_job
from windlass._storage.redis.copy.flows import held_of, packed_flow
from windlass._storage.redis.copy.restore import restored_job
from windlass._storage.redis.flows.records import graph_of, retried_of
from windlass._storage.redis.io.database import RedisDatabase
from windlass._storage.redis.io.layout import COUNTED, MEMBERSHIP, VERBS
from windlass._storage.redis.io.records import StateRecord, attempt_of, state_record_of
from windlass._storage.redis.io.scripts import script
from windlass._storage.redis.jobs.insert import as_text, require_limits
from windlass._storage.redis.jobs.request import decode_request
from windlass._storage.redis.journal import chunks_of, event_bytes
from windlass._storage.redis.queues import settings_text
from windlass._storage.shared.job_ids import known_id
from windlass._storage.shared.restored_job import require_flows

__all__ = ["RedisCopy"]

_DUMP, _RESTORE = script("dump"), script("restore")
_DUMP_FLOWS, _GRAPH = script("flow_dump"), script("flow_graph")

_AT_ONCE = 50
"""Jobs one script reads: each may carry a large payload and a large result."""
_LENGTH = struct.Struct(">H")

_pack = msgspec.msgpack.Encoder().encode


class RedisCopy:
    """A `CopyStore`."""

    def __init__(self, database: RedisDatabase) -> None:
        self._db = database

    async def dump(self, *, after: int, limit: int) -> Sequence[StoredJob]:
        found: list[StoredJob] = []
        while len(found) < limit:
            chunk = min(limit - len(found), _AT_ONCE)
            last, *rows = await self._db.run_aside(_DUMP, after, chunk)
            if not last:
                break
            after = int(last)
            found += [_stored_job(row) for row in rows]
        return found

    async def dump_flows(self, *, after: int, limit: int) -> Sequence[FlowGraph]:
        found: list[FlowGraph] = []
        for uid in await self._db.run_aside(_DUMP_FLOWS, after, limit):
            reply = await self._db.run_aside(_GRAPH, uid)
            if reply:
                graph = graph_of(uid, reply)
                found.append(msgspec.structs.replace(graph, retried=retried_of(reply[0])))
        return found

    async def restore(self, things: Sequence[CopiedRecord]) -> int:
        reply = await self._db.run_aside(_RESTORE, *(_pack(_packed(thing)) for thing in things))
        require_limits(reply)
        if reply[0] == b"flow":
            require_flows(things, [one.flow.id for one in things if isinstance(one, FlowGraph)])
        self._db.wake()
        return int(reply[1])


# --- out --------------------------------------------------------------------------------------


def _stored_job(row: Sequence[Any]) -> StoredJob:
    """Decode a job from the reply of dump.lua."""
    *shown, held_until, history, logs, ended_by_flow = row
    job, kept = shown_job(shown), state_record_of(shown[1]) if shown[1] else None
    ended: tuple[int, Verb, str] | None = None
    if kept is not None and kept.ended_number:
        ended = (kept.ended_number, VERBS[kept.ended_verb], kept.by)
    return StoredJob(
        job=job,
        unique=job.unique,
        key_until=instant_of(held_until) if held_until else None,
        ended=ended,
        held=held_of(shown[0], _membership(shown[0], kept), ended_by_flow),
        history=tuple(attempt_of(entry) for entry in history),
        logs=tuple(chunks_of(job.id, job.seq, dict(pairs(logs)))),
    )


def _membership(asked: bytes, kept: StateRecord | None) -> bytes:
    """Return the present membership of a job; empty if it is no member."""
    if kept is not None:
        return kept.membership
    return asked[-MEMBERSHIP:] if decode_request(asked).membership else b""


# --- in ---------------------------------------------------------------------------------------


def _packed(thing: CopiedRecord) -> Sequence[object]:
    """Encode a thing as restore.lua takes it."""
    match thing:
        case StoredJob():
            return restored_job(thing)
        case FlowGraph():
            return packed_flow(thing)
        case Rollup():
            return _rollup(thing)
        case QueueRecord():
            till = _us(thing.cool_until)
            most = thing.settings.max_running or 0
            text = as_text(settings_text(thing.settings))
            return ("queue", thing.queue, text, thing.paused, till, thing.cool_downs, most)
        case LimitState():
            spent = "" if thing.spent_until is None else str(to_us(thing.spent_until))
            breaker = thing.breaker
            tripped = (0, 0, 0)
            if breaker is not None:
                tripped = (breaker.failures, breaker.opened, _us(breaker.open_until))
            return ("limit", thing.name, thing.key, spent, *tripped)
        case AuditRecord():
            return ("audit", as_text(note_bytes(thing.note)), thing.count, to_us(thing.at))
        case EventRecord():
            record = as_text(event_bytes(thing))
            return ("event", as_text(known_id(thing.job)), to_us(thing.at), record)
        case _:
            assert_never(thing)


def _rollup(rollup: Rollup) -> Sequence[object]:
    queue, task = rollup.queue.encode(), rollup.task.encode()
    whose = _LENGTH.pack(len(queue)) + queue + _LENGTH.pack(len(task)) + task
    numbers: list[str | int] = []
    for verb, number in rollup.counts.items():
        numbers += (str(COUNTED.index(verb)), number)
    for kind, histogram in (("w", rollup.wait), ("r", rollup.run)):
        for bucket, number in histogram.items():
            numbers += (f"{kind}{bucket}", number)
    return ("rollup", str(to_us(rollup.minute)), as_text(whose), numbers)


def _us(instant: datetime | None) -> int:
    return 0 if instant is None else to_us(instant)
