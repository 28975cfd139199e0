"""What is refused, when, and what the message tells to do instead."""

from __future__ import annotations

import asyncio
import functools
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from windlass import Context, Snooze, Windlass
from windlass.errors import (
    ConfigError,
    DefinitionError,
    DuplicateTask,
    InvalidArgument,
    PayloadError,
    PayloadTooLarge,
    UnknownScheme,
    UnknownTask,
)
from windlass.testing import VirtualClock, drain, isolated

if TYPE_CHECKING:
    from tests.nowhere import Missing  # type: ignore[import-not-found]


@pytest.fixture
def app() -> Windlass:
    return Windlass("memory://")


# --- options of a call ---


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"at": datetime(2030, 1, 1)}, "naive datetime"),  # noqa: DTZ001 -- that is the point
        ({"at": "tomorrow"}, "must be a datetime with a time zone"),
        ({"delay": -1}, "delay must not be negative"),
        ({"delay": "soon"}, "delay must be a timedelta, a number of seconds, or text"),
        ({"delay": float("nan")}, "delay is out of range"),
        ({"delay": 1, "at": datetime.fromisoformat("2030-01-01T00:00:00Z")}, "not both"),
        ({"priority": 40_000}, "16 bits"),
        ({"priority": "high"}, "16 bits"),
        ({"priority": 1.5}, "16 bits"),
        ({"key": ""}, "must be text, and not empty"),
        ({"key": 42}, "key must be text of at most 256 characters, got 42"),
        ({"key": "\ud800"}, "key holds half a character"),
        ({"principal": {"a": 1}}, r"principal must be text of at most 256 characters, got \{'a'"),
        ({"correlation_id": b"x"}, "correlation_id must be text of at most 256"),
        ({"tenant": 5}, "tenant must be text of at most 256"),
        ({"tenant": "x" * 257}, "tenant may have 256 characters, got 257"),
        ({"principal": "\udfff"}, "principal holds half a character"),
        ({"tags": ["\ud800"]}, "a tag holds half a character"),
        ({"tags": ["x" * 257]}, "a tag may have 256 characters"),
        ({"tags": 5}, "list of texts"),
        ({"queue": "q\ud800"}, "a queue's name"),
        ({"delay": timedelta(days=3_000_000)}, "delay may be at most 36,525 days"),
        ({"delay": timedelta.max}, "delay may be at most 36,525 days"),
        ({"expires": timedelta.max}, "expires may be at most 36,525 days"),
        ({"timeout": 1e11}, "timeout may be at most 36,525 days"),
        ({"key": "k", "unique_for": timedelta.max}, "unique_for may be at most 36,525 days"),
        ({"at": datetime.fromisoformat("9001-01-01T00:00:00Z")}, "after the year 9000"),
        ({"priority": True}, "16 bits"),
        ({"priority": 1.0}, "16 bits"),
        ({"max_attempts": True}, "at least 1"),
        ({"max_attempts": 2.0}, "at least 1"),
        ({"max_attempts": 1_000_001}, "at most 1,000,000"),
        ({"backoff": 5}, r"such as Backoff\.fixed\(5\), got 5"),
        ({"backoff": "slow"}, r"Backoff\.fixed\(5\), got 'slow'"),
        ({"key": "k", "unique": 3}, "'until_started' or 'until_finished'"),
        ({"unique": "until_started"}, "give key="),
        ({"unique_for": 60}, "give key="),
        ({"key": "k", "unique": "for_a_time"}, "give unique_for="),
        ({"key": "k", "unique_for": 0}, "unique_for must be longer than nothing"),
        ({"max_attempts": 0}, "at least 1"),
        ({"max_attempts": "3"}, "at least 1"),
        ({"queue": ""}, "a queue's name must be 1 to 128"),
        ({"queue": "two words"}, "without spaces"),
        ({"queue": "a,b"}, "must not contain ',' or '='"),
        ({"queue": "mail=10"}, "must not contain ',' or '='"),
        ({"queue": "x" * 129}, "1 to 128"),
        ({"queue": 7}, "a queue's name"),
        ({"timeout": 0}, "timeout must be longer than nothing"),
        ({"expires": 0}, "expires must be longer than nothing"),
        ({"tags": "vip"}, r"tags=\['vip'\]"),
        ({"tags": [1]}, "list of texts"),
    ],
)
def test_an_option_that_makes_no_sense_is_refused(
    app: Windlass, options: dict[str, Any], told: str
) -> None:
    @app.task
    async def work() -> None: ...

    with pytest.raises(InvalidArgument, match=told):
        work.options(**options)


