"""Tasks: registered functions, the options of their jobs, and the calls made of them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    ParamSpec,
    TypeVar,
)

import msgspec

from windlass._core.job.ids import id_as_stored, job_id_of
from windlass._core.job.job import FollowUp, JobId, LimitUse, OnLost
from windlass._core.job.unique import UniqueKey as StoredUnique
from windlass._core.limits.backoff import Backoff
from windlass._core.limits.limit import LimitSpec
from windlass._core.values.handler import check_function, importable_module, is_coroutine
from windlass._core.values.instants import aware, duration
from windlass._core.values.names import check_name
from windlass._core.values.payload import Codec, signature_shape
from windlass._settings.settings import Settings
from windlass._storage.protocol.transactions import UserConnection
from windlass._tasks.context import wants_context
from windlass._tasks.enqueuer import Enqueuer
from windlass._tasks.handle import Job
from windlass._tasks.limits import JOB_ATTRIBUTES, Costs, LimitBinding, breaker_name, check_costs
from windlass._tasks.on_failure import check_failure_task, check_on_failure_name, follow_up_of
from windlass._tasks.options import JobOptions, RunIn, TaskOptions, some_time, tag_names
from windlass._tasks.registry import TaskRegistry
from windlass._tasks.unique import Conflict, Scope, UniqueBinding, UniqueUntil, unique_of_call
from windlass.errors import DefinitionError, InvalidArgument

if TYPE_CHECKING:
    from uuid import UUID

__all__ = [
    "BoundTask",
    "Call",
    "Enqueuer",
    "JobOptions",
    "RunIn",
    "Task",
    "TaskOptions",
    "TaskRegistry",
    "check_name",
    "tag_names",
]

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
if TYPE_CHECKING:
    from typing_extensions import ParamSpec as DefaultParamSpec
    from typing_extensions import TypeVar as DefaultTypeVar

    Q = DefaultParamSpec("Q", default=...)
    C_co = DefaultTypeVar("C_co", covariant=True, default=Any)
else:
    Q, C_co = ParamSpec("Q"), TypeVar("C_co", covariant=True)


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


_PLAIN = JobOptions()
_IDENTITY = frozenset({"principal_id", "principal", "user_id", "correlation_id", "request_id"})


class Task(Generic[P, R_co, Q, C_co]):
    """A registered function. Calling it runs the plain function in this process.

    ``Task[[str], int]`` annotates a task that takes a text and returns a number. The tasks that
    `app.task` returns also know whether they take a `Context`, and whether they are awaited.
    """

    def __init__(
        self, function: Callable[..., Any], options: TaskOptions, enqueuer: Enqueuer
    ) -> None:
        """Check the function and its options; DefinitionError."""
        check_function(function)
        self.function = function
        options = msgspec.structs.replace(options, name=importable_module(options.name))
        self.settings: TaskOptions = options
        self.name: str = options.name
        """The name that its jobs are stored with."""
        self._enqueuer = enqueuer
        self.takes_context: bool = wants_context(function)
        self.in_process: bool = options.run_in == "process"
        self.is_async: bool = inspect.iscoroutinefunction(function) or (
            # A decorator may run the coroutine itself; then run_in="thread" is given.
            options.run_in != "thread" and is_coroutine(function)
        )
        shape = signature_shape(function, skip_first=self.takes_context)
        names = [p.name for p in shape]
        self.parameters = shape
        """The parameters that come from the payload."""
        self.draws: tuple[LimitBinding, ...] = tuple(
            LimitBinding(limit, names, options.name) for limit in options.limits
        )
        self.reads_job: bool = any(draw.reads_job for draw in self.draws)
        """Whether `limits_of` is needed: a key of its limits names an attribute of the job."""
        self.always: tuple[LimitUse, ...] = (
            () if options.breaker is None else (LimitUse(breaker_name(options.name)),)
        )
        """The limits that every call counts against, for any arguments."""
        rule = options.unique
        self._keyed = None if rule is None else UniqueBinding(rule, names, options.name)
        has_identity = not _IDENTITY.isdisjoint(names)
        self._plain = not (has_identity or self.draws or self._keyed)
        self._follow_up: tuple[Settings, FollowUp] | None = None
        self._owned: tuple[JobOptions, str, JobOptions] | None = None
        self._check_on_failure(options.on_failure)
        self._defaults = {p.name: p.default for p in shape if p.default is not p.empty}
        self._defaults |= {p.name: () for p in shape if p.kind is p.VAR_POSITIONAL}
        self._defaults |= {p.name: {} for p in shape if p.kind is p.VAR_KEYWORD}
        if options.run_in == "loop" and not self.is_async:
            message = (
                f"task {options.name!r} is a plain function and would block the event loop; "
                f"make it `async def`, or leave run_in out to run it on a thread"
            )
            raise DefinitionError(message)
        if options.run_in == "thread" and self.is_async:
            message = f"task {options.name!r} is a coroutine function: it runs on the loop"
            raise DefinitionError(message)
        functools.update_wrapper(self, function)

    @functools.cached_property
    def codec(self) -> Codec:
        """The codec of its arguments and results. Made at first use, when every annotated type
        exists.
        """
        return Codec(self.function, skip_first=self.takes_context)

    if not TYPE_CHECKING:

        def __class_getitem__(cls, parameters: Any) -> Any:
            """Let ``Task[[str], int]`` leave open how it is called, as type checkers do."""
            two = isinstance(parameters, tuple) and len(parameters) == 2
            return super().__class_getitem__((*parameters, ..., Any) if two else parameters)

    def __call__(self, *args: Q.args, **kwargs: Q.kwargs) -> C_co:
        """Run the plain function, as if it were not decorated."""
        answer: C_co = self.function(*args, **kwargs)
        return answer

    def __repr__(self) -> str:
        return f"<Task {self.name!r}>"

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R_co]:
        """Store a job that runs this function with these arguments, and return its handle."""
        return await self._enqueuer.enqueue_call(self._make(args, kwargs, _PLAIN))

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> Job[R_co]:
        """Store a job like `enqueue`, from code without an event loop."""
        return self._enqueuer.enqueue_call_sync(self._make(args, kwargs, _PLAIN))

    def job(self, job_id: str | UUID) -> Job[R_co]:
        """Return a handle for the id of one of its jobs. It reads nothing until you call its
        methods.
        """
        return Job(self._enqueuer, id_as_stored(job_id), created=False, task=self)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R_co]:
        """Make a call for ``app.enqueue_many`` or ``ctx.enqueue``."""
        return self._make(args, kwargs, _PLAIN)

    def options(
        self,
        *,
        delay: timedelta | float | str | None = None,
        at: datetime | None = None,
        priority: int | None = None,
        key: str | None = None,
        unique: UniqueUntil | Literal[False] | None = None,
        unique_for: timedelta | float | str | None = None,
        scope: Scope | None = None,
        on_conflict: Conflict | None = None,
        queue: str | None = None,
        max_attempts: int | None = None,
        timeout: timedelta | float | str | None = None,
        backoff: Backoff | None = None,
        tags: Sequence[str] | None = None,
        expires: timedelta | float | str | None = None,
        on_lost: OnLost | None = None,
        correlation_id: str | None = None,
        principal: str | None = None,
        tenant: str | None = None,
        connection: UserConnection | None = None,
        wake: Literal["commit"] | None = None,
        cost: Costs | None = None,
        id: str | UUID | None = None,  # noqa: A002 -- what it is called everywhere
    ) -> BoundTask[P, R_co]:
        """Return the task with other options for the calls you make through it.

        - ``delay``, ``at``: run after this time ("30s", seconds, timedelta), or at this instant.
        - ``priority``, ``queue``, ``max_attempts``, ``timeout``, ``backoff``, ``tags``,
          ``expires``, ``on_lost``: override the task's options for these calls.
        - ``key``: a unique key. While a job holds it, the call returns that job.
        - ``unique``: hold the key "until_started" or "until_finished"; False: use no key.
        - ``unique_for``: hold the key for this long. ``scope``, ``on_conflict``: see `Unique`.
        - ``correlation_id``, ``principal``, ``tenant``: stored with the job, to find it by.
        - ``cost``: tokens to take from the task's rates, or a mapping of limits to tokens.
        - ``connection``: your database connection. The job becomes part of its open transaction.
        - ``wake``: "commit" lets the database wake workers at the commit of ``connection``.
        - ``id``: the job's id, a UUID; version 7 is best. A repeated call with the same id stores
          no second job. IdConflict if it has another task or other arguments.

        Without ``key``, the unique options change the task's own ``unique=`` for these calls.
        """
        rule = unique_of_call(
            self.settings.unique,
            key=key,
            unique=unique,
            unique_for=some_time(unique_for, "unique_for"),
            scope=scope,
            on_conflict=on_conflict,
        )
        options = JobOptions(
            delay=None if delay is None else duration(delay, "delay"),
            at=None if at is None else aware(at, "at"),
            priority=priority,
            unique=None if key is None or rule is None else rule.stored(self.name, key),
            rule=None if key is not None else rule,
            keyless=unique is False,
            queue=queue,
            max_attempts=max_attempts,
            timeout=some_time(timeout, "timeout"),
            backoff=backoff,
            tags=None if tags is None else tag_names(tags),
            expires=some_time(expires, "expires"),
            on_lost=on_lost,
            correlation_id=correlation_id,
            principal=principal,
            tenant=tenant,
            connection=connection,
            wake=wake,
            cost=check_costs(cost, self.draws, self.name),
        )
        return BoundTask(self, options, None if id is None else job_id_of(id))

    def _make(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: JobOptions
    ) -> Call[R_co]:
        codec = self.codec
        payload = codec.encode(args, kwargs, limit=self._enqueuer.payload_limit)
        tenant_of = self._enqueuer.hooks.tenant_of
        if tenant_of is not None and options.tenant is None:
            options = self._tenanted(options, tenant_of())
        if self._plain:
            return Call(self, payload, None, options, self.always)
        return self._call(payload, codec.named(args, kwargs), options)

    def _tenanted(self, options: JobOptions, tenant: str | None) -> JobOptions:
        """Set the tenant. Calls in a row with the same options and tenant share one object."""
        if not tenant:
            return options
        last = self._owned
        if last is None or last[0] is not options or last[1] != tenant:
            owned = msgspec.structs.replace(options, tenant=tenant)
            last = self._owned = (options, tenant, owned)
        return last[2]

    def check(self, calls: Sequence[Call[Any]]) -> None:
        """Refuse calls of this task that may not be enqueued, before any of them is."""

    def call_of(self, payload: bytes, options: JobOptions) -> Call[R_co]:
        """Make a call from arguments that were encoded elsewhere."""
        return self._call(payload, msgspec.json.decode(payload), options)

    def _call(self, payload: bytes, named: Mapping[str, object], options: JobOptions) -> Call[R_co]:
        """Make a call with its limits and its unique key, from the arguments that its handler will
        get.
        """
        keyed = None if options.unique is not None or options.keyless else self._keyed
        given: Mapping[str, Any] = {}
        if self.draws or (keyed is not None and keyed.reads_arguments):
            given = self._given(payload)
        uses, secrets = self.always, self.codec.secrets
        if self.draws:
            known = {**dict.fromkeys(JOB_ATTRIBUTES), **given} if self.reads_job else given
            uses = (*(draw.use(known, options.cost, secrets) for draw in self.draws), *uses)
        if keyed is None:
            return Call(self, payload, named, options, uses)
        whole = payload if keyed.reads_arguments else self.codec.canonical(payload)
        unique = keyed.stored(options.rule or keyed.rule, whole, given, secrets)
        return Call(self, payload, named, options, uses, unique)

    def _given(self, payload: bytes) -> dict[str, Any]:
        args, kwargs = self.codec.decode(payload)
        return {**self._defaults, **self.codec.named(args, kwargs)}

    # --- what goes along with its jobs ---

    def limits_of(
        self, call: Call[Any], attributes: Mapping[str, Any], hidden: Sequence[str] = ()
    ) -> tuple[LimitUse, ...]:
        """Return the limits of ``call``, for a job with these `JOB_ATTRIBUTES`. ``hidden``: names
        of the attributes that come from secret arguments.
        """
        known = {**attributes, **self._given(call.payload)}
        secrets, cost = {*self.codec.secrets, *hidden}, call.options.cost
        return (*(draw.use(known, cost, secrets) for draw in self.draws), *self.always)

    def _check_on_failure(self, taker: object) -> None:
        if isinstance(taker, Task):
            check_failure_task(taker, self.name)
        elif taker is not None:
            check_on_failure_name(taker, self.name)

    @property
    def _taker(self) -> Task[..., Any] | None:
        """The ``on_failure`` task, if there is one and this process knows it."""
        named = self.settings.on_failure
        return self._enqueuer.tasks.find(named) if isinstance(named, str) else named

    def follow_up(self, settings: Settings) -> FollowUp | None:
        """Return the job to store when one of its jobs has failed for good."""
        if self.settings.on_failure is None:
            return None
        if self._follow_up is None or self._follow_up[0] is not settings:
            made = follow_up_of(self._taker or self.settings.on_failure, settings)
            if self._taker is None:  # a task that is not known yet may have limits
                return made
            self._follow_up = (settings, made)
        return self._follow_up[1]

    @property
    def specs(self) -> Sequence[LimitSpec]:
        """The limits and the breaker its jobs count against."""
        specs = [limit.spec for limit in self.settings.limits]
        if self.settings.breaker is not None:
            name = breaker_name(self.name)
            specs.append(LimitSpec(name=name, breaker=self.settings.breaker))
        return specs

    @property
    def needs(self) -> Sequence[LimitSpec]:
        """The limits that must be stored before its jobs: its own, and those of its
        ``on_failure``.
        """
        specs, taker = self.specs, self._taker
        return specs if taker is None else [*specs, *taker.specs]


class BoundTask(Generic[P, R_co]):
    """A task with options for its next calls."""

    __slots__ = ("_id", "_options", "_task")

    def __init__(
        self, task: Task[P, R_co], options: JobOptions, job_id: JobId | None = None
    ) -> None:
        """Keep the options; see `Task.options`."""
        self._task = task
        self._options = options
        self._id = job_id

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R_co]:
        """Store a job with these options."""
        call = self._task._make(args, kwargs, self._options)
        return await self._task._enqueuer.enqueue_call(call, job_id=self._id)  # noqa: SLF001

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> Job[R_co]:
        """Store a job like `enqueue`, from code without an event loop."""
        call = self._task._make(args, kwargs, self._options)
        return self._task._enqueuer.enqueue_call_sync(call, job_id=self._id)  # noqa: SLF001

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R_co]:
        """Make a call with these options, for ``app.enqueue_many``."""
        if self._id is not None:
            message = (
                "a call has no id, so that it can be enqueued twice: leave id= out, and give ids "
                "with the calls, app.enqueue_many(calls, ids=[…])"
            )
            raise InvalidArgument(message)
        return self._task._make(args, kwargs, self._options)
