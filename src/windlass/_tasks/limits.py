"""Limits as users write them: the budget of a task's calls, with its key and cost."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import msgspec

from windlass._core.job.job import LimitUse
from windlass._core.limits.breaker import Breaker
from windlass._core.limits.limit import LimitSpec, Rate
from windlass._core.values.names import check_name, shown
from windlass._storage.protocol.limits import LimitStore
from windlass._tasks.key_template import KeyTemplate, check_argument, parse_template, value_at_path
from windlass.errors import DefinitionError, InvalidArgument

__all__ = [
    "JOB_ATTRIBUTES",
    "Costs",
    "Limit",
    "LimitBinding",
    "LimitDefinitions",
    "breaker_name",
    "breaker_of",
    "check_costs",
    "is_written",
    "limits_of",
    "task_of_breaker",
]

Costs = float | dict[str, float]
"""The cost of one call: for every rate of its task, or by the names of the limits."""

JOB_ATTRIBUTES = ("tenant", "principal", "queue", "priority", "correlation_id")
"""Attributes of the job that keys may name besides arguments."""


class Limit(msgspec.Struct, frozen=True):
    """A rate or concurrency limit of the whole cluster, shared by every task it is given to.

    - ``name``: the name it is stored with. Tasks with the same name share the budget.
    - ``rate``: `Rate`, how many jobs may start in a time.
    - ``concurrency``: how many jobs may run at once.
    - ``key``: a separate budget for each value of an argument, such as ``"{tenant_id}"``, or of the
      job's tenant, principal, queue, priority or correlation_id.
    - ``cost``: tokens of the rate that a job takes: a number, an argument such as ``"{tokens}"``,
      or a function of arguments. Default: 1.
    """

    name: str
    rate: Rate | None = None
    concurrency: int | None = None
    key: str | None = None
    cost: float | str | Callable[..., float] | None = None

    def __post_init__(self) -> None:
        check_name(self.name, "a limit's name")
        given: tuple[object, object] = self.rate, self.concurrency
        rate, concurrency = given
        if rate is not None and not isinstance(rate, Rate):
            message = f"limit {self.name!r} needs rate=Rate(n, per), got {shown(rate)}"
            raise InvalidArgument(message)
        whole = isinstance(concurrency, int) and not isinstance(concurrency, bool)
        if concurrency is not None and not whole:
            message = f"limit {self.name!r} needs a whole concurrency, got {shown(concurrency)}"
            raise InvalidArgument(message)
        _ = self.spec
        if self.key is not None:
            parse_template(self.key, f"the key of limit {self.name!r}", "tenant_id")
        if self.cost is not None:
            self._check_cost()

    def _check_cost(self) -> None:
        if self.rate is None:
            message = f"limit {self.name!r}: cost= is taken from a rate, so give rate=, too"
            raise InvalidArgument(message)
        what = f"the cost of limit {self.name!r}"
        match self.cost:
            case str():
                parts = parse_template(self.cost, what, "tokens")
                if len(parts) > 1 or parts[0][0]:
                    message = f'{what} is one argument such as cost="{{tokens}}", got {self.cost!r}'
                    raise InvalidArgument(message)
            case cost if not callable(cost):
                _number(cost, what)

    @property
    def spec(self) -> LimitSpec:
        """The limit as it is stored."""
        return LimitSpec(name=self.name, rate=self.rate, concurrency=self.concurrency)


def limits_of(given: object) -> tuple[Limit, ...]:
    """Check the ``limits=`` of a task."""
    listed = tuple(given) if isinstance(given, list | tuple | set | frozenset) else (given,)
    limits: dict[str, Limit] = {}
    for each in listed:
        if not isinstance(each, Limit):
            message = (
                f"limits takes Limit objects: make one, api = Limit('api', rate=Rate(10, per=1)), "
                f"and give it to every task that shares it, limits=[api]; got {shown(each)}"
            )
            raise InvalidArgument(message)
        if each.name in limits:
            message = f"limits names {each.name!r} twice: two limits need two names"
            raise InvalidArgument(message)
        limits[each.name] = each
    return tuple(limits.values())


class LimitBinding:
    """One limit of one task: makes the key and the cost of its calls."""

    __slots__ = ("_cost", "_key", "limit")

    def __init__(self, limit: Limit, arguments: Collection[str], task: str) -> None:
        """Check that ``task`` has the arguments of the key and the cost."""
        self.limit: Limit = limit
        self._key: KeyTemplate | None = None
        self._cost: Callable[[Mapping[str, Any]], object] = lambda _: 1.0
        if limit.key is not None:
            what = f"the key of limit {limit.name!r}"
            self._key = KeyTemplate(limit.key, what, arguments, task, JOB_ATTRIBUTES)
        match limit.cost:
            case None:
                pass
            case str():
                ((_, way),) = parse_template(limit.cost, "cost", "tokens")
                check_argument(way[:1], arguments, f"the cost of limit {limit.name!r}", task)
                self._cost = lambda given: value_at_path(
                    way, given, f"the cost of limit {limit.name!r}"
                )
            case int() | float() as number:
                self._cost = lambda _: number
            case function:
                names = _parameters(function, limit.name)
                check_argument(names, arguments, f"the cost of limit {limit.name!r}", task)
                self._cost = lambda given: function(*(given[name] for name in names))

    @property
    def reads_arguments(self) -> bool:
        """Whether calls may use different budgets, or take different amounts."""
        cost = self.limit.cost
        return self._key is not None or isinstance(cost, str) or callable(cost)

    @property
    def reads_job(self) -> bool:
        """Whether the key names an attribute of the job that is no argument."""
        return self._key is not None and self._key.reads_job

    def use(
        self, arguments: Mapping[str, Any], costs: Costs | None, secrets: Collection[str] = ()
    ) -> LimitUse:
        """Return the key and the cost of a call with these arguments, some of them ``secrets``.
        They include the `JOB_ATTRIBUTES` if it reads them.
        """
        name = self.limit.name
        cost: object = costs.get(name) if isinstance(costs, dict) else costs
        if self.limit.rate is None:
            cost = 1.0
        elif cost is None:
            cost = self._cost(arguments)
        key = "" if self._key is None else self._key.fill(arguments, secrets)
        return LimitUse(name, key, _number(cost, f"the cost of limit {name!r}"))


def _parameters(function: Callable[..., float], limit: str) -> tuple[str, ...]:
    try:
        parameters = [*inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):
        parameters = []
    plain = all(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)
    if not parameters or not plain:
        message = (
            f"the cost of limit {limit!r} is a function that names the arguments it needs, as in "
            f"cost=lambda prompt: len(prompt)"
        )
        raise DefinitionError(message)
    return tuple(p.name for p in parameters)


def _number(value: object, what: str) -> float:
    fits = isinstance(value, int | float) and not isinstance(value, bool)
    if not isinstance(value, int | float) or not fits or not 0 <= value < math.inf:
        message = f"{what} must be a number, 0 or more, got {shown(value)}"
        raise InvalidArgument(message)
    try:
        return float(value)
    except OverflowError:
        message = f"{what} is too large: {shown(value)}"
        raise InvalidArgument(message) from None


def check_costs(costs: object, draws: Collection[LimitBinding], task: str) -> Costs | None:
    """Check the ``cost=`` of a call of ``task``, whose limits are ``draws``."""
    if costs is None:
        return None
    rates = [draw.limit.name for draw in draws if draw.limit.rate is not None]
    if not rates:
        message = f"cost= needs a limit with a rate, and task {task!r} has none"
        raise InvalidArgument(message)
    if not isinstance(costs, Mapping):
        return _number(costs, "cost")
    for name in costs:
        if name not in rates:
            message = (
                f"cost= names {name!r}, which is no limit of task {task!r} with a rate: "
                f"{', '.join(rates)}"
            )
            raise InvalidArgument(message)
    return {name: _number(cost, f"cost[{name!r}]") for name, cost in costs.items()}


# --- where they are kept -------------------------------------------------------------------------

_WRITTEN, _BREAKER = " (code)", " (breaker)"
"""Names with a space: no limit of a user has one."""


def breaker_name(task: str) -> str:
    """Return the name that a task's breaker is stored with."""
    return f"{task}{_BREAKER}"


