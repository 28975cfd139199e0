"""New flows as arguments of a statement."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from windlass._core.flows.flow import SEALED_FOR, NewFlow, PartKind
from windlass._core.job.job import NewJob
from windlass._storage.postgres.io.rows import stored_span, stored_text
from windlass._storage.postgres.jobs.insert import extra_args, plain_args
from windlass._storage.postgres.jobs.job_json import JobJson, job_json_of
from windlass.errors import InvalidArgument

__all__ = ["KINDS", "UserFlow", "job_args", "start_args", "user_flow_of"]

KINDS = tuple(PartKind)
"""Kind of a part by the number it is stored as."""

_CONFLICTS = 13
"""The place of ``p_conflicts`` among the extras."""
_NO_EXTRAS = (None,) * 16


class _FlowJson(msgspec.Struct, frozen=True):
    """One flow, as ``store_flows`` reads it."""

    id: str
    name: str
    key: str | None
    tenant: str | None
    expires: int | None
    stays: int | None
    spare: int | None = None


class _PartJson(msgspec.Struct, frozen=True):
    """One part, as ``store_parts`` reads it."""

    flow: int
    number: int
    name: str
    kind: int
    task: str
    failed: bool
    after: list[int]
    strict: list[bool]
    feeds: list[int]
    feeds_strict: list[bool]
    jobs: int
    sealed: bool


class UserFlow(msgspec.Struct, frozen=True):
    """One flow, as ``start_for_user`` reads it."""

    at: datetime | None
    channel: str | None
    flows: list[_FlowJson]
    parts: list[_PartJson]
    places: list[int]
    spreads: bool
    jobs: list[JobJson]
    after: list[int]
    """Of a flow that is added from outside: see ``join_flow``."""
    strict: list[bool]


def user_flow_of(flow: NewFlow, at: datetime | None, channel: str | None) -> UserFlow:
    """Return a flow for a connection of the user's. A key that is held refuses it."""
    parts = _parts_of(flow, 1)
    return UserFlow(
        at=at,
        channel=channel,
        flows=[_flow_json(flow)],
        parts=parts,
        places=[number + 1 for number, _ in flow.jobs],
        spreads=_spreads(parts),
        jobs=[
            msgspec.structs.replace(listed, on_conflict="raise")
            if (listed := job_json_of(job)).key is not None
            else listed
            for _, job in flow.jobs
        ],
        after=[edge.part for edge in flow.after],
        strict=[edge.strict for edge in flow.after],
    )


def _spreads(parts: Sequence[_PartJson]) -> bool:
    """Return whether parts have something to tell from the start."""
    return any((part.failed or not part.jobs) and not part.after for part in parts)


def start_args(flows: Sequence[NewFlow], spare: int | None) -> tuple[Any, ...]:
    """Return the arguments from ``p_flows`` on of ``start_flows``. ``spare``: see there."""
    parts = [part for place, flow in enumerate(flows, 1) for part in _parts_of(flow, place)]
    firsts = itertools.accumulate((len(flow.parts) for flow in flows), initial=1)
    members = [
        (first + number, job)
        for flow, first in zip(flows, firsts, strict=False)
        for number, job in flow.jobs
    ]
    return (
        _encode([_flow_json(flow, spare) for flow in flows]),
        _encode(parts),
        _spreads(parts),
        *job_args(members),
    )


def job_args(members: Sequence[tuple[int, NewJob]]) -> tuple[Any, ...]:
    """Return the arguments from ``p_plain`` on of ``start_flows`` and ``extend_flow``."""
    jobs = [job for _, job in members]
    extras = extra_args(jobs)
    return (
        extras is None,
        [place for place, _ in members],
        *plain_args(jobs),
        *(_NO_EXTRAS if extras is None else _raising(extras, jobs)),
    )


def _encode(rows: Sequence[msgspec.Struct]) -> str:
    return msgspec.json.encode(rows).decode()


def _flow_json(flow: NewFlow, spare: int | None = None) -> _FlowJson:
    if len(flow.id) != 32:
        raise InvalidArgument(f"the id of a flow is 32 hex digits, got {flow.id!r}")
    return _FlowJson(
        flow.id,
        stored_text(flow.name),
        flow.key,
        flow.tenant,
        stored_span(flow.expires),
        stored_span(SEALED_FOR) if flow.sealed else None,
        spare,
    )


def _parts_of(flow: NewFlow, place: int) -> list[_PartJson]:
    feeds: list[list[tuple[int, bool]]] = [[] for _ in flow.parts]
    counts = [0] * len(flow.parts)
    for number, part in enumerate(flow.parts):
        for edge in part.after:
            feeds[edge.part].append((number, edge.strict))
    for number, _ in flow.jobs:
        counts[number] += 1
    return [
        _PartJson(
            flow=place,
            number=number,
            name=stored_text(part.name),
            kind=KINDS.index(part.kind),
            task=part.task,
            failed=part.when == "failed",
            after=[edge.part for edge in part.after],
            strict=[edge.strict for edge in part.after],
            feeds=[follower for follower, _ in feeds[number]],
            feeds_strict=[strict for _, strict in feeds[number]],
            jobs=counts[number],
            sealed=flow.sealed,
        )
        for number, part in enumerate(flow.parts)
    ]


def _raising(extras: Sequence[Any], jobs: Sequence[NewJob]) -> tuple[Any, ...]:
    """Let a key that is held refuse the whole flow."""
    conflicts = [None if job.unique is None else "raise" for job in jobs]
    return (*extras[:_CONFLICTS], conflicts, *extras[_CONFLICTS + 1 :])
