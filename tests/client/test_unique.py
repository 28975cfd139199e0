"""Unique jobs: by task and by call, their keys and windows, and what a conflict does."""

from __future__ import annotations

import asyncio
import hashlib
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from windlass import Context, Unique, Windlass, testing
from windlass._core.job.job import JobRecord
from windlass._core.job.state import State
from windlass._core.job.unique import OnConflict, Window
from windlass._tasks.task import Task
from windlass.errors import DefinitionError, InvalidArgument, KeyConflict
from windlass.testing import VirtualClock

REPLACES = ["replace", "replace_arguments", "replace_due"]


def sync_of(app: Windlass, unique: Any, name: str = "sync") -> Task[..., None]:
    @app.task(name=name, unique=unique)
    async def sync(user: int, what: str = "all") -> None: ...

    return sync


async def stored(app: Windlass) -> list[JobRecord]:
    return sorted(await app.admin.jobs.find(), key=lambda job: job.seq)


# --- keys ----------------------------------------------------------------------------------------


async def test_true_is_one_job_for_the_same_arguments(app: Windlass) -> None:
    sync = sync_of(app, unique=True)
    first, again = await sync.enqueue(1, "a"), await sync.enqueue(1, what="a")
    other = await sync.enqueue(1, "b")
    assert (again.id, again.created, again.replaced) == (first.id, False, False)
    assert other.created
    digest = hashlib.sha256(b'{"user":1,"what":"a"}').hexdigest()
    assert (await first.refresh()).key == f"sync/arguments:{digest}"


async def test_equal_arguments_are_one_job_in_any_order(app: Windlass) -> None:
    @app.task(name="export", unique=True)
    async def export(filters: dict[str, Any], fields: set[str], share: float = 0.5) -> None: ...

    nested = {"b": [1, 2], "a": {"y": 1, "x": 2}}
    turned = {"a": {"x": 2, "y": 1}, "b": [1, 2]}
    first = await export.enqueue(nested, {*"abcdefgh"}, share=1.0)
    again = await export.enqueue(turned, {*"hgfedcba"}, share=1)
    assert (again.id, again.created) == (first.id, False)
    key = (await first.refresh()).key
    sorted_ = {"filters": turned, "fields": sorted("abcdefgh"), "share": 1.0}
    digest = hashlib.sha256(msgspec.json.encode(sorted_)).hexdigest()
    assert key == f"export/arguments:{digest}"  # the same in every process
    other = await export.enqueue({**turned, "b": [2, 1]}, {*"abcdefgh"}, share=1)
    assert other.created  # the order of a list counts


async def test_a_task_without_arguments_is_one_job_at_a_time(app: Windlass) -> None:
    @app.task(name="sweep", unique=True)
    async def sweep() -> None: ...

    first, again = await sweep.enqueue(), await sweep.enqueue()
    assert (first.created, again.created) == (True, False)


async def test_a_key_is_made_of_the_arguments_it_names(app: Windlass) -> None:
    sync = sync_of(app, Unique(key="{user}"))
    first, again = await sync.enqueue(1, "a"), await sync.enqueue(1, "b")
    other = await sync.enqueue(2, "a")
    assert (again.id, other.created) == (first.id, True)
    assert (await first.refresh()).key == "sync/1"


async def test_omitted_arguments_count_as_their_defaults(app: Windlass) -> None:
    sync = sync_of(app, Unique(key="{user}-{what}"))
    first, again = await sync.enqueue(1), await sync.enqueue(1, "all")
    assert again.id == first.id


async def test_parts_of_an_argument_make_a_key(app: Windlass) -> None:
    @app.task(name="ship", unique=Unique(key="{order.id}"))
    async def ship(order: dict[str, int]) -> None: ...

    first, again = await ship.enqueue({"id": 7, "n": 1}), await ship.enqueue({"id": 7, "n": 2})
    assert again.id == first.id


async def test_a_key_that_a_call_leaves_empty_is_refused(app: Windlass) -> None:
    @app.task(name="ship", unique=Unique(key="{order}"))
    async def ship(order: str | None) -> None: ...

    with pytest.raises(InvalidArgument, match=r"unique=False"):
        await ship.enqueue(None)
    assert await stored(app) == []


async def test_tasks_have_keys_of_their_own_unless_the_scope_is_global(app: Windlass) -> None:
    one, two = (sync_of(app, Unique(key="{user}"), name) for name in ("one", "two"))
    assert (await one.enqueue(1, "")).created
    assert (await two.enqueue(1, "")).created
    everywhere = Unique(key="{user}", scope="global")
    three, four = (sync_of(app, everywhere, name) for name in ("three", "four"))
    first, again = await three.enqueue(1, ""), await four.enqueue(1, "")
    assert again.id == first.id
    assert (await first.refresh()).key == "/1"


