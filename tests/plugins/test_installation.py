"""``app.install``: everything a plugin brings, or nothing of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.plugins.fakes import EVERYTHING, Some, untouched
from windlass import (
    Backoff,
    Context,
    Cron,
    Every,
    Failure,
    Grants,
    Limit,
    Registrar,
    Unique,
    Windlass,
)
from windlass._app.parts import parts_of
from windlass.errors import (
    DefinitionError,
    DuplicateTask,
    InvalidArgument,
    NotGranted,
    PluginUnknown,
    WindlassError,
)
from windlass.testing._clock import START

A_FAILURE = Failure(
    job_id="1",
    task="t",
    queue="q",
    arguments=None,
    attempt=1,
    max_attempts=1,
    error_kind="",
    error_message="",
    started_at=START,
)


@pytest.fixture
def app() -> Windlass:
    return Windlass("memory://")


async def greet(ctx: Context, name: str) -> str:
    """Says hello."""
    return f"hello {name} from {ctx.task}"


async def around(ctx: Context, call_next: Callable[[], Any]) -> Any:
    return await call_next()


def brings_everything(registrar: Registrar) -> None:
    task = registrar.task(queue="mail", timeout=5, concurrency=1)(greet)
    registrar.schedule(Every(60), args=["ada"])(task)
    registrar.schedule(Cron("0 8 * * *"), name="mornings.early", kwargs={"name": "bob"})(task)
    registrar.middleware(around)
    registrar.service("mailer")

    @registrar.chore(Every(60))
    async def sweep(services: object) -> None: ...


def test_names_of_a_plugin_are_prefixed_with_its_name(app: Windlass) -> None:
    installed = app.install(Some(brings_everything), grants=EVERYTHING)
    assert installed is app.plugins["some"]
    assert app.tasks.names == ["some.greet"]
    names = ["some.greet", "some.mornings.early", "some.sweep"]
    assert sorted(installed.schedules) == names
    assert sorted(parts_of(app).schedules.plans(app.settings)[0])[:3] == names
    assert len(parts_of(app).hooks.layers) == 1
    assert installed.documentation == "Says what a test wants.\n\nAnd has a second paragraph."
    (task,) = installed.tasks
    assert (task.documentation, task.concurrency) == ("Says hello.", 1)
    assert (task.settings.queue, task.settings.breaker is not None) == ("mail", True)


def test_documentation_can_be_said(app: Windlass) -> None:
    installed = app.install(Some(lambda it: it.describe(" Something else. ")))
    assert installed.documentation == "Something else."


def test_a_task_that_names_no_queue_waits_in_the_first_one_granted(app: Windlass) -> None:
    app.install(Some(lambda it: it.task(greet)), grants=Grants(tasks=True, queues=["b", "a"]))
    assert app.tasks["some.greet"].settings.queue == "b"


LACKING = {
    "tasks=True": Grants(schedules=True, chores=True, middleware="own", queues=["mail"]),
    "schedules=True": Grants(tasks=True, queues=["mail"], chores=True),
    "chores=True": Grants(tasks=True, queues=["mail"], schedules=True),
    "queues=['mail']": Grants(tasks=True, schedules=True, queues=["default"]),
    "middleware='own' or 'all'": Grants(tasks=True, schedules=True, queues=["mail"]),
    "services=['mailer']": Grants(tasks=True, queues=["mail"], services=["bank"]),
}


@pytest.mark.parametrize("missing", LACKING)
def test_missing_grants_are_named_and_nothing_remains(app: Windlass, missing: str) -> None:
    with pytest.raises(NotGranted) as refused:
        app.install(Some(brings_everything), grants=LACKING[missing])
    assert missing in str(refused.value)
    assert refused.value.code == "not_granted"
    assert untouched(app)


def test_without_grants_everything_is_refused_at_once(app: Windlass) -> None:
    with pytest.raises(NotGranted) as refused:
        app.install(Some(brings_everything))
    assert all(missing in str(refused.value) for missing in LACKING)
    with pytest.raises(NotGranted, match=r"queues=\[…\]"):
        app.install(Some(lambda it: it.task(greet)), grants=Grants(tasks=True))
    assert untouched(app)


def test_an_error_in_a_plugin_leaves_nothing_behind(app: Windlass) -> None:
    def breaks(registrar: Registrar) -> None:
        brings_everything(registrar)
        raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        app.install(Some(breaks), grants=EVERYTHING)
    assert untouched(app)


def twice_the_same_task(it: Registrar) -> None:
    it.task(greet)
    it.task(name="greet")(greet)


def twice_the_same_schedule(it: Registrar) -> None:
    task = it.task(greet)
    it.schedule(Every(60), args=["a"])(task)
    it.schedule(Every(90), args=["b"])(task)


def a_chore_called_like_a_schedule(it: Registrar) -> None:
    it.schedule(Every(60), args=["a"])(it.task(greet))

    @it.chore(Every(60), name="greet")
    async def sweep(services: object) -> None: ...


def wrongly(registrar: Registrar) -> Any:
    """As whoever does without a type checker uses it."""
    return registrar


WRONG: list[tuple[Callable[[Registrar], Any], type[Exception], str]] = [
    (twice_the_same_task, DuplicateTask, "some.greet"),
    (twice_the_same_schedule, DefinitionError, "two schedules"),
    (a_chore_called_like_a_schedule, DefinitionError, "two schedules"),
    (lambda it: wrongly(it).task(retries=3)(greet), WindlassError, "max_attempts"),
    (lambda it: it.task(concurrency=0)(greet), InvalidArgument, "at least 1"),
    (lambda it: it.task(name="a:b")(greet), InvalidArgument, "':'"),
    (lambda it: it.task(lambda: None), DefinitionError, "lambda"),
    (lambda it: wrongly(it).middleware("layer"), DefinitionError, "middleware is"),
    (lambda it: wrongly(it).schedule("* * * * *"), InvalidArgument, "Cron"),
    (lambda it: wrongly(it).chore("* * * * *"), InvalidArgument, "Cron"),
    (lambda it: wrongly(it).chore(Every(60))(greet.__class__), DefinitionError, "function"),
    (lambda it: wrongly(it).chore(Every(60))(greet), DefinitionError, "a chore is"),
    (lambda it: wrongly(it).chore(Every(60))(untouched), DefinitionError, "a chore is"),
    (lambda it: it.schedule(Every(60))(it.task(greet)), DefinitionError, "name"),
    (lambda it: it.task(on_failure="host.tell")(greet), DefinitionError, "no task of plugin"),
    (
        lambda it: it.task(limits=Limit("greet", concurrency=2), concurrency=1)(greet),
        InvalidArgument,
        "twice",
    ),
    (
        lambda it: it.task(unique=Unique(key="{name}", scope="global"))(greet),
        NotGranted,
        "scope='global'",
    ),
    (
        lambda it: it.schedule(Every(9))(it.task(greet).options(queue="vip").call("a")),
        NotGranted,
        "'vip'",
    ),
]


@pytest.mark.parametrize(("say", "kind", "words"), WRONG)
def test_an_invalid_plugin_is_refused_and_nothing_remains(
    app: Windlass, say: Callable[[Registrar], Any], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        app.install(Some(say), grants=EVERYTHING)
    assert untouched(app)


def test_a_name_that_the_host_has_taken_leaves_nothing_behind(app: Windlass) -> None:
    @app.schedule(Every(60), name="some.mornings.early")
    @app.task(name="some.other")
    async def host() -> None: ...

    with pytest.raises(DefinitionError, match="mornings"):
        app.install(Some(brings_everything), grants=EVERYTHING)
    assert app.tasks.names == ["some.other"]
    assert list(app.plugins) == ["windlass"]

    @app.task(name="some.greet")
    async def greets() -> None: ...

    with pytest.raises(DuplicateTask):
        app.install(Some(lambda it: it.task(greet)), grants=EVERYTHING)
    assert app.tasks["some.greet"] is greets


def test_a_plugin_schedules_its_own_tasks_only(app: Windlass) -> None:
    @app.task(name="host.task")
    async def host(failure: Failure) -> None: ...

    call = host.call(A_FAILURE)
    with pytest.raises(DefinitionError, match="its own tasks only"):
        app.install(Some(lambda it: it.schedule(Every(60), name="x")(call)), grants=EVERYTHING)
    with pytest.raises(DefinitionError, match="no task of plugin"):
        app.install(Some(lambda it: it.task(on_failure=host)(greet)), grants=EVERYTHING)
    assert app.tasks.names == ["host.task"]


def test_equal_names_in_two_plugins_do_not_collide(app: Windlass) -> None:
    def limited(registrar: Registrar) -> None:
        count = 1 if not app.plugins.keys() - {"windlass"} else 2
        registrar.task(limits=Limit("api", concurrency=count))(greet)

    app.install(Some(limited, "one"), grants=EVERYTHING)
    app.install(Some(limited, "two"), grants=EVERYTHING)
    assert app.tasks.names == ["one.greet", "two.greet"]
    limits = [limit.name for task in app.tasks for limit in task.settings.limits]
    assert limits == ["one.api", "two.api"]


@pytest.mark.parametrize("name", ["", "a.b", "a:b", "a b", "1a", "ä", None, "x" * 65, "windlass"])
def test_names_that_would_mix_with_others_are_refused(app: Windlass, name: Any) -> None:
    with pytest.raises(InvalidArgument):
        app.install(Some(lambda it: None, name), grants=EVERYTHING)
    assert untouched(app)


def test_a_wrong_plugin_object_is_refused_with_advice(app: Windlass) -> None:
    with pytest.raises(InvalidArgument, match="register"):
        app.install(object())  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="an object, not its class"):
        app.install(Some)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="Grants"):
        app.install(Some(lambda it: None), grants={"tasks": True})  # type: ignore[arg-type]


def test_a_plugin_is_installed_once(app: Windlass) -> None:
    app.install(Some(lambda it: None))
    with pytest.raises(DefinitionError, match="installed already"):
        app.install(Some(brings_everything), grants=EVERYTHING)
    assert not len(app.tasks)


def test_a_registrar_takes_nothing_after_the_installation(app: Windlass) -> None:
    kept: list[Registrar] = []
    app.install(Some(kept.append), grants=EVERYTHING)
    (registrar,) = kept
    for late in (
        lambda: registrar.task(greet),
        lambda: registrar.schedule(Every(60)),
        lambda: registrar.middleware(around),
        lambda: registrar.service("mailer"),
        lambda: registrar.chore(Every(60)),
        lambda: registrar.describe("late"),
    ):
        with pytest.raises(DefinitionError, match="its registrar is closed"):
            late()
    assert not len(app.tasks)


async def test_a_task_of_a_plugin_that_was_refused_takes_no_jobs(app: Windlass) -> None:
    tasks: list[Any] = []
    with pytest.raises(NotGranted):
        app.install(Some(lambda it: tasks.append(it.task(greet))))
    async with app:
        with pytest.raises(PluginUnknown) as refused:
            await tasks[0].enqueue("ada")
    assert refused.value.code == "plugin_unknown"


async def test_uninstalling_an_unknown_plugin_names_the_installed_ones(app: Windlass) -> None:
    with pytest.raises(PluginUnknown, match=r"(?s)windlas.*Did you mean 'windlass'"):
        await app.uninstall("windlas")


def test_on_failure_may_name_another_task_of_the_plugin(app: Windlass) -> None:
    def tells(registrar: Registrar) -> None:
        registrar.task(on_failure="tell", backoff=Backoff.none())(greet)

        @registrar.task
        async def tell(failure: Failure) -> None: ...

    app.install(Some(tells), grants=EVERYTHING)
    assert app.tasks["some.greet"].settings.on_failure == "some.tell"


@pytest.mark.parametrize(
    "wrong",
    [
        {"tasks": 1},
        {"queues": "mail"},
        {"queues": [""]},
        {"queues": 5},
        {"services": "mailer"},
        {"middleware": True},
        {"max_running": 0},
        {"max_running": True},
        {"max_running": 1.5},
    ],
)
def test_grants_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        Grants(**wrong)
