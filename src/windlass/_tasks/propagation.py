"""Tenant, principal, correlation id and parent that a job passes on to the jobs it enqueues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from windlass._core.job.caller import CORRELATION_KEYS, PRINCIPAL_KEYS, first_usable
from windlass._core.job.job import ClaimedJob
from windlass._tasks.options import JobOptions
from windlass._tasks.task import Call

__all__ = ["OptionInheritance", "inherit_options_many"]

R = TypeVar("R")


class OptionInheritance:
    """Adds the values that a job passes on to the calls it makes.

    Calls in a row with the same options share one object, which is cheaper to store.
    """

    def __init__(self) -> None:
        self._last: tuple[ClaimedJob | None, JobOptions | None, JobOptions]
        self._last = (None, None, JobOptions())

    def inherit(self, call: Call[R], job: ClaimedJob) -> Call[R]:
        """Return ``call`` as made by ``job``. Options and arguments of the call take precedence."""
        if call.arguments is not None:
            return msgspec.structs.replace(call, options=_options(call, job))
        parent, asked, options = self._last
        if parent is not job or asked is not call.options:
            options = _options(call, job)
            self._last = (job, call.options, options)
        return msgspec.structs.replace(call, options=options)


def inherit_options_many(calls: Sequence[Call[R]], job: ClaimedJob) -> list[Call[R]]:
    """Return many calls as made by ``job``. Calls with the same options share one object."""
    made: dict[int, JobOptions] = {}
    children: list[Call[R]] = []
    for call in calls:
        options = made.get(id(call.options)) if call.arguments is None else None
        if options is None:
            options = _options(call, job)
            if call.arguments is None:
                made[id(call.options)] = options
        children.append(msgspec.structs.replace(call, options=options))
    return children


def _options(call: Call[Any], job: ClaimedJob) -> JobOptions:
    ask, said = call.options, call.arguments or {}
    principal, correlation_id = ask.principal, ask.correlation_id
    if principal is None and first_usable(said, PRINCIPAL_KEYS) is None:
        principal = job.principal
    if correlation_id is None and first_usable(said, CORRELATION_KEYS) is None:
        correlation_id = job.correlation_id
    return msgspec.structs.replace(
        ask,
        parent=ask.parent or job.claim.job,
        tenant=ask.tenant or job.tenant,
        principal=principal,
        correlation_id=correlation_id,
    )
