"""Flows by the id in an address, and the actions on them."""

from __future__ import annotations

from collections.abc import Sequence

from windlass._core.flows.flow import FlowRecord, FlowState
from windlass._core.job.ids import is_full_id
from windlass._storage.protocol.actions import ActionResult
from windlass._storage.protocol.flows import FlowAction, FlowGraph
from windlass._web.request import PageRequest
from windlass.errors import FlowNotFound, WindlassError

__all__ = ["FlowActionRefused", "act_on_flow", "check_action", "find_flow", "recount"]

_NEEDS = {
    "cancel": "only a running flow can be cancelled",
    "retry": "only a failed or cancelled flow can be retried",
}


class FlowActionRefused(WindlassError):
    """The flow exists but its state, or another flow, does not allow the action."""

    def __init__(self, flow: FlowRecord, action: FlowAction, answer: ActionResult) -> None:
        why = f"it is {flow.state}; {_NEEDS[action]}"
        if action == "retry" and flow.sealed and flow.ended_at is not None:
            why = "not all of its jobs were stored, so none has run. Start the flow again"
        if answer is ActionResult.CONFLICT:
            why = "another running flow holds its key. Wait for that one to end, or cancel it"
        super().__init__(f"Cannot {action} flow {flow.id}: {why}.")


async def find_flow(visit: PageRequest, flow: str) -> FlowGraph:
    """Return a flow with its parts. A text that cannot be an id is not looked up."""
    if not is_full_id(flow):
        raise FlowNotFound(flow[:64])
    return await visit.admin.flows.get(flow)


def check_action(flow: FlowRecord, action: FlowAction) -> None:
    """Refuse an action that the state of a flow does not allow."""
    running = flow.state is FlowState.RUNNING
    fits = running
    if action == "retry":
        fits = not running and flow.state is not FlowState.SUCCEEDED and not flow.sealed
    if not fits:
        raise FlowActionRefused(flow, action, ActionResult.WRONG_STATE)


async def act_on_flow(visit: PageRequest, flow: str, action: FlowAction) -> FlowRecord:
    """Cancel or retry a flow under the user's name, and return it as it is then."""
    found = (await find_flow(visit, flow)).flow
    flows = visit.orders.flows
    answer = await (flows.cancel(found.id) if action == "cancel" else flows.retry(found.id))
    if answer not in {ActionResult.DONE, ActionResult.REQUESTED}:
        raise FlowActionRefused(found, action, answer)
    return (await find_flow(visit, flow)).flow


async def recount(visit: PageRequest, flow: str, *, repair: bool) -> Sequence[str]:
    """Count the jobs of a flow again, under the user's name; the counts that did not agree."""
    found = (await find_flow(visit, flow)).flow
    return await visit.orders.flows.recount(found.id, repair=repair)