def breaker_of(given: object, task: str) -> Breaker | None:
    """Check the ``breaker=`` of a task."""
    if given is False:
        return None
    breaker = Breaker() if given is True else given
    if not isinstance(breaker, Breaker):
        message = f"breaker is True or a Breaker such as Breaker(failures=5), got {shown(given)}"
        raise InvalidArgument(message)
    if ":" in task:
        message = f"a task with a breaker must not have ':' in its name, got {task!r}"
        raise InvalidArgument(message)
    return breaker


def task_of_breaker(breaker: LimitSpec) -> str:
    """Return the task of a breaker's name."""
    return breaker.name.removesuffix(_BREAKER)


def is_written(spec: LimitSpec) -> bool:
    """Tell whether this name is no limit, but the record of the values that code last stored."""
    return spec.name.endswith(_WRITTEN)


class LimitDefinitions:
    """Stores the limits and breakers of the code in one opened storage, each once.

    The code's values are stored only if they differ from the last ones that code stored. So an
    operator's values survive restarts, and a deploy with other values still takes effect.
    """

    def __init__(self, store: LimitStore) -> None:
        self._store = store
        self._kept: dict[str, LimitSpec] = {}

    async def keep(self, specs: Iterable[LimitSpec]) -> None:
        """Store these limits, so that jobs may use them."""
        # By value: a plugin that is installed again may have other numbers.
        new = {spec.name: spec for spec in specs if self._kept.get(spec.name) != spec}
        if not new:
            return
        stored = {spec.name: spec for spec in await self._store.specs()}
        said: list[LimitSpec] = []
        for name, spec in new.items():
            written = msgspec.structs.replace(spec, name=f"{name}{_WRITTEN}")
            if name not in stored or stored.get(written.name) != written:
                said += [spec, written]
        if said:
            await self._store.define(said)
        self._kept.update(new)
