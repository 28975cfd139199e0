"""Tasks: registered functions, the options of their jobs, and the calls made of them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    ParamSpec,
    TypeVar,
    Unpack,
)

import msgspec

from windlass._core.flows.pending import has_pending
from windlass._core.job.ids import id_as_stored
from windlass._core.job.job import FollowUp, JobId, LimitUse
from windlass._core.limits.limit import LimitSpec
from windlass._core.values.handler import check_function, importable_module, is_coroutine
from windlass._core.values.names import check_name
from windlass._core.values.option_hints import CeleryName
from windlass._core.values.payload import Codec, encode_any, signature_shape
from windlass._settings.settings import Settings
from windlass._tasks.call import PLAIN, Call, CallKeywords, call_options, check_no_id
from windlass._tasks.context import Context
from windlass._tasks.follow_ups import (
    FollowUpOption,
    check_follow_up,
    follow_up_of,
    follow_up_options,
)
from windlass._tasks.handle import Enqueuer, Job
from windlass._tasks.limits import JOB_ATTRIBUTES, LimitBinding, breaker_name
from windlass._tasks.options import JobOptions, Program, RunIn, TaskOptions, tag_names
from windlass._tasks.registry import TaskRegistry
from windlass._tasks.unique import UniqueBinding
from windlass.errors import DefinitionError, InvalidArgument, UnknownTask

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
    "wants_context",
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
        self.program: Program | None = None
        """The program that runs its jobs, in place of the function."""
        if isinstance(options.run_in, Program):
            self.program = options.run_in
            _check_program(options.name, takes_context=self.takes_context)
        self.is_async: bool = self.program is None and (
            inspect.iscoroutinefunction(function)
            # A decorator may run the coroutine itself; then run_in="thread" is given.
            or (options.run_in != "thread" and is_coroutine(function))
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
        self._follow_ups: dict[FollowUpOption, tuple[Settings, FollowUp]] = {}
        self._owned: tuple[JobOptions, str, JobOptions] | None = None
        for option, taker in follow_up_options(options):
            check_follow_up(option, taker, options.name)
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
        delay, apply_async, s = CeleryName(), CeleryName(), CeleryName()

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
        return await self._enqueuer.enqueue_call(self._make(args, kwargs, PLAIN))

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> Job[R_co]:
        """Store a job like `enqueue`, from code without an event loop."""
        return self._enqueuer.enqueue_call_sync(self._make(args, kwargs, PLAIN))

    def job(self, job_id: str | UUID) -> Job[R_co]:
        """Return a handle for the id of one of its jobs. It reads nothing until you call its
        methods.
        """
        return Job(self._enqueuer, id_as_stored(job_id), created=False, task=self)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R_co]:
        """Make a call for ``app.enqueue_many`` or ``ctx.enqueue``."""
        return self._make(args, kwargs, PLAIN)

    def options(self, **options: Unpack[CallKeywords]) -> BoundTask[P, R_co]:
        """Return the task with other options for the calls you make through it.

        - ``delay``, ``at``: run after this time ("30s", seconds, timedelta), or at this instant.
        - ``priority``, ``queue``, ``max_attempts``, ``timeout``, ``backoff``, ``tags``,
          ``expires``, ``on_lost``: override the task's options for these calls.
        - ``key``: a unique key. While a job holds it, the call returns that job.
        - ``unique``: hold the key "until_started" or "until_finished"; False: use no key.
        - ``unique_for``: hold the key for this long.
        - ``scope``, ``on_conflict``: where the key counts, and what a held key does: see `Unique`.
        - ``correlation_id``, ``principal``, ``tenant``: stored with the job, to find it by.
        - ``cost``: tokens to take from the task's rates, or a mapping of limits to tokens.
        - ``connection``: your database connection. The job becomes part of its open transaction.
        - ``wake``: "commit" lets the database wake workers at the commit of ``connection``.
        - ``id``: the job's id, a UUID; version 7 is best. A repeated call with the same id stores
          no second job. IdConflict if it has another task or other arguments.

        Without ``key``, the unique options change the task's own ``unique=`` for these calls.
        """
        made, job_id = call_options(options, self.name, self.settings.unique, self.draws)
        return BoundTask(self, made, job_id)

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

    def check(self, calls: Sequence[Call[Any]], tasks: TaskRegistry) -> None:  # noqa: ARG002
        """Refuse calls that may not be enqueued by the app with these ``tasks``."""
        if not tasks.has(self):
            raise UnknownTask(self.name, tasks.names)

    def call_named(self, arguments: Mapping[str, Any], options: JobOptions) -> Call[R_co]:
        """Make a call from arguments by the names of the parameters, as a payload has them."""
        limit, what = self._enqueuer.payload_limit, f"the arguments of {self.name}"
        payload = encode_any(dict(arguments), limit=limit, what=what) or b"{}"
        args, kwargs = self.codec.decode(payload)
        return self._make(args, kwargs, options)

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
            given = self.arguments_in(payload)
        uses, secrets = self.always, self.codec.secrets
        if self.draws:
            known = {**dict.fromkeys(JOB_ATTRIBUTES), **given} if self.reads_job else given
            uses = (*(draw.use(known, options.cost, secrets) for draw in self.draws), *uses)
        if keyed is None:
            return Call(self, payload, named, options, uses)
        if not keyed.reads_arguments and has_pending(payload):
            message = (
                f"the unique key of {self.name} is made from all of its arguments, and one of them "
                f"is a result that is not known before the flow runs: give the call a key, "
                f"options(key=...), or leave the key out, options(unique=False)"
            )
            raise InvalidArgument(message)
        whole = payload if keyed.reads_arguments else self.codec.canonical(payload)
        unique = keyed.stored(options.rule or keyed.rule, whole, given, secrets)
        return Call(self, payload, named, options, uses, unique)

    def arguments_in(self, payload: bytes) -> dict[str, Any]:
        """Return the arguments that its handler gets, by name, with the defaults."""
        if has_pending(payload):
            return {**self._defaults, **self.codec.decode_known(payload)}
        args, kwargs = self.codec.decode(payload)
        return {**self._defaults, **self.codec.named(args, kwargs)}

    def encode_result(self, value: object, *, limit: int) -> bytes | None:
        """Encode what a run returned. None for a task that stores no result."""
        if not self.settings.store_result:
            return None
        return self.codec.encode_result(value, limit=limit, what=f"the result of {self.name}")

    # --- what goes along with its jobs ---

    def limits_of(
        self, call: Call[Any], attributes: Mapping[str, Any], hidden: Sequence[str] = ()
    ) -> tuple[LimitUse, ...]:
        """Return the limits of ``call``, for a job with these `JOB_ATTRIBUTES`. ``hidden``: names
        of the attributes that come from secret arguments.
        """
        known = {**attributes, **self.arguments_in(call.payload)}
        secrets, cost = {*self.codec.secrets, *hidden}, call.options.cost
        return (*(draw.use(known, cost, secrets) for draw in self.draws), *self.always)

    def _taker(self, option: FollowUpOption) -> Task[..., Any] | None:
        """Return the task that follows, if there is one and this process knows it."""
        named = getattr(self.settings, option)
        return self._enqueuer.tasks.find(named) if isinstance(named, str) else named

    def follow_up(self, option: FollowUpOption, settings: Settings) -> FollowUp | None:
        """Return the job to store when one of its jobs has failed for good, or has succeeded."""
        named = getattr(self.settings, option)
        if named is None:
            return None
        made = self._follow_ups.get(option)
        if made is None or made[0] is not settings:
            taker = self._taker(option)
            made = (settings, follow_up_of(taker or named, settings))
            if taker is not None:  # a task that is not known yet may have limits
                self._follow_ups[option] = made
        return made[1]

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
        specs, taker = self.specs, self._taker("on_failure")
        return specs if taker is None else [*specs, *taker.specs]


def _check_program(name: str, *, takes_context: bool) -> None:
    if takes_context:
        message = (
            f"task {name!r} runs a program, which gets no Context: leave the parameter out. The "
            f"program writes progress and log lines itself"
        )
        raise DefinitionError(message)


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

    @property
    def name(self) -> str:
        """The name of the task."""
        return self._task.name

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
        check_no_id(self._id)
        return self._task._make(args, kwargs, self._options)


def wants_context(function: Callable[..., Any]) -> bool:
    """Tell whether the first parameter is annotated as a Context, also as a string. DefinitionError
    if another parameter is: no value could be passed for it.
    """
    parameters = list(inspect.signature(function).parameters.values())
    by_position = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    first = by_position[0] if by_position else None
    for other in parameters:
        if other is not first and other.annotation in (Context, "Context", "windlass.Context"):
            message = (
                f"{function.__qualname__} takes its context as {other.name!r}, in the wrong place: "
                f"make it the first parameter, ({other.name}: Context, …)"
            )
            raise DefinitionError(message)
    if first is None:
        return False
    annotation = first.annotation
    if not isinstance(annotation, str):
        return annotation is Context
    path = annotation.strip("'\" ").split(".")
    if path[-1] != "Context":
        return False
    # The name may be imported for type checkers only; then its last part has to do.
    found: Any = getattr(function, "__globals__", {}).get(path[0])
    for part in path[1:]:
        found = getattr(found, part, None)
    return found is None or found is Context