async def test_calls_of_one_batch_meet(app: Windlass) -> None:
    sync = sync_of(app, Unique(key="{user}"))
    jobs = await app.enqueue_many([sync.call(user, "x") for user in (1, 2, 1, 1)])
    assert [job.created for job in jobs] == [True, True, False, False]
    assert jobs[0].id == jobs[2].id == jobs[3].id


async def test_fifty_producers_at_once_make_one_job(app: Windlass) -> None:
    sync = sync_of(app, unique=True)
    jobs = await asyncio.gather(*(sync.enqueue(1, "a") for _ in range(50)))
    assert sum(job.created for job in jobs) == 1
    assert len({job.id for job in jobs}) == 1


async def test_a_job_that_a_handler_enqueues_is_unique_too(
    app: Windlass, clock: VirtualClock
) -> None:
    sync = sync_of(app, Unique(key="{user}"))

    @app.task(name="parent")
    async def parent(ctx: Context) -> list[bool]:
        return [(await ctx.enqueue(sync.call(1, word))).created for word in ("a", "b")]

    job = await parent.enqueue()
    async with app.worker(queues=["default"], slots=1):
        assert await job.result(timeout=30) == [True, False]


# --- what a call says ----------------------------------------------------------------------------


async def test_a_call_s_own_key_wins_over_the_task_s(app: Windlass) -> None:
    sync = sync_of(app, Unique(key="{user}", until="started"))
    first = await sync.enqueue(1, "")
    other = await sync.options(key="mine").enqueue(1, "")
    assert other.created
    assert ((await first.refresh()).key, (await other.refresh()).key) == ("sync/1", "sync/mine")


async def test_a_call_may_do_without_the_task_s_key(app: Windlass) -> None:
    sync = sync_of(app, unique=True)
    await sync.enqueue(1, "")
    job = await sync.options(unique=False).enqueue(1, "")
    assert job.created
    assert (await job.refresh()).key is None


async def test_a_call_changes_the_rule_of_its_task(app: Windlass) -> None:
    sync = sync_of(app, Unique(key="{user}"))
    await sync.enqueue(1, "a")
    with pytest.raises(KeyConflict):
        await sync.options(on_conflict="raise").enqueue(1, "b")
    job = await sync.options(on_conflict="replace_arguments").enqueue(1, "b")
    assert (job.created, job.replaced) == (False, True)


async def test_a_call_of_a_task_without_a_rule_brings_all_of_it(app: Windlass) -> None:
    @app.task(name="work")
    async def work(n: int) -> None: ...

    await work.options(key="k", scope="global").enqueue(1)
    with pytest.raises(KeyConflict, match="/k"):
        await work.options(key="k", scope="global", on_conflict="raise").enqueue(2)


# --- windows -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "window"),
    [
        (Unique(), Window.UNTIL_FINISHED),
        (Unique(until="finished"), Window.UNTIL_FINISHED),
        (Unique(until="started"), Window.UNTIL_STARTED),
        (Unique(for_=60), Window.FOR_A_TIME),
        (Unique(on_conflict="raise"), Window.UNTIL_FINISHED),
        (Unique(on_conflict="replace"), Window.UNTIL_STARTED),
        (Unique(on_conflict="replace_arguments"), Window.UNTIL_STARTED),
        (Unique(on_conflict="replace_due", until="finished"), Window.UNTIL_FINISHED),
        (Unique(on_conflict="replace", for_=timedelta(minutes=1)), Window.FOR_A_TIME),
    ],
)
def test_a_replacing_job_holds_its_key_until_it_starts_by_default(
    rule: Unique, window: Window
) -> None:
    made = rule.stored("task", "k")
    assert (made.key, made.window) == ("task/k", window)
    assert made.on_conflict is OnConflict(rule.on_conflict)
    assert (made.period is not None) == (window is Window.FOR_A_TIME)


async def test_a_key_for_a_time_outlives_its_job(app: Windlass, clock: VirtualClock) -> None:
    sync = sync_of(app, Unique(key="{user}", for_=60))
    await (await sync.enqueue(1, "")).cancel()
    assert not (await sync.enqueue(1, "")).created
    clock.advance(60)
    assert (await sync.enqueue(1, "")).created


# --- conflicts -----------------------------------------------------------------------------------


async def test_calls_are_debounced_into_the_last_one(app: Windlass, clock: VirtualClock) -> None:
    sync = sync_of(app, Unique(key="{user}", on_conflict="replace"))
    first = await sync.options(delay=10).enqueue(1, "a")
    clock.advance(9)
    again = await sync.options(delay=10).enqueue(1, "b")
    assert (again.id, again.created, again.replaced) == (first.id, False, True)
    assert repr(again) == f"<Job {first.id} sync (replaced)>"
    record = await first.refresh()
    assert record.payload == b'{"user":1,"what":"b"}'
    assert record.due == clock.now() + timedelta(seconds=10)


