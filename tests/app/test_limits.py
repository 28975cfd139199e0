"""Limits of tasks: what is refused, what a call takes of them, and whose numbers hold."""

from __future__ import annotations

import enum
import sys
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from types import ModuleType
from typing import Any

import pytest

from windlass import Context, Limit, Rate, Secret, Windlass
from windlass._app.parts import parts_of
from windlass._core.job.job import LimitUse
from windlass._core.limits.limit import LimitSpec
from windlass._tasks.task import Task
from windlass.errors import ConfigError, DefinitionError, InvalidArgument, LimitUnknown
from windlass.testing import VirtualClock, drain

RATE = Rate(10, 1)


@dataclass
class Order:
    tenant: str | None
    lines: list[str]


class Plan(enum.Enum):
    FREE = "free"


def limited(app: Windlass, limit: Limit) -> Task[..., Any]:
    async def work(
        tenant_id: str | int | None = "nobody",
        *,
        order: Order | None = None,
        plan: Plan = Plan.FREE,
        facts: Any = None,
        tokens: float = 3,
    ) -> None: ...

    return app.task(limits=[limit])(work)


async def used(task: Task[..., Any], *args: Any, **kwargs: Any) -> LimitUse:
    (use,) = (await (await task.enqueue(*args, **kwargs)).refresh()).limits
    return use


