"""Schedules as code writes them: a rule on a task or a call. Workers bring them to the store."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict, TypeVar

import msgspec

from windlass._client.client import new_job
from windlass._core.job.job import JobId, LimitUse
from windlass._core.limits.breaker import Breaker
from windlass._core.limits.limit import LimitSpec
from windlass._core.schedule.rules import Cron, Every, Manual, Once, Rule
from windlass._core.schedule.schedule import Overlap, RunsOn, Schedule, turn_of
from windlass._core.values.handler import source_of
from windlass._core.values.names import check_name, shown
from windlass._settings.settings import Settings
from windlass._tasks.limits import breaker_name
from windlass._tasks.task import Call, Task
from windlass.errors import DefinitionError, InvalidArgument, PayloadError, WindlassError

__all__ = [
    "ScheduleDeclaration",
    "ScheduleDecorator",
    "ScheduleKeywords",
    "ScheduleRegistry",
    "check_rule",
    "check_schedule_name",
    "is_built_in",
    "plan_schedule",
    "turn_limit",
]

_RULES = (Cron, Every, Once, Manual)
_OURS = "windlass."
Target = TypeVar("Target", bound="Task[..., Any] | Call[Any]")


class ScheduleDeclaration(msgspec.Struct, frozen=True):
    """The values of one ``@app.schedule``."""

    name: str
    call: Callable[[], Call[Any]] | None
    """Made late: the types that a task's annotations name may not exist yet. None: a chore."""
    outline: Schedule
    """Everything but the job."""
    breaker: bool = True


def plan_schedule(
    name: str, outline: Schedule, call: Call[Any], settings: Settings, *, breaker: bool = True
) -> tuple[Schedule, list[LimitSpec]]:
    """Return a schedule with the job of its slots, and the limits that it needs.

    ``breaker``: give the task one for these jobs, if it has none.
    """
    _check_call(name, call)
    task = call.task.settings
    if outline.on == "every_worker":
        if call.task.in_process:
            message = (
                f"schedule {name!r} runs in every worker itself: leave run_in='process' out of "
                f"task {task.name!r}, or on='every_worker' out of the schedule"
            )
            raise InvalidArgument(message)
        breaker = False  # a run without a job draws on no limit
    job = new_job(call, settings, JobId(""))
    specs = [*call.task.needs]
    uses = list(job.limits)
    if breaker and task.breaker is None:
        # Schedules fire unwatched: one that fails every time is stopped by a breaker.
        specs.append(LimitSpec(name=breaker_name(task.name), breaker=Breaker()))
        uses.append(LimitUse(breaker_name(task.name)))
    if outline.overlap == "queue":
        specs.append(turn_limit(name))
    job = msgspec.structs.replace(job, limits=tuple(uses), tags=(*job.tags, f"schedule:{name}"))
    return msgspec.structs.replace(outline, job=job), specs


def turn_limit(name: str) -> LimitSpec:
    """Return the limit that lets one run of a schedule run at a time."""
    return LimitSpec(name=turn_of(name), concurrency=1)


def _check_call(name: str, call: Call[Any]) -> None:
    ask = call.options
    if ask.delay is not None or ask.at is not None:
        message = f"schedule {name!r} decides when its jobs are due: leave delay= and at= out"
        raise InvalidArgument(message)
    if ask.connection is not None:
        message = f"schedule {name!r} fires by itself: leave connection= out"
        raise InvalidArgument(message)


def check_schedule_name(name: str) -> str:
    """Check a name that can also be part of the names of limits."""
    check_name(name, "a schedule's name")
    if ":" in name:
        message = f"a schedule's name must not contain ':', got {name!r}"
        raise InvalidArgument(message)
    if name.startswith(_OURS):
        message = f"names that begin with {_OURS!r} are reserved for Windlass, got {name!r}"
        raise InvalidArgument(message)
    return name


def is_built_in(name: str) -> bool:
    """Tell whether every app has a schedule of this name."""
    return name.startswith(_OURS)


def check_rule(rule: object) -> None:
    """Refuse what says no instants."""
    if not isinstance(rule, _RULES):
        hint = f"Cron({rule!r})" if isinstance(rule, str) else "Cron('0 8 * * *')"
        message = f"a schedule takes Cron, Every, Once or Manual, as in {hint}; got {shown(rule)}"
        raise InvalidArgument(message)


