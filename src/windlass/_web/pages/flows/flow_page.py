"""One flow: its picture, its parts, and the jobs of one part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from starlette.responses import Response

from windlass._admin.explain.cause import plural
from windlass._core.flows.drawn import drawn_parts
from windlass._core.flows.flow import FlowRecord, FlowState, PartKind, PartRecord
from windlass._core.flows.part_state import PartState, part_states
from windlass._core.job.job import JobRecord
from windlass._core.job.state import State
from windlass._storage.protocol.flows import FlowGraph, Member
from windlass._web.flows import act_on_flow, check_action, find_flow, recount
from windlass._web.graph.picture import draw_flow
from windlass._web.graph.states import Tally, tally_of
from windlass._web.pages.flows.flow_list import FlowLine, parse_number
from windlass._web.render.confirmation import ActionNotice, ActionPage, Confirmation
from windlass._web.render.paging import page_rows
from windlass._web.request import PageRequest
from windlass.errors import FlowNotFound

if TYPE_CHECKING:
    from windlass.admin import Admin

__all__ = ["CANCEL", "RECOUNT", "RETRY", "JobPlace", "flow", "part", "place_of", "read_live_item"]

_AUDITED = 10
_MEMBERS = 100
_AT_ONCE, _MOST_READ = 500, 10_000
"""Jobs that a search for failed ones reads in one step, and in all."""
_MOST_NAMED = 8
"""Parts that a cell names before it only counts."""
_MOST_OPEN = 20
"""Folded boxes that one address opens."""
_AFTER = {"succeeded": "", "failed": "only after a failure"}


class PartLine(msgspec.Struct, frozen=True, kw_only=True):
    """One part as the table shows it."""

    part: PartRecord
    state: PartState
    tally: Tally
    waits_for: Sequence[tuple[PartRecord, bool]]
    """Some of the parts that it waits for, and whether a failure there counts here."""
    more: int
    """Further ones that it waits for."""

    @property
    def what(self) -> str:
        """The kind of part, and when it runs."""
        kind = {
            PartKind.JOIN: "join",
            PartKind.CALLBACK: "callback",
            PartKind.ADDED: "added flow",
        }
        words = (kind.get(self.part.kind, ""), _AFTER[self.part.when])
        return ", ".join(word for word in words if word)


class JobPlace(msgspec.Struct, frozen=True):
    """The place of a job in its flow."""

    flow: FlowRecord
    row: PartLine
    waits_for: Sequence[tuple[PartRecord, bool]]
    """The parts that it still waits for, if it is blocked."""


async def flow(visit: PageRequest) -> Response:
    """Return the page."""
    graph = await find_flow(visit, visit.request.path_params["flow"])
    now = await visit.admin.storage.now()
    opened = list(dict.fromkeys(visit.request.query_params.getlist("open")))[:_MOST_OPEN]
    here = parse_number(visit.asked("part"), "part")
    shown = page_rows(visit, graph.parts)
    subject = f"flow {graph.flow.id}"
    return await visit.render(
        "flow.html",
        now=now,
        flow=graph.flow,
        row=FlowLine(graph.flow, now),
        picture=draw_flow(graph.flow, graph.parts, opened, here=here),
        here=here,
        failed=next((one for one in graph.parts if one.failed), None),
        opened=opened,
        rows=_rows(graph, shown.rows),
        shown=shown,
        parts=sum(one.kind is PartKind.JOBS for one in graph.parts),
        audits=await visit.admin.audit.list(limit=_AUDITED, subject=subject),
        subject=subject,
    )


async def part(visit: PageRequest) -> Response:
    """Return the page with the jobs of one part."""
    graph = await find_flow(visit, visit.request.path_params["flow"])
    number = visit.request.path_params["part"]
    found = [one for one in graph.parts if str(one.number) == number]
    if not found:
        raise FlowNotFound(graph.flow.id, f"Flow {graph.flow.id} has no part {number[:16]!r}.")
    after = parse_number(visit.asked("after"), "after")
    (row,) = _rows(graph, found)
    failed = visit.asked("state") == "failed"
    listed, cursor = await _members(visit.admin, graph.flow, row.part, after or 0, failed=failed)
    return await visit.render(
        "flow_part.html",
        flow=graph.flow,
        row=row,
        members=listed,
        failed=failed,
        first=after is None,
        next=None if cursor is None else visit.changed(after=cursor),
        back=visit.changed(after=None) if after is not None else None,
    )


async def _members(
    admin: Admin, flow: FlowRecord, part: PartRecord, after: int, *, failed: bool
) -> tuple[Sequence[Member], int | None]:
    """Return a page of jobs, all or the failed ones, and the cursor of the next page. A search for
    failed ones reads a limited number of jobs, so that a page of a large part is quick, too.
    """
    if not failed:
        members = await admin.flows.members(flow.id, part.number, after=after, limit=_MEMBERS + 1)
        more = len(members) > _MEMBERS
        return members[:_MEMBERS], members[_MEMBERS - 1].seq if more else None
    found: list[Member] = []
    for _ in range(_MOST_READ // _AT_ONCE):
        members = await admin.flows.members(flow.id, part.number, after=after, limit=_AT_ONCE)
        for one in members:
            after = one.seq
            if one.state is State.FAILED:
                found.append(one)
            if len(found) == _MEMBERS:
                return found, after
        if len(members) < _AT_ONCE:
            return found, None
    return found, after


async def read_live_item(admin: Admin, flow_id: str) -> object:
    """Return the flow with the counts of its parts."""
    try:
        return await admin.flows.get(flow_id)
    except FlowNotFound:
        return None


async def place_of(admin: Admin, job: JobRecord) -> JobPlace | None:
    """Return the place of a job in its flow; None: it is in none that is stored."""
    if job.flow is None:
        return None
    try:
        graph = await admin.flows.get(job.flow.flow)
    except FlowNotFound:
        return None
    found = [one for one in graph.parts if one.number == job.flow.part]
    if not found:
        return None
    (row,) = _rows(graph, found)
    by_number = {one.number: one for one in graph.parts}
    states = part_states(graph.flow, graph.parts)
    unended = {PartState.ACTIVE, PartState.BLOCKED}
    waits_for = [
        (other, edge.strict)
        for edge in drawn_parts(graph.parts)[row.part.number].after
        if (other := by_number.get(edge.part)) is not None
        and (other.open if other.total else states[other.number] in unended)
    ]
    return JobPlace(graph.flow, row, waits_for[:_MOST_NAMED] if job.blocked else [])


def _rows(graph: FlowGraph, wanted: Sequence[PartRecord]) -> list[PartLine]:
    by_number: Mapping[int, PartRecord] = {one.number: one for one in graph.parts}
    states = part_states(graph.flow, graph.parts)
    drawn = {one.number: one for one in drawn_parts(graph.parts)}
    rows: list[PartLine] = []
    for one in wanted:
        named = [edge for edge in drawn[one.number].after if edge.part in by_number]
        if one.kind is PartKind.END:
            named = []  # it waits for all of them
        rows.append(
            PartLine(
                part=one,
                state=states[one.number],
                tally=tally_of([one]),
                waits_for=[(by_number[edge.part], edge.strict) for edge in named[:_MOST_NAMED]],
                more=max(len(named) - _MOST_NAMED, 0),
            )
        )
    return rows


# --- actions --------------------------------------------------------------------------------------


async def _ask_cancel(visit: PageRequest) -> Confirmation:
    found = (await find_flow(visit, visit.needed("flow"))).flow
    if visit.method == "GET":  # a late POST leads back to the flow, with the reason
        check_action(found, "cancel")
    have = "has" if found.open == 1 else "have"
    later = "start it again" if found.sealed else "retry it"
    return Confirmation(
        title=f"Cancel flow {found.name}?",
        sentence=f"{plural(found.open, 'job')} {have} not ended. Those that wait are cancelled, "
        f"and running ones are asked to stop. Of its callbacks only on_ended runs. You can {later} "
        f"later.",
        button="Cancel flow",
        back=f"/flows/{found.id}",
        danger=True,
    )


async def _cancel(visit: PageRequest) -> ActionNotice:
    found = await act_on_flow(visit, visit.needed("flow"), "cancel")
    ended = found.state is not FlowState.RUNNING
    notice = f"Flow {found.name} is {'cancelled' if ended else 'being cancelled'}."
    return ActionNotice(notice, f"/flows/{found.id}")


async def _ask_retry(visit: PageRequest) -> Confirmation:
    found = (await find_flow(visit, visit.needed("flow"))).flow
    if visit.method == "GET":
        check_action(found, "retry")
    again = plural(found.failed + found.cancelled, "job")
    stopped = plural(found.stopped, "stopped job")
    return Confirmation(
        title=f"Retry flow {found.name}?",
        sentence=f"Runs again: {again} that failed or had been cancelled. Waits for that again: "
        f"{stopped}. Jobs that succeeded are kept.",
        button="Retry flow",
        back=f"/flows/{found.id}",
    )


async def _retry(visit: PageRequest) -> ActionNotice:
    found = await act_on_flow(visit, visit.needed("flow"), "retry")
    return ActionNotice(f"Flow {found.name} is running again.", f"/flows/{found.id}")


async def _ask_recount(visit: PageRequest) -> Confirmation:
    found = (await find_flow(visit, visit.needed("flow"))).flow
    return Confirmation(
        title=f"Count the jobs of flow {found.name} again?",
        sentence="Windlass compares the stored counts with the jobs, and corrects those that do "
        "not agree. Do this if the flow does not end though its jobs have ended.",
        button="Recount",
        back=f"/flows/{found.id}",
    )


async def _recount(visit: PageRequest) -> ActionNotice:
    flow = visit.needed("flow")
    wrong = await recount(visit, flow, repair=True)
    notice = f"Corrected {plural(len(wrong), 'count')}." if wrong else "All counts agree."
    return ActionNotice(notice, f"/flows/{flow}")


RECOUNT = ActionPage(ask=_ask_recount, act=_recount)
CANCEL = ActionPage(ask=_ask_cancel, act=_cancel)
RETRY = ActionPage(ask=_ask_retry, act=_retry)
