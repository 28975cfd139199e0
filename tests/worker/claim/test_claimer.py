"""When a worker claims: on hints, on due times, by polling; and what it never starts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from tests.worker.fixtures import ExactHints, Hook, World, logged, make_suspect, simulate, working
from windlass import Backoff, Context
from windlass._app.parts import parts_of
from windlass._core.job.job import ClaimedJob
from windlass._core.job.state import State, Verb
from windlass._core.job.transition import Transition
from windlass._storage.protocol.jobs import ClaimReply
from windlass._tasks.task import Task
from windlass.errors import StorageUnavailable

NEVER = timedelta(days=1)
"""A poll that no scenario lives to see."""


def speaker(world: World, *, seconds: float = 0.0, **options: Any) -> Task[[str], None]:
    """A task that says its word when it starts, and takes some time."""

    @world.app.task(name="speak", **options)
    async def speak(word: str) -> None:
        world.say(word)
        await asyncio.sleep(seconds)

    return speak


# --- wake-ups ------------------------------------------------------------------------------------


def test_an_insert_wakes_an_idle_worker_at_once() -> None:
    async def scenario(world: World) -> None:
        speak = speaker(world)
        async with working(world.app):
            await world.until(100)
            await speak.enqueue("now")
            await world.until(101)
        assert world.seen == [(100.0, "now")]

    simulate(scenario, poll=NEVER)


def test_a_delayed_job_starts_on_time_and_not_at_the_next_poll() -> None:
    async def scenario(world: World) -> None:
        speak = speaker(world)
        async with working(world.app):
            await speak.options(delay=1000).enqueue("later")
            await speak.options(delay=60.25).enqueue("sooner")
            await world.until(1500)
        assert world.seen == [(60.25, "sooner"), (1000.0, "later")]

    simulate(scenario, poll=NEVER)


def test_a_delayed_job_that_waited_before_the_worker_came_starts_on_time() -> None:
    async def scenario(world: World) -> None:
        speak = speaker(world)
        await speak.options(delay=90).enqueue("later")
        await world.until(50)
        async with working(world.app):
            await world.until(100)
        assert world.seen == [(90.0, "later")]

    simulate(scenario, poll=NEVER)


def test_a_retry_starts_on_time() -> None:
    async def scenario(world: World) -> None:
        @world.app.task(name="flaky", backoff=Backoff.exponential(10, factor=3))
        async def flaky(ctx: Context) -> None:
            world.say(f"attempt {ctx.attempt}")
            if ctx.attempt < 3:
                raise ValueError("not yet")

        async with working(world.app):
            await flaky.enqueue()
            await world.until(100)
        assert world.seen == [(0.0, "attempt 1"), (10.0, "attempt 2"), (40.0, "attempt 3")]

    simulate(scenario, poll=NEVER)


def test_a_hint_that_arrives_during_a_claim_is_not_lost() -> None:
    async def scenario(world: World) -> None:
        speak = speaker(world)
        store = await world.tampered()

        async def claim(call: Hook, *args: Any, **options: Any) -> Any:
            reply = await call(*args, **options)
            if store.calls["jobs.claim"] == 1:
                await speak.enqueue("in between")
                await asyncio.sleep(0.001)  # the hint arrives before the answer does
            return reply

        store.on("jobs.claim", claim)
        async with working(world.app, store=store):
            await world.until(5)
        assert world.seen == [(0.0, "in between")]

    simulate(scenario, poll=NEVER)


def test_a_hint_that_arrives_during_a_look_is_not_lost() -> None:
    async def scenario(world: World) -> None:
        speak = speaker(world)
        store = await world.tampered()
        looks = 0

        async def outlook(call: Hook, queues: Any) -> Any:
            nonlocal looks
            looks += 1
            seen = await call(queues)
            if looks == 1:
                await speak.enqueue("in between")
                await asyncio.sleep(0.001)  # the hint arrives before the answer does
            return seen

        store.on("jobs.outlook", outlook)
        async with working(world.app, store=store):
            await world.until(1)
            await world.app.admin.queues.resume("default")
            await world.until(5)
        assert looks
        assert world.words == ["in between"]

    simulate(scenario, poll=NEVER)


# --- polling -------------------------------------------------------------------------------------


def test_polling_finds_what_no_hint_announced() -> None:
    async def scenario(world: World) -> None:
        speak = speaker(world)
        async with working(world.app, store=await world.tampered(deaf=True)):
            await world.until(100.5)
            await speak.enqueue("unannounced")
            await world.until(200)
        ((second, word),) = world.seen
        assert word == "unannounced"
        assert second - 100.5 <= 2.0

    simulate(scenario, poll=2)


def test_an_exact_hint_is_followed_by_a_claim_without_a_look() -> None:
    async def scenario(world: World) -> None:
        speak = speaker(world)
        store = await world.tampered(deaf=True)
        store.exact = hints = ExactHints()
        async with working(world.app, store=store):
            await world.until(100)
            assert list(hints.wanted) == ["default"]
            looks = store.calls["jobs.outlook"]
            await speak.enqueue("hinted")
            assert hints.give()
            await world.until(101)
            assert store.calls["jobs.outlook"] == looks
        assert world.seen == [(100.0, "hinted")]

    simulate(scenario, poll=NEVER)


def test_a_worker_without_room_passes_an_exact_hint_on() -> None:
    async def scenario(world: World) -> None:
        speak = speaker(world, seconds=50)
        store = await world.tampered(deaf=True)
        store.exact = hints = ExactHints()
        async with working(world.app, store=store, slots=1):
            await world.until(100)
            await speak.enqueue("first")
            assert hints.give()
            await world.until(110)
            assert list(hints.wanted) == []
            await speak.enqueue("second")
            assert not hints.give()
            await world.until(160)
            await world.until(210)
        assert world.seen == [(100.0, "first"), (150.0, "second")]

    simulate(scenario, poll=NEVER)


def test_a_worker_passes_on_an_exact_hint_about_its_full_queue_alone() -> None:
    async def scenario(world: World) -> None:
        speak = speaker(world, seconds=50)
        store = await world.tampered(deaf=True)
        store.exact = hints = ExactHints()
        async with working(world.app, store=store, queues={"busy": 1, "idle": 1}):
            await world.until(100)
            await speak.options(queue="busy").enqueue("first")
            hints.about = ["busy"]
            assert hints.give()
            await world.until(110)
            assert not hints.give()
            hints.about = ["busy", "idle"]
            assert hints.give()

    simulate(scenario, poll=NEVER)


def test_a_lost_exact_hint_costs_one_poll() -> None:
    async def scenario(world: World) -> None:
        speak = speaker(world)
        store = await world.tampered(deaf=True)
        store.exact = ExactHints()
        async with working(world.app, store=store):
            await world.until(100.5)
            await speak.enqueue("unannounced")
            await world.until(110)
        ((second, _),) = world.seen
        assert second - 100.5 <= 2.0

    simulate(scenario, poll=2)


def test_without_hints_a_full_worker_still_goes_from_job_to_job() -> None:
    async def scenario(world: World) -> float:
        speak = speaker(world, seconds=0.1)
        await world.app.enqueue_many([speak.call(str(n)) for n in range(20)])
        async with working(world.app, store=await world.tampered(deaf=True), slots=1):
            await world.until(30)
        assert len(world.seen) == 20
        return world.seen[-1][0]

    assert simulate(scenario, poll=100) < 3


def test_without_hints_a_full_pool_beside_an_idle_one_goes_from_job_to_job() -> None:
    async def scenario(world: World) -> float:
        speak = speaker(world, seconds=0.1)
        calls = [speak.options(queue="busy").call(str(n)) for n in range(20)]
        await world.app.enqueue_many(calls)
        store = await world.tampered(deaf=True)
        async with working(world.app, store=store, queues={"busy": 1, "idle": 1}):
            await world.until(30)
        assert len(world.seen) == 20
        return world.seen[-1][0]

    assert simulate(scenario, poll=100) < 3


def test_an_idle_worker_asks_for_no_write_lock() -> None:
    async def scenario(world: World) -> int:
        speaker(world)
        store = await world.tampered()
        async with working(world.app, store=store):
            await world.until(10)
            claims = store.calls["jobs.claim"]
            await world.until(1000)
            return store.calls["jobs.claim"] - claims

    assert simulate(scenario) == 0


def test_a_due_job_of_an_unserved_queue_keeps_no_worker_awake() -> None:
    async def scenario(world: World) -> int:
        speak = speaker(world)
        store = await world.tampered()

        async def promote(call: Hook, limit: int) -> int:
            return 0  # somebody else leads, and is slow

        store.on("maintenance.promote", promote)
        async with working(world.app, store=store, queues=["default"]):
            await speak.options(queue="elsewhere", delay=10).enqueue("not here")
            await world.until(11)
            looks = store.calls["jobs.outlook"]
            await world.until(111)
            return store.calls["jobs.outlook"] - looks

    assert simulate(scenario) <= 110


# --- errors --------------------------------------------------------------------------------------


def test_an_outage_is_waited_out_and_logged_once() -> None:
    async def scenario(world: World) -> None:
        speak = speaker(world)
        store = await world.tampered()
        with logged() as lines:
            async with working(world.app, store=store):
                store.down = True
                await world.until(60)
                await speak.enqueue("waiting")
                await world.until(70)
                assert world.seen == []
                store.down = False
                await world.until(80)
        assert world.words == ["waiting"]
        assert len(lines.having("cannot claim jobs")) == 1
        assert len(lines.having("claiming again")) == 1

    simulate(scenario, lease=600)


def test_the_next_heartbeat_releases_claims_of_a_lost_answer() -> None:
    async def scenario(world: World) -> None:
        speak = speaker(world)
        store = await world.tampered()

        async def claim(call: Hook, *args: Any, **options: Any) -> Any:
            reply: ClaimReply = await call(*args, **options)
            if reply.jobs and not world.seen and store.calls["lost"] == 0:
                store.calls["lost"] += 1
                raise StorageUnavailable("the answer was lost")
            return reply

        store.on("jobs.claim", claim)
        with logged() as lines:
            async with working(world.app, store=store):
                await world.until(1)
                job = await speak.enqueue("at last")
                await world.until(2)
                assert (await job.refresh()).state is State.RUNNING
                assert world.seen == []
                await world.until(7)
                record = await job.refresh()
        assert record.state is State.SUCCEEDED
        assert (record.attempt, record.claim_number) == (1, 2)
        assert [attempt.verb for attempt in await world.app.admin.jobs.history(record.id)] == [
            Verb.RELEASE
        ]
        assert len(lines.having("whose answer was lost")) == 1

    simulate(scenario)


def test_a_lost_claim_answer_does_not_clear_a_suspect() -> None:
    async def scenario(world: World) -> None:
        speak = speaker(world)
        job = await speak.enqueue("suspect")
        storage = await parts_of(world.app).storage()
        await make_suspect(storage, job.id)
        store = await world.tampered()

        async def claim(call: Hook, *args: Any, **options: Any) -> Any:
            reply: ClaimReply = await call(*args, **options)
            if reply.jobs and store.calls["lost"] == 0:
                store.calls["lost"] += 1
                raise StorageUnavailable("the answer was lost")
            return reply

        store.on("jobs.claim", claim)
        seen: list[tuple[int, bool]] = []

        async def apply(call: Hook, transitions: Sequence[Transition]) -> Any:
            answer = await call(transitions)
            (record,) = await storage.admin.get([job.id])
            assert record is not None
            seen.append((record.lost, record.solo))
            return answer

        store.on("jobs.apply", apply)
        async with working(world.app, store=store):
            await world.until(20)
        assert seen[0] == (2, True)
        assert world.words == ["suspect"]

    simulate(scenario)


def test_running_and_unstored_jobs_are_never_given_back() -> None:
    async def scenario(world: World) -> None:
        speak = speaker(world, seconds=60)
        store = await world.tampered()

        async def apply(call: Hook, transitions: Sequence[Transition]) -> Any:
            await asyncio.sleep(12)  # longer than two beats
            return await call(transitions)

        store.on("jobs.apply", apply)
        with logged() as lines:
            async with working(world.app, store=store, slots=3):
                jobs = await world.app.enqueue_many([speak.call(str(n)) for n in range(3)])
                await asyncio.gather(*(job.result() for job in jobs))
        assert {(await job.refresh()).claim_number for job in jobs} == {1}
        assert lines.having("lost") == []

    simulate(scenario)


# --- what is not started -------------------------------------------------------------------------


def test_a_claim_answered_under_a_former_identity_is_given_back_and_not_started() -> None:
    async def scenario(world: World) -> None:
        speak = speaker(world)
        store = await world.tampered()
        held = asyncio.Event()

        async def claim(call: Hook, worker: str, *args: Any, **options: Any) -> Any:
            reply: ClaimReply = await call(worker, *args, **options)
            if reply.jobs and not held.is_set():
                held.set()
                await world.app.admin.queues.pause("default")
                await asyncio.sleep(10)  # meanwhile the worker is buried, and reborn
            return reply

        async def no_orphans(call: Hook, limit: int) -> list[ClaimedJob]:
            return []  # the worker itself is to clean up, not its reaper

        store.on("jobs.claim", claim)
        store.on("workers.orphans", no_orphans)
        async with working(world.app, store=store) as shift:
            former = shift.worker.id
            await world.until(1)
            job = await speak.enqueue("once")
            await held.wait()
            await store.inner.workers.bury([former])
            await world.until(9)
            assert shift.worker.id != former
            assert world.seen == []
            await world.until(12)
            record = await job.refresh()
            assert (record.state, record.attempt) == (State.WAITING, 0)
            await world.app.admin.queues.resume("default")
            await world.until(13)
        assert world.words == ["once"]

    simulate(scenario)


def test_a_claim_answered_after_the_stop_is_given_back_and_not_started() -> None:
    async def scenario(world: World) -> None:
        speak = speaker(world, seconds=60)
        store = await world.tampered()
        held = asyncio.Event()

        async def claim(call: Hook, *args: Any, **options: Any) -> Any:
            reply: ClaimReply = await call(*args, **options)
            if reply.jobs:
                held.set()
                await asyncio.sleep(3)
            return reply

        store.on("jobs.claim", claim)
        async with working(world.app, store=store) as shift:
            job = await speak.enqueue("too late")
            await held.wait()
            shift.worker.stop()
            await shift.ended()
            record = await job.refresh()
            assert (record.state, record.attempt) == (State.WAITING, 0)
            await world.until(100)
        assert world.seen == []

    simulate(scenario)


def test_a_quiet_worker_claims_nothing() -> None:
    async def scenario(world: World) -> None:
        speak = speaker(world, seconds=10)
        store = await world.tampered()
        async with working(world.app, store=store) as shift:
            await speak.enqueue("running")
            await world.until(1)
            shift.worker.stop()
            claims = store.calls["jobs.claim"]
            await world.app.enqueue_many([speak.call("waiting") for _ in range(5)])
            await shift.ended()
            assert store.calls["jobs.claim"] == claims
        assert world.seen == [(0.0, "running")]

    simulate(scenario)


def test_a_worker_that_cannot_store_outcomes_stops_claiming() -> None:
    async def scenario(world: World) -> int:
        speak = speaker(world)
        store = await world.tampered()
        open_again = asyncio.Event()

        async def apply(call: Hook, transitions: Sequence[Transition]) -> Any:
            await open_again.wait()
            return await call(transitions)

        store.on("jobs.apply", apply)
        await world.app.enqueue_many([speak.call(str(n)) for n in range(1000)])
        async with working(world.app, store=store, slots=10):
            await world.until(60)
            started = len(world.seen)
            open_again.set()
            await world.until(120)
        assert len(world.seen) == 1000
        return started

    # One batch is being written, one has ended behind it, one was claimed before that was known.
    assert simulate(scenario, lease=600) <= 30


# --- queues --------------------------------------------------------------------------------------


def test_a_strict_worker_starts_the_first_queue_first() -> None:
    async def scenario(world: World) -> None:
        speak = speaker(world, seconds=1)
        bulk, urgent = speak.options(queue="bulk"), speak.options(queue="urgent")
        calls = [bulk.call("bulk") for _ in range(4)] + [urgent.call("urgent") for _ in range(4)]
        await world.app.enqueue_many(calls)
        async with working(world.app, queues=["urgent", "bulk"], slots=2):
            await world.until(10)
        assert world.words == ["urgent"] * 4 + ["bulk"] * 4

    simulate(scenario)


def test_a_weighted_worker_starves_no_queue() -> None:
    async def scenario(world: World) -> None:
        speak = speaker(world, seconds=1)
        for name in ("a", "b"):
            bound = speak.options(queue=name)
            await world.app.enqueue_many([bound.call(name) for _ in range(100)])
        weighted: dict[str, Any] = {"order": "weighted", "weights": {"a": 3, "b": 1}}
        async with working(world.app, queues=["a", "b"], slots=4, **weighted) as shift:
            await world.until(9.5)
            shift.worker.stop()
        assert world.words.count("a") == 30
        assert world.words.count("b") == 10

    simulate(scenario)


def test_claims_say_how_many_were_taken() -> None:
    async def scenario(world: World) -> None:
        speak = speaker(world)
        async with working(world.app) as shift:
            await world.app.enqueue_many([speak.call(str(n)) for n in range(25)])
            await world.until(1)
            assert shift.worker.engine.claimer.claimed == 25

    simulate(scenario)