async def test_a_key_that_is_too_long_is_refused(app: Windlass) -> None:
    @app.task
    async def work() -> None: ...

    with pytest.raises(InvalidArgument, match="digest"):
        await work.options(key="x" * 257).enqueue()


# --- arguments ---


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        (("one",), {}),
        ((1, 2, 3), {}),
        ((), {}),
        ((1,), {"unknown": 1}),
        ((1,), {"number": 1}),
        ((object(),), {}),
        ((float("nan"),), {}),
        ((1,), {"names": ["a", 1]}),
    ],
)
async def test_arguments_that_do_not_fit_are_refused_before_anything_is_stored(
    app: Windlass, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    @app.task
    async def work(number: int, *, names: list[str] | None = None) -> None: ...

    with pytest.raises(PayloadError, match="work"):
        await work.enqueue(*args, **kwargs)
    assert await app.admin.jobs.find() == []


async def test_the_context_cannot_be_given(app: Windlass) -> None:
    @app.task
    async def work(ctx: Context, number: int) -> None: ...

    with pytest.raises(PayloadError):
        await work.enqueue(1, 2)  # type: ignore[call-arg]
    await work.enqueue(1)


async def test_a_payload_above_the_limit_is_refused_with_advice() -> None:
    app = Windlass("memory://", payload_limit=1000)

    @app.task
    async def work(text: str) -> None: ...

    await work.enqueue("x" * 900)
    with pytest.raises(PayloadTooLarge, match=r"above the limit of 1,000.*pass its key"):
        await work.enqueue("x" * 1000)


# --- definitions ---


def test_two_tasks_of_one_name_are_refused_by_name(app: Windlass) -> None:
    """A29."""

    @app.task(name="send")
    async def first() -> None: ...

    with pytest.raises(DuplicateTask, match=r"'send': .*first and .*second.*name="):

        @app.task(name="send")
        async def second() -> None: ...

    assert list(app.tasks) == [first]


def test_an_unregistered_name_is_refused_with_a_suggestion(app: Windlass) -> None:
    """A28."""

    @app.task(name="send_email")
    async def send_email() -> None: ...

    with pytest.raises(UnknownTask, match=r"'send_emial'.*Did you mean 'send_email'\?.*imports="):
        app.tasks["send_emial"]
    assert app.tasks.find("send_emial") is None


def test_stars_that_say_nothing_are_refused_when_the_task_is_defined(app: Windlass) -> None:
    with pytest.raises(DefinitionError, match=r"takes \*names.*Annotate it"):

        @app.task
        async def one(*names) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN002

    assert len(app.tasks) == 0


async def test_stars_reach_the_handler_and_make_a_key(app: Windlass) -> None:
    @app.task(unique=True)
    async def add(*numbers: Decimal, **names: Decimal) -> Decimal:
        return sum(numbers, Decimal(0)) + names.get("two", 0)

    async with app.worker():
        job = await add.enqueue(Decimal("1.5"), two=Decimal(2))
        assert await job.result(timeout=30) == Decimal("3.5")
    first = await add.enqueue()
    assert not (await add.enqueue()).created
    assert (await add.enqueue(Decimal(1))).id != first.id


async def test_a_partial_is_a_task_with_the_parameters_it_leaves_open(app: Windlass) -> None:
    async def scale(by: int, price: Decimal, *, plus: int = 0) -> Decimal:
        return by * price + plus

    doubled = app.task(functools.partial(scale, 2))
    tripled = app.task(name="tripled", queue="default")(functools.partial(scale, 3, plus=1))
    assert doubled.name.endswith("scale")
    async with app.worker():
        assert await (await doubled.enqueue(Decimal("1.5"))).result(timeout=30) == 3
        assert await (await tripled.enqueue(price=Decimal(2))).result(timeout=30) == 7
    with pytest.raises(PayloadError, match="Extra positional"):
        await doubled.enqueue(Decimal(1), 2)


async def test_an_annotation_that_cannot_be_resolved_is_named_at_the_first_use(
    app: Windlass,
) -> None:
    @app.task
    async def work(thing: Missing) -> None: ...

    with pytest.raises(DefinitionError, match=r"'Missing'.*not only under TYPE_CHECKING"):
        await work.enqueue(None)


async def test_an_annotation_that_json_cannot_carry_is_named(app: Windlass) -> None:
    @app.task
    async def work(thing: int | list[int] | set[int]) -> None: ...

    with pytest.raises(DefinitionError, match="cannot be described as JSON"):
        await work.enqueue(1)


def test_a_task_is_not_registered_twice(app: Windlass) -> None:
    @app.task
    async def work() -> None: ...

    with pytest.raises(ConfigError, match="already a task"):
        app.task(work)


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"name": "two words"}, InvalidArgument, "a task's name"),
        ({"queue": "a,b"}, InvalidArgument, "must not contain ',' or '='"),
        ({"queue": ""}, InvalidArgument, "a queue's name"),
        ({"max_attempts": 0}, InvalidArgument, "at least 1"),
        ({"priority": 2**15}, InvalidArgument, "16 bits"),
        ({"timeout": -1}, InvalidArgument, "must not be negative"),
        ({"timeout": 0}, InvalidArgument, "longer than nothing"),
        ({"expires": 0}, InvalidArgument, "longer than nothing"),
        ({"run_in": "fork"}, InvalidArgument, "'auto', 'loop', 'thread' or 'process'"),
        ({"on_crash": "ignore"}, InvalidArgument, "'fail' or 'retry'"),
        ({"backoff": 5}, InvalidArgument, r"Backoff\.fixed\(5\)"),
        ({"backoff": timedelta(seconds=5)}, InvalidArgument, r"Backoff\.fixed\(5\)"),
        ({"priority": False}, InvalidArgument, "16 bits"),
        ({"max_attempts": True}, InvalidArgument, "at least 1"),
        ({"max_attempts": 10**9}, InvalidArgument, "at most 1,000,000"),
        ({"timeout": timedelta.max}, InvalidArgument, "at most 36,525 days"),
        ({"expires": timedelta(days=40_000)}, InvalidArgument, "at most 36,525 days"),
        ({"tags": ["\ud800"]}, InvalidArgument, "half a character"),
        ({"name": ""}, InvalidArgument, "a task's name"),
        ({"name": "a\ud800"}, InvalidArgument, "a task's name"),
        ({"queu": "mail"}, ConfigError, "Did you mean 'queue'?"),
        ({"retries": 3}, ConfigError, "Did you mean 'max_attempts'?"),
        ({"max_retries": 3}, ConfigError, "Did you mean 'max_attempts'?"),
        ({"countdown": 3}, ConfigError, r"task\.options\(delay=\.\.\.\)"),
        ({"eta": 3}, ConfigError, r"task\.options\(at=\.\.\.\)"),
        ({"key": "k"}, ConfigError, r"task\.options\(key=\.\.\.\)"),
        ({"run_in": "thread"}, DefinitionError, "runs on the loop"),
        ({"retry_on": ()}, InvalidArgument, "max_attempts=1 .* give_up_on=Exception"),
        ({"give_up_on": []}, InvalidArgument, "names no exception: leave it out"),
        ({"retry_on": "OSError"}, InvalidArgument, r"retry_on=\(ConnectionError,\), got 'OSError'"),
        ({"give_up_on": [OSError, 5]}, InvalidArgument, "classes of exceptions .* got 5"),
        ({"give_up_on": OSError("x")}, InvalidArgument, "classes of exceptions"),
        ({"retry_on": KeyboardInterrupt}, InvalidArgument, "classes of exceptions"),
        ({"retry_on": Snooze}, InvalidArgument, "Snooze already decides what follows"),
        ({"retry_on": OSError, "give_up_on": OSError}, InvalidArgument, "one of them"),
        ({"retry_on": TimeoutError, "give_up_on": OSError}, InvalidArgument, "one of them"),
        ({"autoretry_for": OSError}, ConfigError, "Did you mean 'retry_on'?"),
        ({"ignore_result": True}, ConfigError, "store_result=False"),
        ({"bind": True}, ConfigError, "ctx: Context"),
        ({"acks_late": True}, ConfigError, "always counts as done after its run"),
        ({"rate_limit": "9/m"}, ConfigError, r"'limits'\? .* limits=\[Limit\(.*rate="),
        ({"time_limit": 9}, ConfigError, "Did you mean 'timeout'?"),
        ({"result_expires": 9}, ConfigError, r"setting: Windlass\(keep_succeeded="),
    ],
)
def test_a_tasks_options_are_checked_when_it_is_defined(
    app: Windlass, options: dict[str, Any], error: type[Exception], told: str
) -> None:
    async def work() -> None: ...

    with pytest.raises(error, match=told):
        app.task(**options)(work)


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("countdown", r"call\. Did you mean 'delay'\?$"),
        ("eta", r"call\. Did you mean 'at'\?$"),
        ("max_retries", r"Did you mean 'max_attempts'\? It counts runs, the first included\."),
        ("autoretry_for", r"belongs to a task: @app\.task\(retry_on=\.\.\.\)"),
        ("ignore_result", r"@app\.task\(store_result=False\)"),
        ("rate_limit", r"belongs to a task: @app\.task\(limits=.*Limit\(.*rate="),
    ],
)
def test_options_of_celery_name_those_of_a_call(app: Windlass, option: str, told: str) -> None:
    @app.task
    async def work() -> None: ...

    options: dict[str, Any] = {option: 3}
    with pytest.raises(InvalidArgument, match=told):
        work.options(**options)


