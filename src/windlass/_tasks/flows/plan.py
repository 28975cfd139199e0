"""A flow on its way to the store, and the calls that it may hold."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NoReturn

import msgspec

from windlass._core.flows.flow import Edge, NewPart
from windlass._core.flows.pending import has_pending
from windlass._core.job.job import FlowId, JobId, NewJob
from windlass._core.values.names import shown
from windlass._tasks.call import Call
from windlass.errors import InvalidArgument

__all__ = [
    "FlowPlan",
    "check_added",
    "check_call",
    "check_callback",
    "check_task",
    "refuse_keys",
    "refuse_pending",
]


class FlowPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A flow that is ready to be stored, but for what the app adds to its calls."""

    id: FlowId
    name: str
    key: str | None
    expires: timedelta | None
    parts: tuple[NewPart, ...]
    calls: Sequence[tuple[int, JobId, Call[Any]]]
    after: tuple[Edge, ...] = ()
    """Of a flow that is added from outside: the parts of the running flow that it waits for."""


def check_added(plan: FlowPlan, *, inside: bool) -> None:
    """Check a flow that is to be added. ``inside``: to another flow, not as one of its own."""
    given = "key" if plan.key is not None else "expires" if plan.expires is not None else None
    if inside and given is not None:
        message = (
            f"flow {plan.name!r} has {given}=, and joins the flow that it is added to, whose "
            f"own {given}= counts: leave it out, or start the flow alone with app.start(flow)"
        )
        raise InvalidArgument(message)


def refuse_keys(plan: FlowPlan, jobs: Sequence[NewJob]) -> None:
    """Refuse an added flow with keyed jobs: a held key could not refuse a success."""
    keyed = next((job for job in jobs if job.unique is not None), None)
    if keyed is not None:
        message = (
            f"flow {plan.name!r} has a job of {keyed.task} with a unique key, and a flow that "
            f"ctx.then(...) or run.add(...) adds cannot have one: leave unique= out, or start the "
            f"flow with app.start(flow)"
        )
        raise InvalidArgument(message)


def refuse_pending(call: Call[Any]) -> NoReturn:
    """Refuse a call that takes the result of a node, outside its flow."""
    message = (
        f"a call of {call.task.name} takes a result of a flow, so it must be added to that flow: "
        f"flow.add(call)"
    )
    raise InvalidArgument(message)


def check_callback(call: Call[Any], what: str) -> None:
    """Check a call that runs after the flow. It takes no results: it is written before the nodes
    are.
    """
    check_call(call, what)
    if has_pending(call.payload):
        message = (
            f"{what} takes no results of jobs: add the call with flow.add(call), and after= the "
            f"nodes that it waits for"
        )
        raise InvalidArgument(message)


def check_task(task: object, what: str) -> None:
    """Check a task of which calls are to be made."""
    if isinstance(task, Call):
        short = task.task.name.rpartition(".")[2]
        message = f"{what} takes a task and its other arguments, got a call: {what}({short}, ...)"
        raise InvalidArgument(message)
    # Not by its class: tasks know flows, and flows must not import tasks.
    if not (hasattr(task, "call") and hasattr(task, "name")):
        message = (
            f"{what} takes a task, got {shown(task)}: decorate the function with @app.task, and "
            f"pass the task"
        )
        raise InvalidArgument(message)


def check_call(call: object, what: str) -> None:
    """Check a call that becomes a job of a flow."""
    if not isinstance(call, Call):
        message = f"{what} takes calls made by task.call(...), got {shown(call)}"
        raise InvalidArgument(message)
    if call.options.connection is not None:
        message = "a call of a flow has no connection=: give it to app.start(flow, connection=…)"
        raise InvalidArgument(message)
    unique = call.unique or call.options.unique
    if unique is not None and unique.on_conflict.value not in ("reuse", "raise"):
        message = f"a job of a flow cannot replace another one: leave on_conflict= out ({what})"
        raise InvalidArgument(message)
