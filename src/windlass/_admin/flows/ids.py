"""Shortened ids of flows, as tables and pages show them."""

from __future__ import annotations

from windlass._admin.session import AdminSession
from windlass._core.job.ids import id_as_stored, id_patterns_of, is_full_id
from windlass._core.job.job import FlowId, JobId
from windlass._storage.protocol.flows import FlowFilter, FlowStore
from windlass.errors import AmbiguousId, FlowNotFound

__all__ = ["missing_flow", "resolve_flow"]

_NEWEST = 10_000
"""Flows among which a shortened id is looked for: no index has it."""
_PAGE = 500
_CANDIDATES = 10


async def resolve_flow(session: AdminSession, given: str) -> FlowId:
    """Return the whole id for a shortened one. A whole id is not looked up."""
    stored = id_as_stored(given)
    if is_full_id(stored.lower()):
        return FlowId(stored.lower())
    wanted = id_patterns_of(stored)
    if not wanted:
        message = (
            f"No flow {given} is stored. Give the whole id (32 hex digits), a shortened one as in "
            f"0192f3a1…9c4e07, or its last eight digits or more."
        )
        raise FlowNotFound(given, message)
    newest = await _newest((await session.storage()).flows)
    for first, last in wanted:
        found = [one for one in newest if one.startswith(first) and one.endswith(last)]
        if len(found) > 1:
            more = len(found) > _CANDIDATES
            raise AmbiguousId(given, found[:_CANDIDATES], more=more, of="flows")
        if found:
            return found[0]
    message = f"None of the newest {_NEWEST:,} flows has the id {given}. Give the whole id."
    raise FlowNotFound(given, message)


async def _newest(store: FlowStore) -> list[FlowId]:
    found: list[FlowId] = []
    before: int | None = None
    while len(found) < _NEWEST:
        page = await store.find(FlowFilter(), before=before, limit=_PAGE)
        found += [one.id for one in page]
        if len(page) < _PAGE:
            break
        before = page[-1].number
    return found


async def missing_flow(session: AdminSession, flow: FlowId) -> FlowNotFound:
    """Return the error for an id that no flow has. It may be that of a job."""
    (job,) = await (await session.storage()).admin.get([JobId(flow)])
    if job is None:
        return FlowNotFound(flow)
    where = "it is a member of no flow"
    if job.flow is not None:
        where = f"its flow is {job.flow.flow}"
    return FlowNotFound(flow, f"{flow} is the id of a job: {where}.")