@pytest.mark.parametrize("name", ["delay", "apply_async", "s"])
def test_calls_of_celery_name_enqueue_and_the_integration(app: Windlass, name: str) -> None:
    @app.task
    async def work() -> None: ...

    assert not hasattr(work, name)
    with pytest.raises(AttributeError, match=r"enqueue_sync.*windlass\.integrations\.celery"):
        getattr(work, name)


async def test_the_farthest_of_everything_is_stored_claimed_and_run(clock: VirtualClock) -> None:
    century = timedelta(days=36_525)
    async with Windlass("memory://", clock=clock, timeout=century) as app:

        @app.task(expires=century)
        async def work() -> None: ...

        await work.options(delay=century, key="k", unique_for=century).enqueue()
        await work.options(at=datetime(9000, 12, 31, tzinfo=UTC)).enqueue()
        await work.options(timeout=century, max_attempts=1_000_000, tags=["a"]).enqueue()
        assert (await drain(app)).succeeded == 1
        clock.advance(century)
        assert (await drain(app)).errors == ()


class Callable:
    def __call__(self) -> None: ...

    def method(self, order: int) -> None: ...

    @staticmethod
    def static(order: int) -> None: ...


def items() -> Iterator[int]:
    yield 1


async def later_items() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("odd", "told"),
    [
        (functools.partial(lambda _: None, 1), "Write it with def"),
        (lambda: None, "Write it with def"),
        (items, "is a generator"),
        (later_items, "is a generator"),
        (Callable, "instead of class Callable"),
        (Callable.method, "is a method.*Write a function that makes the object"),
        (Callable(), "Write a function that calls it"),
        (5, "5 is not one"),
        ("work", "'work' is not one"),
    ],
)
def test_a_task_that_is_no_plain_function_is_refused_with_advice(
    app: Windlass, odd: Any, told: str
) -> None:
    with pytest.raises(DefinitionError, match=f"A task is a plain or an async function: .*{told}"):
        app.task(odd)
    with pytest.raises(DefinitionError, match=told):
        app.task(name="odd")(odd)
    assert len(app.tasks) == 0


