"""The answers to ``windlass flows cancel`` and ``retry``, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass._admin.explain.cause import plural, shell_command
from windlass._core.flows.flow import FlowState
from windlass._storage.protocol.actions import ActionResult

if TYPE_CHECKING:
    from windlass._core.flows.flow import FlowRecord
    from windlass._storage.protocol.flows import FlowAction

__all__ = ["answer_text"]


def answer_text(action: FlowAction, answer: ActionResult, flow: FlowRecord) -> str:
    """Say what an action on a flow did, or why it was refused and what to do. ``flow``: as it was
    read after the action.
    """
    named = f"Flow {flow.id}"
    match action, answer:
        case "cancel", ActionResult.DONE:
            return (
                f"Cancel requested for flow {flow.id}, with {plural(flow.open, 'job')} not ended. "
                f"Workers cancel waiting jobs and ask running ones to stop."
            )
        case "cancel", _:
            return f"{named} has ended: there is nothing to cancel."
        case _, ActionResult.DONE:
            return f"{named} runs again: jobs that failed wait for a worker."
        case _, ActionResult.CONFLICT:
            return f"Another running flow has the key of flow {flow.id}: wait for its end."
        case _:
            return f"{named} {_not_retried(flow)}"


def _not_retried(flow: FlowRecord) -> str:
    if flow.state is FlowState.SUCCEEDED:
        return "has succeeded: there is nothing to retry."
    if flow.state is not FlowState.RUNNING:
        return "was never stored whole, so none of its jobs has run: start it again."
    if flow.cancel_requested:
        return "is being cancelled: wait for its end."
    if flow.sealed:
        cancel = shell_command("flows", "cancel", flow.id)
        return (
            f"is still being stored: wait for app.start. If its process died, {cancel}, then start "
            f"the flow again."
        )
    requeue = shell_command("jobs", "requeue", "JOB")
    return f"still runs: wait for its end, or requeue single jobs with {requeue}."