@pytest.mark.parametrize("what", REPLACES)
async def test_one_of_the_two_is_replaced_or_both(
    app: Windlass, clock: VirtualClock, what: Any
) -> None:
    sync = sync_of(app, Unique(key="{user}", on_conflict=what))
    first = await sync.options(delay=10).enqueue(1, "a")
    before = await first.refresh()
    await sync.options(delay=60).enqueue(1, "b")
    after = await first.refresh()
    assert (after.payload != before.payload) == (what != "replace_due")
    assert (after.due != before.due) == (what != "replace_arguments")


async def test_a_conflict_that_raises_names_the_holder_and_stores_nothing(app: Windlass) -> None:
    sync = sync_of(app, Unique(key="{user}", on_conflict="raise"))
    first = await sync.enqueue(1, "a")
    with pytest.raises(KeyConflict, match=first.id) as caught:
        await app.enqueue_many([sync.call(2, ""), sync.call(1, "")])
    assert (caught.value.key, caught.value.holder) == ("sync/1", first.id)
    assert [job.id for job in await stored(app)] == [first.id]


async def test_one_conflict_does_not_fail_the_others_in_its_batch(app: Windlass) -> None:
    sync = sync_of(app, Unique(key="{user}", on_conflict="raise"))
    await sync.enqueue(1, "a")
    answers = await asyncio.gather(
        *(sync.enqueue(user, "") for user in (1, 2, 3)), return_exceptions=True
    )
    assert [type(answer).__name__ for answer in answers] == ["KeyConflict", "Job", "Job"]


async def test_a_running_job_is_followed_by_the_next_one_when_calls_replace() -> None:
    app = Windlass("memory://")
    began, go_on = asyncio.Event(), asyncio.Event()

    @app.task(name="index", unique=Unique(on_conflict="replace"))
    async def index() -> None:
        began.set()
        await go_on.wait()

    async with app:
        first = await index.enqueue()
        async with app.worker(slots=2):
            await began.wait()
            second = await index.options(delay=60).enqueue()
            third = await index.enqueue()
            go_on.set()
            await third.result(timeout=30)
        assert (second.created, third.id, third.replaced) == (True, second.id, True)
        assert (await first.refresh()).state is State.SUCCEEDED


async def test_inline_jobs_never_meet() -> None:
    app = Windlass("memory://")
    sync = sync_of(app, Unique(key="{user}", on_conflict="raise"))
    with testing.inline(app):
        jobs = [await sync.enqueue(1, "a") for _ in range(2)]
    assert [job.created for job in jobs] == [True, True]


# --- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ({"until": "started", "for_": 60}, "both say when a key is free"),
        ({"until": "ended"}, "until must be 'finished' or 'started'"),
        ({"scope": "app"}, "scope must be 'task' or 'global'"),
        ({"on_conflict": "ignore"}, "on_conflict must be 'reuse'"),
        ({"for_": 0}, "for_ must be longer than nothing"),
        ({"for_": -1}, "for_"),
        ({"key": "user"}, "names arguments in braces"),
        ({"key": "{user}{what}"}, "something between"),
    ],
)
def test_a_rule_that_contradicts_itself_is_refused(rule: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        Unique(**rule)


def test_a_key_that_names_no_argument_is_refused_at_the_definition() -> None:
    app = Windlass("memory://")
    with pytest.raises(DefinitionError, match=r"names 'usr'.*It has user, what.*mean 'user'"):
        sync_of(app, Unique(key="{usr}"))


def test_a_global_key_of_all_arguments_is_refused() -> None:
    app = Windlass("memory://")
    with pytest.raises(InvalidArgument, match="say which of them make the key"):
        sync_of(app, Unique(scope="global"))
    with pytest.raises(InvalidArgument, match="say which of them make the key"):
        sync_of(app, unique=True).options(scope="global")


@pytest.mark.parametrize("given", ["{user}", 1, Window.UNTIL_STARTED])
def test_an_invalid_unique_rule_is_refused(given: Any) -> None:
    with pytest.raises(InvalidArgument, match=r'Unique\(key="{user_id}"\)'):
        sync_of(Windlass("memory://"), given)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"on_conflict": "raise"}, "give key="),
        ({"scope": "global"}, "give key="),
        ({"key": "k", "unique": False}, "leave key= out"),
        ({"on_conflict": "raise", "unique": False}, "leave on_conflict= out"),
        ({"key": "k", "unique": "until_started", "unique_for": 5}, "both say how long"),
        ({"key": "k", "on_conflict": "drop"}, "on_conflict must be"),
        ({"key": "k", "scope": "app"}, "scope must be"),
        ({"key": ""}, "not empty"),
    ],
)
def test_a_call_that_contradicts_itself_is_refused(options: dict[str, Any], says: str) -> None:
    @Windlass("memory://").task(name="work")
    async def work() -> None: ...

    with pytest.raises(InvalidArgument, match=says):
        work.options(**options)
