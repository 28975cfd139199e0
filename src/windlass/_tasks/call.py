"""Calls: a task with its encoded arguments, the options of one call, and what it inherits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict, TypeVar, Unpack, cast

import msgspec

from windlass._core.job.caller import CORRELATION_KEYS, PRINCIPAL_KEYS, first_usable
from windlass._core.job.ids import job_id_of
from windlass._core.job.job import ClaimedJob, JobId, LimitUse, OnLost
from windlass._core.job.unique import UniqueKey as StoredUnique
from windlass._core.limits.backoff import Backoff
from windlass._core.values.instants import aware, duration
from windlass._core.values.option_hints import suggest_option
from windlass._storage.protocol.transactions import UserConnection
from windlass._tasks.limits import Costs, LimitBinding, check_costs
from windlass._tasks.options import JobOptions, reserved_tags, some_time, tag_names
from windlass._tasks.unique import Conflict, Scope, Unique, UniqueUntil, unique_of_call
from windlass.errors import InvalidArgument

if TYPE_CHECKING:
    from uuid import UUID

    from windlass._tasks.task import Task

__all__ = [
    "OPTIONS",
    "PLAIN",
    "Call",
    "CallKeywords",
    "EnqueueHook",
    "OptionInheritance",
    "call_options",
    "check_no_id",
    "inherit_options_many",
]

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

EnqueueHook = Callable[["Call[Any]"], "Call[Any] | None"]
"""Sees every call before it is enqueued, and may return another one in its place."""

PLAIN = JobOptions()
"""The options of calls without options. They share it, so the client sees that they are alike."""


class Call(msgspec.Struct, Generic[R_co], frozen=True):
    """A task with its encoded arguments and options, ready to be enqueued.

    It has no id: enqueued twice, it is two jobs. ``enqueue_many(calls, ids=…)`` gives it one.
    """

    task: Task[..., R_co]
    payload: bytes
    arguments: Mapping[str, object] | None
    """Set only if the task reads them: for the caller's identity, or for keys of limits."""
    options: JobOptions
    limits: tuple[LimitUse, ...] = ()
    unique: StoredUnique | None = None
    """The key by the task's rule. A key that the call sets is in ``options``."""

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags that your code has given the call, or else its task."""
        mine = self._tags
        return tuple(tag for tag in mine if tag not in reserved_tags(mine))

    @property
    def _tags(self) -> tuple[str, ...]:
        return self.task.settings.tags if self.options.tags is None else self.options.tags

    def with_options(self, **options: Unpack[ChangeableKeywords]) -> Call[R_co]:
        """Return the same call with other options. Those that are not given, or None, stay."""
        given = {name: value for name, value in options.items() if value is not None}
        for name in given:
            if name not in ChangeableKeywords.__annotations__:
                known = ", ".join(sorted(ChangeableKeywords.__annotations__))
                message = f"{name!r} cannot be changed once a call is made. Options: {known}"
                raise InvalidArgument(message)
        made, _ = call_options(cast("CallKeywords", given), self.task.name, None, ())
        changed = {name: getattr(made, name) for name in given}
        if "tags" in given:
            changed["tags"] += reserved_tags(self._tags)
        if "delay" in given:
            changed.setdefault("at", None)
        if "at" in given:
            changed.setdefault("delay", None)
        return msgspec.structs.replace(
            self, options=msgspec.structs.replace(self.options, **changed)
        )


class ChangeableKeywords(TypedDict, total=False):
    """The options that a call can still get after it was made; `Task.options` explains them."""

    delay: timedelta | float | str | None
    at: datetime | None
    priority: int | None
    queue: str | None
    max_attempts: int | None
    timeout: timedelta | float | str | None
    backoff: Backoff | None
    tags: Sequence[str] | None
    expires: timedelta | float | str | None
    on_lost: OnLost | None
    correlation_id: str | None
    principal: str | None
    tenant: str | None


class CallKeywords(ChangeableKeywords, total=False):
    """The options of a call; `Task.options` explains them."""

    key: str | None
    unique: UniqueUntil | Literal[False] | None
    unique_for: timedelta | float | str | None
    scope: Scope | None
    on_conflict: Conflict | None
    connection: UserConnection | None
    wake: Literal["commit"] | None
    cost: Costs | None
    id: str | UUID | None


OPTIONS = frozenset(CallKeywords.__annotations__)
"""The names of all options of a call."""


def call_options(
    given: CallKeywords, task: str, unique: Unique | None, draws: Sequence[LimitBinding]
) -> tuple[JobOptions, JobId | None]:
    """Check the options of a call, and return them with the job's id if one is given.

    ``unique`` and ``draws``: the unique rule and the limits of the task named ``task``.
    """
    if not given:
        return PLAIN, None
    for name in given:
        if name not in OPTIONS:
            message = f"{name!r} is no option of a call.{suggest_option(name, OPTIONS)}"
            raise InvalidArgument(message)
    key, delay, at = given.get("key"), given.get("delay"), given.get("at")
    tags, job_id = given.get("tags"), given.get("id")
    rule = unique_of_call(
        unique,
        key=key,
        unique=given.get("unique"),
        unique_for=some_time(given.get("unique_for"), "unique_for"),
        scope=given.get("scope"),
        on_conflict=given.get("on_conflict"),
    )
    options = JobOptions(
        delay=None if delay is None else duration(delay, "delay"),
        at=None if at is None else aware(at, "at"),
        priority=given.get("priority"),
        unique=None if key is None or rule is None else rule.stored(task, key),
        rule=None if key is not None else rule,
        keyless=given.get("unique") is False,
        queue=given.get("queue"),
        max_attempts=given.get("max_attempts"),
        timeout=some_time(given.get("timeout"), "timeout"),
        backoff=given.get("backoff"),
        tags=None if tags is None else tag_names(tags),
        expires=some_time(given.get("expires"), "expires"),
        on_lost=given.get("on_lost"),
        correlation_id=given.get("correlation_id"),
        principal=given.get("principal"),
        tenant=given.get("tenant"),
        connection=given.get("connection"),
        wake=given.get("wake"),
        cost=check_costs(given.get("cost"), draws, task),
    )
    return options, None if job_id is None else job_id_of(job_id)


def check_no_id(job_id: JobId | None) -> None:
    """Refuse an id for a call that is made now and enqueued later."""
    if job_id is not None:
        message = (
            "a call has no id, so that it can be enqueued twice: leave id= out, and give ids "
            "with the calls, app.enqueue_many(calls, ids=[…])"
        )
        raise InvalidArgument(message)


# --- what a job passes on to the jobs it enqueues ---


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
