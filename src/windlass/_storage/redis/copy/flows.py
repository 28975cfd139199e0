"""Flows between records and what lua/restore.lua and lua/dump.lua exchange."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from windlass._core.flows.flow import FlowRecord
from windlass._core.flows.part import firsts_of, standings
from windlass._core.job.job import JobId
from windlass._core.values.instants import instant_of, span_us, to_us
from windlass._storage.protocol.copy import HeldMember, StoredJob
from windlass._storage.protocol.flows import FlowGraph
from windlass._storage.redis.flows.records import (
    FLOW_CODES,
    part_key,
    part_record,
    plan_record,
)
from windlass._storage.redis.io.layout import MEMBERSHIP
from windlass._storage.redis.jobs.insert import as_text, due_bytes
from windlass._storage.redis.jobs.request import is_blocked, place_of
from windlass._storage.shared.job_ids import id_of
from windlass._storage.shared.restored_job import asked_of

__all__ = ["held_of", "packed_flow", "packed_member"]

_ASKS = struct.Struct(">BqqB")
_AFTER, _AT = 1, 2
_FEED = struct.Struct(">IB")


# --- out --------------------------------------------------------------------------------------


def held_of(asked: bytes, membership: bytes, ended: bytes) -> HeldMember | None:
    """Return how its flow holds a member; None: not, or it is none.

    ``membership``: the present one. The asked record says when it was to be due.
    """
    if place_of(membership) is None or not (ended or is_blocked(membership)):
        return None
    how, when, expires, _ = _ASKS.unpack_from(asked, len(asked) - MEMBERSHIP - _ASKS.size)
    return HeldMember(
        ended="stopped" if ended == b"stopped" else "skipped" if ended else None,
        at=instant_of(when) if how == _AT else None,
        delay=timedelta(microseconds=when) if how == _AFTER else None,
        expires=None if expires < 0 else timedelta(microseconds=expires),
    )


# --- in ---------------------------------------------------------------------------------------


def packed_member(stored: StoredJob) -> dict[str, object] | None:
    """Return the place of a member in its flow; None for other jobs."""
    place, held = stored.job.flow, stored.held
    if place is None:
        return None
    return {
        "part": as_text(part_key(id_of(JobId(place.flow)), place.part)),
        "added": place.added,
        "asks": as_text(due_bytes(asked_of(stored))),
        "held": False if held is None else held.ended or "blocked",
    }


def packed_flow(graph: FlowGraph) -> Sequence[object]:
    """Return a flow with its parts, each a key and a value."""
    uid = id_of(JobId(graph.flow.id))
    where = standings(graph.flow, graph.parts, graph.retried)
    firsts = firsts_of(graph.parts)
    feeds = [b""] * len(graph.parts)
    records: list[msgspec.Raw] = []
    plans: list[msgspec.Raw] = []
    for part, standing, first in zip(graph.parts, where, firsts, strict=True):
        key = as_text(part_key(uid, part.number))
        records += (key, as_text(part_record(part, standing, first)))
        plans += (key, as_text(plan_record(part)))
        for edge in part.after:
            feeds[edge.part] += _FEED.pack(part.number, edge.strict)
    followers = [
        text
        for number, fed in enumerate(feeds)
        if fed
        for text in (as_text(part_key(uid, number)), as_text(fed))
    ]
    grown = any(part.added is not None for part in graph.parts)
    retried = False if graph.retried is None else graph.retried
    flow = {**_flow(graph.flow, uid, len(graph.parts)), "grown": grown, "retried": retried}
    return ("flow", flow, records, plans, followers)


def _flow(flow: FlowRecord, uid: bytes, size: int) -> dict[str, object]:
    """Return the fields of a flow, as flows.lua names them."""
    return {
        "id": as_text(uid),
        "name": flow.name,
        "key": False if flow.key is None else flow.key,
        "tenant": False if flow.tenant is None else flow.tenant,
        "created": to_us(flow.created_at),
        "expires": _us(flow.expires_at),
        "state": FLOW_CODES[flow.state],
        "ended": _us(flow.ended_at),
        "cancelled": flow.cancel_requested,
        "lasts": -1 if flow.expires is None else span_us(flow.expires),
        "sealed": flow.sealed,
        "size": size,
    }


def _us(instant: datetime | None) -> int:
    return 0 if instant is None else to_us(instant)