# --- refused when defined ---


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Limit("two words", RATE), "a limit's name"),
        (lambda: Limit("a:b", RATE), "':'"),
        (lambda: Limit("api"), "needs rate= or concurrency="),
        (lambda: Limit("api", concurrency=0), "concurrency of at least 1"),
        (lambda: Limit("api", concurrency=-1), "concurrency of at least 1"),
        (lambda: Limit("api", concurrency=True), "whole concurrency"),
        (lambda: Limit("api", concurrency=1.5), "whole concurrency"),  # type: ignore[arg-type]
        (lambda: Limit("api", rate=10), r"rate=Rate\(n, per\), got 10"),  # type: ignore[arg-type]
        (lambda: Rate(-1, 1), "n above 0"),
        (lambda: Rate(0, 1), "n above 0"),
        (lambda: Rate("10", 1), "in numbers"),  # type: ignore[arg-type]
        (lambda: Rate(10, 0), "a period above 0"),
        (lambda: Rate(10, 1, burst=0), "burst of at least 1"),
        (lambda: Rate(10, 1, burst=1.5), "whole burst"),  # type: ignore[arg-type]
        (lambda: Limit("api", RATE, key="tenant_id"), r"\{tenant_id\}.*got 'tenant_id'"),
        (lambda: Limit("api", RATE, key=""), "names arguments in braces"),
        (lambda: Limit("api", RATE, key="{}"), "names arguments in braces"),
        (lambda: Limit("api", RATE, key="{a"), "names arguments in braces"),
        (lambda: Limit("api", RATE, key="{a!r}"), "names arguments in braces"),
        (lambda: Limit("api", RATE, key="{a:>5}"), "names arguments in braces"),
        (lambda: Limit("api", RATE, key="{a[0]}"), "names arguments in braces"),
        (lambda: Limit("api", RATE, key="{a}{b}"), "something between two"),
        (lambda: Limit("api", RATE, cost=-1), "0 or more, got -1"),
        (lambda: Limit("api", RATE, cost=float("nan")), "0 or more"),
        (lambda: Limit("api", RATE, cost=True), "must be a number"),
        (lambda: Limit("api", RATE, cost="tokens"), r"\{tokens\}"),
        (lambda: Limit("api", RATE, cost="{a}-{b}"), "is one argument"),
        (lambda: Limit("api", concurrency=1, cost=2), "give rate=, too"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(make: Callable[[], object], told: str) -> None:
    with pytest.raises(InvalidArgument, match=told):
        make()


@pytest.mark.parametrize(
    ("limits", "error", "told"),
    [
        (["api"], InvalidArgument, r"limits=\[api\]; got 'api'"),
        ("api", InvalidArgument, "limits takes Limit objects"),
        ([RATE], InvalidArgument, "limits takes Limit objects"),
        ([Limit("api", RATE), Limit("api", RATE)], InvalidArgument, "twice"),
        (Limit("api", RATE, key="{tenent_id}"), DefinitionError, "Did you mean 'tenant_id'"),
        (Limit("api", RATE, key="{order.tenant}"), DefinitionError, "'order', which is no arg"),
        (Limit("api", RATE, cost="{tokens}"), DefinitionError, "'tokens', which is no argument"),
        (Limit("api", RATE, cost=lambda tokens: 1), DefinitionError, "It has tenant_id"),
        (Limit("api", RATE, cost=lambda **all_: 1), DefinitionError, "names the arguments"),
        (Limit("api", RATE, cost=lambda: 1), DefinitionError, "names the arguments"),
    ],
)
def test_limits_that_do_not_fit_the_task_are_refused(
    limits: Any, error: type[Exception], told: str
) -> None:
    app = Windlass("memory://")

    async def work(tenant_id: str) -> None: ...

    with pytest.raises(error, match=told):
        app.task(limits=limits)(work)
    assert len(app.tasks) == 0


def test_other_names_for_limits_are_understood() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'limits'"):
        Windlass("memory://").task(rate_limit="10/s")(print)  # type: ignore[call-overload]


def test_one_name_has_one_set_of_numbers() -> None:
    app = Windlass("memory://")

    async def first(tenant: str) -> None: ...
    async def second(customer: str) -> None: ...
    async def third() -> None: ...

    app.task(limits=Limit("api", RATE, key="{tenant}"))(first)
    app.task(limits=Limit("api", RATE, key="{customer}", cost=2))(second)
    with pytest.raises(DefinitionError, match="Make one Limit and give it to both"):
        app.task(limits=Limit("api", Rate(11, 1)))(third)


# --- what a call takes ---


@pytest.mark.parametrize(
    ("key", "arguments", "taken"),
    [
        ("{tenant_id}", {"tenant_id": "acme"}, "acme"),
        ("{tenant_id}", {"tenant_id": 7}, "7"),
        ("{tenant_id}", {}, "nobody"),
        ("{tenant_id}", {"tenant_id": None}, ""),
        ("{plan}", {}, "free"),
        ("{plan}", {"plan": Plan.FREE}, "free"),
        ("{facts}", {"facts": True}, "true"),
        ("{facts}", {"facts": uuid.UUID(int=1)}, str(uuid.UUID(int=1))),
        ("{order.tenant}", {"order": Order("acme", [])}, "acme"),
        ("{order.tenant}", {"order": None}, ""),
        ("{facts.user.id}", {"facts": {"user": {"id": 5}}}, "5"),
        ("{plan}:{tenant_id}!", {"tenant_id": "a:b\\"}, "free:a\\:b\\\\!"),
    ],
)
async def test_the_key_is_taken_from_the_arguments(
    app: Windlass, key: str, arguments: dict[str, Any], taken: str
) -> None:
    use = await used(limited(app, Limit("api", RATE, key=key)), **arguments)
    assert use == LimitUse("api", taken, 1.0)


@pytest.mark.parametrize(
    ("limit", "arguments", "cost"),
    [
        (Limit("api", RATE), {}, 1),
        (Limit("api", RATE, cost=2.5), {}, 2.5),
        (Limit("api", RATE, cost=0), {}, 0),
        (Limit("api", RATE, cost="{tokens}"), {}, 3),
        (Limit("api", RATE, cost="{tokens}"), {"tokens": 70}, 70),
        (Limit("api", RATE, cost="{facts.size}"), {"facts": {"size": 9}}, 9),
        (Limit("api", RATE, cost=lambda order: len(order.lines)), {"order": Order("", ["x"])}, 1),
        (Limit("api", RATE, cost=lambda tokens, plan: tokens * len(plan.value)), {}, 12),
    ],
)
async def test_the_cost_is_computed_when_the_job_is_enqueued(
    app: Windlass, limit: Limit, arguments: dict[str, Any], cost: float
) -> None:
    assert await used(limited(app, limit), **arguments) == LimitUse("api", "", cost)


@pytest.mark.parametrize(
    ("limit", "arguments", "told"),
    [
        (Limit("api", RATE, key="{facts}"), {"facts": [1]}, "must be text, a whole number"),
        (Limit("api", RATE, key="{facts}"), {"facts": 0.5}, "must be text, a whole number"),
        (Limit("api", RATE, key="{facts.id}"), {"facts": {}}, "no such part"),
        (Limit("api", RATE, key="{facts.id}"), {"facts": "x"}, "no such part"),
        (Limit("api", RATE, key="{tenant_id}"), {"tenant_id": "x" * 257}, "256 characters"),
        (Limit("api", RATE, cost="{tokens}"), {"tokens": -1}, "0 or more, got -1"),
        (Limit("api", RATE, cost="{facts}"), {"facts": "9"}, "must be a number"),
        (Limit("api", RATE, cost="{facts}"), {"facts": 10**400}, "too large"),
        (Limit("api", RATE, cost=lambda tokens: -tokens), {}, "0 or more"),
    ],
)
async def test_a_call_that_no_limit_can_count_is_refused(
    app: Windlass, limit: Limit, arguments: dict[str, Any], told: str
) -> None:
    with pytest.raises(InvalidArgument, match=told):
        await limited(app, limit).enqueue(**arguments)


async def test_a_call_may_say_its_own_cost(app: Windlass) -> None:
    one, other = Limit("one", RATE, cost=5), Limit("other", Rate(5, 1), concurrency=2)
    slots = Limit("slots", concurrency=1, key="{tenant}")

    @app.task(limits=[one, other, slots])
    async def work(tenant: str) -> None: ...

    async def costs(task: Any) -> dict[str, float]:
        job = await task.enqueue("acme")
        return {use.name: use.cost for use in (await job.refresh()).limits}

    assert await costs(work) == {"one": 5, "other": 1, "slots": 1}
    assert await costs(work.options(cost=7)) == {"one": 7, "other": 7, "slots": 1}
    assert await costs(work.options(cost={"other": 0})) == {"one": 5, "other": 0, "slots": 1}
    for cost, told in ((-1, "0 or more"), ("7", "a number"), ({"slots": 1}, "with a rate: one, o")):
        with pytest.raises(InvalidArgument, match=told):
            work.options(cost=cost)  # type: ignore[arg-type]

    @app.task
    async def free() -> None: ...

    with pytest.raises(InvalidArgument, match="needs a limit with a rate"):
        free.options(cost=1)


async def test_the_breaker_of_a_script_has_the_name_that_workers_know(
    app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fetch() -> None: ...

    script = ModuleType("__main__")
    script.__file__ = "shop.py"
    monkeypatch.setitem(sys.modules, "__main__", script)
    fetch.__module__ = "__main__"
    task = app.task(breaker=True)(fetch)
    assert (await used(task)).name == f"{task.name} (breaker)"
    assert task.name.startswith("shop.")


async def test_every_way_to_enqueue_counts(app: Windlass) -> None:
    task = limited(app, Limit("api", RATE, key="{tenant_id}"))
    jobs = await app.enqueue_many(task.call(name) for name in ("a", "b"))
    uses = [(await job.refresh()).limits for job in jobs]
    assert uses == [(LimitUse("api", "a"),), (LimitUse("api", "b"),)]


# --- whose numbers hold ---


async def numbers(app: Windlass) -> dict[str, LimitSpec]:
    return {report.spec.name: report.spec for report in await app.admin.limits.list()}


def deploy(url: str, rate: Rate, **more: Any) -> tuple[Windlass, Task[..., Any]]:
    app = Windlass(url)
    return app, limited(app, Limit("api", rate, **more))


async def test_a_worker_brings_the_limits_of_its_tasks(app: Windlass) -> None:
    limited(app, Limit("api", RATE))
    assert await numbers(app) == {}
    await parts_of(app).workers.make(parts_of(app).workers.settings())
    assert await numbers(app) == {"api": LimitSpec(name="api", rate=RATE)}


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Any) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/jobs.db"
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found


async def test_an_operators_limit_survives_restarts_and_ends_with_a_deploy(url: str) -> None:
    odd = Rate(1 / 3, 0.7, burst=2)  # numbers that do not survive a careless round trip
    first, task = deploy(url, odd, concurrency=4)
    async with first:
        await task.enqueue()
        assert (await numbers(first))["api"].rate == odd
        changed = await first.admin.limits.set("api", rate=Rate(7, 1))
        assert changed == LimitSpec(name="api", rate=Rate(7, 1), concurrency=4)
    again, task = deploy(url, odd, concurrency=4)
    async with again:
        await task.enqueue()
        workers = parts_of(again).workers
        await workers.make(workers.settings())
        assert (await numbers(again))["api"] == changed
    deployed, task = deploy(url, Rate(9, 1))
    async with deployed:
        await task.enqueue()
        assert await numbers(deployed) == {"api": LimitSpec(name="api", rate=Rate(9, 1))}


async def test_a_limit_is_set_only_to_what_a_task_could_ask_for(app: Windlass) -> None:
    await limited(app, Limit("api", RATE)).enqueue()
    with pytest.raises(LimitUnknown, match="Did you mean 'api'"):
        await app.admin.limits.set("apy", concurrency=2)
    with pytest.raises(LimitUnknown):
        await app.admin.limits.set("nothing", concurrency=2)
    for wrong in ({}, {"concurrency": 0}, {"rate": 5}):
        with pytest.raises(InvalidArgument):
            await app.admin.limits.set("api", **wrong)  # type: ignore[arg-type]


async def test_limits_are_reported_with_their_budgets(app: Windlass) -> None:
    task = limited(app, Limit("api", RATE, key="{tenant_id}"))
    job = await task.enqueue("acme")
    async with app.worker():
        await job.result(timeout=20)
        (report,) = await app.admin.limits.list()
        assert report.spec == LimitSpec(name="api", rate=RATE)
        assert [budget.key for budget in report.budgets] == ["acme"]


# --- orders --------------------------------------------------------------------------------------


async def test_one_limit_is_reported_by_its_name(app: Windlass) -> None:
    await limited(app, Limit("api", RATE)).enqueue()
    assert [await app.admin.limits.get("api")] == await app.admin.limits.list()
    with pytest.raises(LimitUnknown, match="Did you mean 'api'"):
        await app.admin.limits.get("apu")


def both_of(app: Windlass, name: str = "work") -> Any:
    @app.task(name=name, limits=[Limit("api", rate=Rate(5, per=10, burst=4), concurrency=3)])
    async def work() -> None: ...

    return work


async def test_one_part_of_a_limit_is_taken_away_and_the_other_stays() -> None:
    async with Windlass("memory://") as app:
        await both_of(app).enqueue()
        assert await app.admin.limits.set("api", concurrency=None) == LimitSpec(
            name="api", rate=Rate(5, per=10, burst=4)
        )
        with pytest.raises(InvalidArgument, match="neither rate nor concurrency"):
            await app.admin.limits.set("api", rate=None)
        assert await app.admin.limits.set("api", rate=None, concurrency=9) == LimitSpec(
            name="api", concurrency=9
        )


async def test_a_bucket_is_emptied_and_filled_by_hand() -> None:
    clock = VirtualClock()
    async with Windlass("memory://", clock=clock) as app:
        await both_of(app).enqueue()
        await app.admin.limits.drain("api")
        (report,) = await app.admin.limits.list()
        assert [state.spent_until for state in report.budgets] == [
            clock.now() + timedelta(seconds=8)
        ]
        await app.admin.limits.reset("api")
        (report,) = await app.admin.limits.list()
        assert [state.spent_until for state in report.budgets] == [None]


async def test_actions_on_unknown_limits_are_refused() -> None:
    async with Windlass("memory://") as app:
        await both_of(app).enqueue()
        for order in (app.admin.limits.drain, app.admin.limits.reset):
            with pytest.raises(InvalidArgument, match="key must be text"):
                await order("api", 7)  # type: ignore[arg-type]
        await app.admin.limits.set("api", rate=None)
        with pytest.raises(InvalidArgument, match="no bucket to drain"):
            await app.admin.limits.drain("api")
        for order in (app.admin.limits.drain, app.admin.limits.reset):
            with pytest.raises(LimitUnknown, match="Did you mean 'api'"):
                await order("apo")


# --- keys from the job ---


async def test_a_key_names_what_the_job_has(app: Windlass) -> None:
    task = limited(app, Limit("api", RATE, key="{tenant}/{queue}/{priority}/{correlation_id}"))
    options: dict[str, Any] = {"tenant": "acme", "priority": 3, "correlation_id": "r-1"}
    job = await task.options(**options, queue="mail").enqueue()
    assert (await job.refresh()).limits == (LimitUse("api", "acme/mail/3/r-1", 1.0),)
    (job,) = await app.enqueue_many([task.options(priority=3).call()])
    assert (await job.refresh()).limits == (LimitUse("api", "/default/3/", 1.0),)


async def test_an_argument_of_the_same_name_wins(app: Windlass) -> None:
    @app.task(limits=[Limit("api", RATE, key="{tenant}")])
    async def work(tenant: str) -> None: ...

    job = await work.options(tenant="of the job").enqueue("of the call")
    assert (await job.refresh()).limits == (LimitUse("api", "of the call", 1.0),)


async def test_a_key_sees_the_tenant_that_a_handler_passes_on() -> None:
    app = Windlass("memory://")
    child = limited(app, Limit("api", RATE, key="{tenant}"))
    made: list[Any] = []

    @app.task
    async def parent(ctx: Context) -> None:
        made.extend([await child.enqueue(), await ctx.enqueue(child.call())])

    await parent.options(tenant="acme").enqueue()
    await drain(app)
    keys = [(await job.refresh()).limits[0].key for job in made]
    assert keys == ["acme", "acme"]


async def test_a_key_holds_a_digest_of_a_principal_that_is_a_secret_argument(
    app: Windlass,
) -> None:
    @app.task(limits=[Limit("api", RATE, key="{principal}")])
    async def work(user_id: Secret[str]) -> None: ...

    key = (await (await work.enqueue("canary")).refresh()).limits[0].key
    assert key.startswith("secret:")
    key = (await (await work.options(principal="ada").enqueue("canary")).refresh()).limits[0].key
    assert key == "ada"


@pytest.mark.parametrize("key", ["{tenants}", "{tenant.name}", "{parent}"])
def test_a_key_that_names_nothing_says_what_there_is(app: Windlass, key: str) -> None:
    with pytest.raises(DefinitionError, match="tenant, principal, queue, priority"):
        limited(app, Limit("api", RATE, key=key))
