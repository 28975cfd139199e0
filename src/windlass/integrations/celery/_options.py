"""The options of ``apply_async``: those that become options of a Windlass call, and the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from windlass._core.values.instants import aware
from windlass._core.values.names import shown
from windlass._tasks.call import CallKeywords
from windlass.errors import InvalidArgument, suggestion
from windlass.integrations.celery._instead import OF_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from windlass.integrations.celery._signature import Canvas, Signature

__all__ = [
    "ApplyKeywords",
    "OptionReader",
    "PriorityOrder",
    "check_names",
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
        if name in OF_OPTIONS:
            message = f"{name}= of Celery is not imitated; {OF_OPTIONS[name]}"
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
