"""A flow on its way to the store, and the calls that it may hold."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NoReturn

import msgspec

from windlass._core.flows.flow import NewPart
from windlass._core.job.job import FlowId, JobId
from windlass._core.values.names import shown
from windlass._tasks.call import Call
from windlass.errors import InvalidArgument

__all__ = ["FlowPlan", "check_call", "refuse_pending"]


class FlowPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A flow that is ready to be stored, but for what the app adds to its calls."""

    id: FlowId
    name: str
    key: str | None
    expires: timedelta | None
    parts: tuple[NewPart, ...]
    calls: Sequence[tuple[int, JobId, Call[Any]]]


def refuse_pending(call: Call[Any]) -> NoReturn:
    """Refuse a call that takes the result of a node, outside its flow."""
    message = (
        f"a call of {call.task.name} takes a result of a flow, so it must be added to that flow: "
        f"flow.add(call)"
    )
    raise InvalidArgument(message)


def check_call(call: object, what: str) -> None:
    if not isinstance(call, Call):
        message = f"{what} takes calls made by task.call(...), got {shown(call)}"
        raise InvalidArgument(message)
    if call.options.connection is not None:
        message = "a call of a flow has no connection=: give it to app.start(flow, connection=…)"
        raise InvalidArgument(message)
    if call.unique is not None and call.unique.on_conflict.value not in ("reuse", "raise"):
        message = f"a job of a flow cannot replace another one: leave on_conflict= out ({what})"
        raise InvalidArgument(message)