class ScheduleRegistry:
    """Every schedule of an app's code, by name."""

    def __init__(self) -> None:
        self._declared: dict[str, tuple[ScheduleDeclaration, str]] = {}
        self._planned: dict[str, tuple[Schedule, list[LimitSpec]]] = {}
        self._kept: tuple[dict[str, Schedule], list[LimitSpec]] | None = None
        self._listeners: tuple[Callable[[], None], ...] = ()

    def add(self, declared: ScheduleDeclaration, place: str) -> None:
        """Add a declaration. A name that is taken is refused."""
        self.extend([(declared, place)])

    def extend(self, many: Iterable[tuple[ScheduleDeclaration, str]]) -> None:
        """Add several, all or none."""
        new = {declared.name: (declared, place) for declared, place in many}
        for name, (_, place) in new.items():
            other = self._declared.get(name)
            if other is not None:
                message = (
                    f"two schedules are named {name!r} ({other[1]} and {place}): give the second "
                    f"one another name, @app.schedule(…, name=…)"
                )
                raise DefinitionError(message)
        self._declared.update(new)
        self.changed()

    def remove(self, name: str) -> None:
        """Say no more of it."""
        del self._declared[name]
        self._planned.pop(name, None)
        self.changed()

    def __len__(self) -> int:
        return len(self._declared)

    def __iter__(self) -> Iterator[tuple[ScheduleDeclaration, str]]:
        """Yield the declarations with the places they were written at."""
        return iter([*self._declared.values()])

    def plans(self, settings: Settings) -> tuple[dict[str, Schedule], list[LimitSpec]]:
        """Return their stored plans, and the limits they need.

        The same objects as before for schedules that have not been declared again since.
        """
        if self._kept is None:
            plans: dict[str, Schedule] = {}
            specs: list[LimitSpec] = []
            for declared, _ in self:
                name = declared.name
                if name not in self._planned:
                    self._planned[name] = _plan(declared, settings)
                plans[name], needed = self._planned[name]
                specs += needed
            self._kept = plans, specs
        return self._kept

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call ``listener``, from any thread, when something is said or unsaid; the answer ends
        it.
        """
        self._listeners = (*self._listeners, listener)

        def undo() -> None:
            self._listeners = tuple(one for one in self._listeners if one is not listener)

        return undo

    def changed(self) -> None:
        """Workers that run should look again: at schedules, and at the tasks."""
        self._kept = None
        for listener in self._listeners:
            listener()


def _plan(declared: ScheduleDeclaration, settings: Settings) -> tuple[Schedule, list[LimitSpec]]:
    if declared.call is None:
        return declared.outline, []
    breaker = declared.breaker
    try:
        call = declared.call()
    except (PayloadError, InvalidArgument) as error:
        raise DefinitionError(_misfit(declared.name, error)) from error
    return plan_schedule(declared.name, declared.outline, call, settings, breaker=breaker)


class ScheduleKeywords(TypedDict, total=False):
    """The options of ``@app.schedule``; its docstring explains them."""

    name: str | None
    args: Sequence[Any]
    kwargs: Mapping[str, Any] | None
    missed: Literal["skip", "one", "all"]
    most_missed: int
    overlap: Overlap
    jitter: timedelta | float | str
    starts: datetime | None
    ends: datetime | None
    breaker: bool
    on: RunsOn


class ScheduleDecorator:
    """``@app.schedule(...)``: on a task, or on a call of one."""

    def __init__(
        self,
        declarations: ScheduleRegistry,
        rule: Rule,
        *,
        name: str | None = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        missed: Literal["skip", "one", "all"] = "one",
        most_missed: int = 100,
        overlap: Overlap = "skip",
        jitter: timedelta | float | str = 0,
        starts: datetime | None = None,
        ends: datetime | None = None,
        breaker: bool = True,
        on: RunsOn = "one_worker",
    ) -> None:
        """Refuse what can be refused before there is a task."""
        check_rule(rule)
        self._declarations = declarations
        self._name = None if name is None else check_schedule_name(name)
        self._args, self._kwargs = tuple(args), dict(kwargs or {})
        self._breaker = bool(breaker)
        # Texts and numbers that `Schedule` makes values of. All are given: what is stored of a
        # schedule is compared with what was stored before, field by field.
        written: dict[str, Any] = {"missed": missed, "jitter": jitter}
        self._outline = Schedule(
            rule=rule,
            most_missed=most_missed,
            overlap=overlap,
            starts=starts,
            ends=ends,
            on=on,
            **written,
        )

    def __call__(self, target: Target) -> Target:
        """Declare it; the answer is what was given, so that several may stand above each other."""
        given: object = target
        if isinstance(given, Call):
            if self._args or self._kwargs:
                message = "a call already has its arguments: leave args= and kwargs= out"
                raise InvalidArgument(message)
            task: Task[..., Any] = given.task
            call: Callable[[], Call[Any]] = lambda: given  # noqa: E731 -- the same shape as below
        elif isinstance(given, Task):
            task = given
            call = lambda: task.call(*self._args, **self._kwargs)  # noqa: E731
        else:
            message = (
                f"write @app.schedule above @app.task, or give it a call such as "
                f"report.call('eu'); got {shown(target)}"
            )
            raise InvalidArgument(message)
        name = self._name or check_schedule_name(task.name)
        if not isinstance(given, Call):
            self._check_arguments(name, task)
        declared = ScheduleDeclaration(name, call, self._outline, self._breaker)
        self._declarations.add(declared, source_of(task.function))
        return target

    def _check_arguments(self, name: str, task: Task[..., Any]) -> None:
        signature = inspect.signature(task.function)
        first = (None,) if task.takes_context else ()
        try:
            signature.bind(*first, *self._args, **self._kwargs)
        except TypeError as error:
            message = (
                f"schedule {name!r} cannot call task {task.name!r}: {error}. Give args=(…) or "
                f"kwargs={{…}}"
            )
            raise DefinitionError(message) from None
        try:
            codec = task.codec
        except DefinitionError:
            return  # a type that its annotations name may come later: the worker checks then
        try:
            codec.encode(tuple(self._args), self._kwargs)
        except (PayloadError, InvalidArgument) as error:
            raise DefinitionError(_misfit(name, error)) from error


def _misfit(name: str, error: WindlassError) -> str:
    return f"the arguments of schedule {name!r} do not fit: {error}. Correct args= or kwargs="