def test_a_method_that_needs_no_object_can_be_a_task(app: Windlass) -> None:
    app.task(Callable.static)
    app.task(Callable().method)
    assert len(app.tasks) == 2


async def test_durations_are_text_for_tasks_and_calls_as_they_are_for_the_app() -> None:
    app = Windlass("memory://", timeout="1m")

    @app.task(timeout="30s", expires="2h")
    async def work() -> None: ...

    job = await (await work.options(timeout="250ms", delay="1d").enqueue()).refresh()
    assert work.settings.timeout == timedelta(seconds=30)
    assert work.settings.expires == timedelta(hours=2)
    assert job.timeout == timedelta(milliseconds=250)
    assert job.due - job.created_at >= timedelta(hours=23)
    await app.close()


def logged(function: Any) -> Any:
    @functools.wraps(function)
    def inner(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return inner


async def test_a_coroutine_function_below_a_decorator_runs_on_the_loop(app: Windlass) -> None:
    @app.task
    @logged
    async def work() -> str:
        return asyncio.current_task().__class__.__name__

    @app.task(run_in="thread")
    @logged
    async def elsewhere() -> None: ...

    assert work.is_async
    assert not elsewhere.is_async
    with isolated(app):
        job = await work.enqueue()
        (await drain(app)).raise_errors()
        assert await job.result() == "Task"


def test_a_plain_function_does_not_run_on_the_loop(app: Windlass) -> None:
    with pytest.raises(DefinitionError, match="would block the event loop"):

        @app.task(run_in="loop")
        def work() -> None: ...


# --- URLs ---


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("jobs.db", "is no storage URL"),
        ("sqlite://jobs.db", r"three slashes"),
        ("sqlite:///", "names no file"),
        ("sqlite:///:memory:", "for tests use memory://"),
        ("sqlite:///jobs.db?mode=ro", "Options are settings"),
        ("sqlite:///jobs#1.db", "%23"),
    ],
)
def test_a_url_that_names_no_storage_is_refused_at_once(url: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Windlass(url)


def test_an_unknown_scheme_is_refused_with_what_was_probably_meant() -> None:
    with pytest.raises(UnknownScheme, match=r"'sqlit'\. Did you mean 'sqlite'\?"):
        Windlass("sqlit:///jobs.db")


def test_without_a_url_the_three_places_for_it_are_named() -> None:
    """A31."""
    with pytest.raises(ConfigError, match=r"Windlass\('sqlite.*WINDLASS_URL.*TOML"):
        Windlass()


def test_a_missing_driver_is_answered_with_the_line_to_type() -> None:
    """A30."""
    program = """
import sys
sys.modules["apsw"] = None
import asyncio
from windlass import Windlass, errors
from windlass._app.parts import parts_of
app = Windlass("sqlite:///jobs.db")
try:
    asyncio.run(parts_of(app).storage())
except errors.MissingDependency as error:
    print(error)
"""
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert re.search(r"The SQLite backend needs .*pip install 'apsw'", ran.stdout)
