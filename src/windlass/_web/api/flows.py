"""Flows: lists, one with its parts, cancel, retry and recount."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from windlass._admin.flows.explain import FlowExplanation
from windlass._core.flows.flow import FlowRecord, FlowState, PartRecord
from windlass._web.api.endpoint import Endpoint, Nothing
from windlass._web.api.filters import Cursor, Size
from windlass._web.api.truncation import fit_answer
from windlass._web.flows import act_on_flow, find_flow, recount
from windlass._web.request import PageRequest
from windlass._web.security.roles import Role

__all__ = ["FLOWS"]


class FlowQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A filter for flows, and one page of them. Fields combine."""

    state: Annotated[tuple[FlowState, ...], Meta(description="Any of these.")] = ()
    name: str | None = None
    key: str | None = None
    tenant: str | None = None
    before: Cursor | None = None
    size: Size = 50


class FlowPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some of the matching flows, newest first."""

    flows: Sequence[FlowRecord]
    next: int | None
    """`before` of the next page; null: nothing further matches."""


class PartQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which of its parts."""

    first: Annotated[
        int,
        Meta(ge=0, le=2**31, description="Number of the first part; `next` of the answer before."),
    ] = 0


class FlowBody(msgspec.Struct, frozen=True, kw_only=True):
    """A flow with its parts, by number."""

    flow: FlowRecord
    parts: Sequence[PartRecord]
    next: int | None
    """`first` of the next answer; null: these are the last parts."""


async def find_flows(visit: PageRequest, asked: FlowQuery) -> FlowPage:
    """List flows by filters."""
    found = await visit.admin.flows.list(
        states=asked.state or None,
        name=asked.name,
        key=asked.key,
        tenant=asked.tenant,
        before=asked.before,
        limit=asked.size + 1,
    )
    lines = fit_answer(found[: asked.size])
    return FlowPage(flows=lines, next=lines[-1].number if len(lines) < len(found) else None)


async def get_flow(visit: PageRequest, asked: PartQuery) -> FlowBody:
    """Return one flow with as many of its parts as one answer holds."""
    graph = await find_flow(visit, visit.request.path_params["flow"])
    wanted = [part for part in graph.parts if part.number >= asked.first]
    parts = fit_answer(wanted)
    following = wanted[len(parts)].number if len(parts) < len(wanted) else None
    return FlowBody(flow=graph.flow, parts=parts, next=following)


async def explain_flow(visit: PageRequest, _: Nothing) -> FlowExplanation:
    """Explain one flow by its jobs."""
    found = await find_flow(visit, visit.request.path_params["flow"])
    return await visit.admin.flows.explain(found.flow.id)


async def cancel_flow(visit: PageRequest, _: Nothing) -> FlowRecord:
    """Cancel what waits, and ask what runs to stop."""
    return await act_on_flow(visit, visit.request.path_params["flow"], "cancel")


async def retry_flow(visit: PageRequest, _: Nothing) -> FlowRecord:
    """Run again what failed, and what that has stopped."""
    return await act_on_flow(visit, visit.request.path_params["flow"], "retry")


class RecountBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether to correct the counts."""

    repair: Annotated[bool, Meta(description="Correct the counts that do not agree.")] = False


class RecountAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of counting the jobs of a flow again."""

    wrong: Sequence[str]
    """The counts that did not agree with the jobs, in words."""
    repaired: bool


async def recount_flow(visit: PageRequest, asked: RecountBody) -> RecountAnswer:
    """Count the jobs of one flow again."""
    wrong = await recount(visit, visit.request.path_params["flow"], repair=asked.repair)
    return RecountAnswer(wrong=wrong, repaired=bool(wrong) and asked.repair)


FLOWS = (
    Endpoint(
        method="GET",
        path="/flows",
        answer=find_flows,
        asked=FlowQuery,
        told=FlowPage,
        title="List flows by any filter, newest first, page by page",
        heavy=True,
    ),
    Endpoint(
        method="GET",
        path="/flows/{flow}",
        answer=get_flow,
        asked=PartQuery,
        told=FlowBody,
        title="Show a flow with its parts and their counts",
        refusals=(404,),
        heavy=True,
    ),
    Endpoint(
        method="GET",
        path="/flows/{flow}/explain",
        answer=explain_flow,
        told=FlowExplanation,
        title="Explain what a flow waits for, or why it failed",
        refusals=(404,),
        heavy=True,
    ),
    Endpoint(
        method="POST",
        path="/flows/{flow}/cancel",
        answer=cancel_flow,
        told=FlowRecord,
        role=Role.OPERATOR,
        refusals=(404, 409),
        title="Cancel a running flow",
    ),
    Endpoint(
        method="POST",
        path="/flows/{flow}/retry",
        answer=retry_flow,
        told=FlowRecord,
        role=Role.OPERATOR,
        refusals=(404, 409),
        title="Run again what failed in a flow, and what that has stopped",
    ),
    Endpoint(
        method="POST",
        path="/flows/{flow}/recount",
        answer=recount_flow,
        asked=RecountBody,
        told=RecountAnswer,
        role=Role.OPERATOR,
        refusals=(404,),
        title="Check the counts of a flow against its jobs, and correct them",
        heavy=True,
    ),
)
