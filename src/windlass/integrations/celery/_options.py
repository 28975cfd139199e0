"""The options of ``apply_async``: those that become options of a Windlass call, and the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypedDict

from windlass._core.values.instants import aware
from windlass._core.values.names import shown
from windlass._tasks.call import CallKeywords
from windlass.errors import InvalidArgument, suggestion

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from windlass.integrations.celery._signature import Canvas, Signature

__all__ = [
    "ApplyKeywords",
    "OptionReader",
    "PriorityOrder",
    "check_names",
    "refuse_attribute",
    "refuse_options",
]

PriorityOrder = Literal["lower_first", "higher_first"]
"""Which priorities run first in the Celery code: the lower ones with Redis, the higher ones with
RabbitMQ.
"""


class ApplyKeywords(TypedDict, total=False):
    """The options of ``apply_async`` and of ``Signature.set`` that are imitated."""

    countdown: float | None
    eta: datetime | None
    expires: float | timedelta | datetime | None
    queue: str | None
    priority: int | None
    time_limit: float | None
    task_id: str | UUID | None
    link: Canvas | Sequence[Canvas] | None
    link_error: Signature | Sequence[Signature] | None


_LEAVE_OUT = "leave it out"
_BROKER = "leave it out: jobs are rows of a storage, and queue= says where they wait"
_NO_ANSWER = (
    "leave it out: a call that the storage does not answer raises StorageUnavailable, and "
    "task.options(id=…) makes its repetition safe"
)
_INSTEAD: Mapping[str, str] = {
    "add_to_parent": "leave it out: a job that enqueues another is its parent",
    "chord": "write chord(header, body)",
    "compression": _LEAVE_OUT,
    "connection": "for a job in your own transaction, write task.options(connection=…)",
    "delivery_mode": _BROKER,
    "exchange": _BROKER,
    "exchange_type": _BROKER,
    "group_id": "write group(…)",
    "headers": "pass an argument, or task.options(tenant=…, principal=…, correlation_id=…)",
    "ignore_result": "write @app.task(store_result=False)",
    "max_retries": "write @app.task(max_attempts=…), which counts the first attempt",
    "parent_id": "leave it out: a job that enqueues another is its parent",
    "producer": _LEAVE_OUT,
    "publisher": _LEAVE_OUT,
    "replaced_task_nesting": "in the handler, write ctx.then(…)",
    "reply_to": _LEAVE_OUT,
    "retry": _NO_ANSWER,
    "retry_policy": _NO_ANSWER,
    "root_id": "leave it out: a flow has an id",
    "routing_key": _BROKER,
    "serializer": "leave it out: arguments are JSON, by the annotations of the function",
    "shadow": "write @app.task(name=…)",
    "soft_time_limit": "write @app.task(soft_timeout=…)",
    "stamped_headers": "write task.options(tags=[…])",
}


class OptionReader:
    """Turns options of ``apply_async`` into those of a Windlass call."""

    def __init__(self, order: PriorityOrder | None, now: Callable[[], datetime]) -> None:
        """``order``: of the priorities in the Celery code. ``now``: this machine's clock."""
        if order not in (None, "lower_first", "higher_first"):
            message = f"priority= takes 'lower_first' or 'higher_first', got {shown(order)}"
            raise InvalidArgument(message)
        self._order = order
        self._now = now

    def read(self, given: Mapping[str, Any]) -> CallKeywords:
        """Return the options of the call. Links are not among them."""
        options: CallKeywords = {}
        if (countdown := given.get("countdown")) is not None:
            options["delay"] = max(countdown, 0)
        if (eta := given.get("eta")) is not None:
            options["at"] = eta
        if (expires := given.get("expires")) is not None:
            options["expires"] = self._span(expires)
        if (queue := given.get("queue")) is not None:
            options["queue"] = queue
        if (priority := given.get("priority")) is not None:
            options["priority"] = self._priority(priority)
        if (limit := given.get("time_limit")) is not None:
            options["timeout"] = limit
        if (task_id := given.get("task_id")) is not None:
            options["id"] = task_id
        return options

    def _span(self, expires: float | timedelta | datetime) -> float | timedelta:
        if not isinstance(expires, datetime):
            return expires
        # A time that has passed: the job is stored, and discarded, as Celery revokes it.
        return max(aware(expires, "expires") - self._now(), timedelta(microseconds=1))

    def _priority(self, priority: int) -> int:
        if self._order is None:
            message = (
                "priority= means different things with Celery's brokers, and lower runs first in "
                "Windlass. Write CeleryCalls(app, priority='lower_first') if the code was for "
                "Redis, and priority='higher_first' if it was for RabbitMQ"
            )
            raise InvalidArgument(message)
        return priority if self._order == "lower_first" else -priority


def check_names(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are set. Refuse those that are not imitated."""
    found = {name: value for name, value in given.items() if value is not None}
    for name in found:
        if name in ApplyKeywords.__annotations__:
            continue
        if name in _INSTEAD:
            message = f"{name}= of Celery is not imitated; {_INSTEAD[name]}"
            raise InvalidArgument(message)
        hint = suggestion(name, ApplyKeywords.__annotations__)
        known = ", ".join(ApplyKeywords.__annotations__)
        message = f"{name!r} is no option of apply_async here.{hint} Options: {known}"
        raise InvalidArgument(message)
    return found


def refuse_options(given: Mapping[str, Any], what: str) -> None:
    """Refuse options and arguments for a canvas."""
    names = [name for name, value in given.items() if value]
    if names:
        message = (
            f"{what} takes no {names[0]}=: give it to each signature, "
            f"task.s(…).set({names[0]}=…), or as an argument of task.s(…)"
        )
        raise InvalidArgument(message)


def refuse_attribute(owner: object, name: str, instead: Mapping[str, str]) -> NoReturn:
    """Refuse an attribute that Celery has. AttributeError, so that ``hasattr`` works."""
    kind = type(owner).__name__
    message = f"{kind!r} has no attribute {name!r}"
    if name in instead:
        message = f"{kind}.{name} of Celery is not imitated; {instead[name]}"
    raise AttributeError(message, name=name, obj=owner)
