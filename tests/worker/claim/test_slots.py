"""How many jobs may run at once, and which queues are asked for how many."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worker.fixtures import Bench, bench
from windlass import Windlass
from windlass._settings.settings import WorkerSettings
from windlass._storage.protocol.jobs import Want
from windlass._tasks.task import Task
from windlass._worker.claim.slots import Slots


def make(**options: object) -> Slots:
    return Slots(WorkerSettings(**options), asyncio.Event())  # type: ignore[arg-type]


def serve(slots: Slots, waiting: Counter[str]) -> list[str]:
    """Claim as a store would: the wants in order, at most the total."""
    wants, total = slots.wants()
    taken: list[str] = []
    for want in wants:
        for _ in range(min(want.limit, waiting[want.queue], total - len(taken))):
            waiting[want.queue] -= 1
            slots.take(want.queue)
            taken.append(want.queue)
    return taken


# --- pools of one's own ------------------------------------------------------------------------


def test_every_queue_has_separate_slots() -> None:
    slots = make(queues={"mail": 2, "images": 3})
    assert slots.wants() == ([Want("mail", 2), Want("images", 3)], 5)
    assert slots.total == slots.free == 5


def test_a_full_pool_is_not_asked_for_and_the_others_are() -> None:
    slots = make(queues={"mail": 2, "images": 3})
    slots.take("mail")
    slots.take("mail")
    assert slots.wants() == ([Want("images", 3)], 3)
    slots.give("mail")
    assert slots.wants() == ([Want("mail", 1), Want("images", 3)], 4)


def test_a_busy_queue_never_gets_the_slots_of_an_idle_one() -> None:
    slots = make(queues={"mail": 2, "images": 3})
    assert Counter(serve(slots, Counter(mail=100))) == {"mail": 2}


# --- one pool, strict ----------------------------------------------------------------------------


def test_a_strict_pool_asks_for_everything_in_order() -> None:
    slots = make(shared=("urgent", "bulk"), slots=4)
    assert slots.wants() == ([Want("urgent", 4), Want("bulk", 4)], 4)


def test_a_strict_pool_gives_the_first_queue_all_it_can_use() -> None:
    slots = make(shared=("urgent", "bulk"), slots=4)
    assert serve(slots, Counter(urgent=3, bulk=9)) == ["urgent"] * 3 + ["bulk"]


def test_a_full_pool_asks_for_nothing() -> None:
    slots = make(shared=("urgent", "bulk"), slots=1)
    slots.take("bulk")
    assert slots.wants() == ((), 0)
    assert slots.free == 0


# --- one pool, weighted --------------------------------------------------------------------------


def test_weights_decide_how_a_pool_is_divided() -> None:
    slots = make(shared=("a", "b"), order="weighted", weights={"a": 3}, slots=8)
    assert Counter(serve(slots, Counter(a=100, b=100))) == {"a": 6, "b": 2}


def test_an_idle_share_is_used_by_queues_with_work() -> None:
    slots = make(shared=("a", "b"), order="weighted", weights={"a": 9}, slots=10)
    assert Counter(serve(slots, Counter(b=100))) == {"b": 10}


def test_one_slot_still_goes_round_by_weight() -> None:
    slots = make(shared=("a", "b"), order="weighted", weights={"a": 4}, slots=1)
    served: Counter[str] = Counter()
    waiting: Counter[str] = Counter(a=1000, b=1000)
    for _ in range(100):
        (queue,) = serve(slots, waiting)
        served[queue] += 1
        slots.give(queue)
    assert served == {"a": 80, "b": 20}


@settings(max_examples=50)
@given(
    weights=st.lists(st.integers(1, 50), min_size=2, max_size=5),
    room=st.lists(st.integers(1, 7), min_size=1, max_size=20),
)
def test_no_queue_starves_with_any_weights_and_little_room(
    weights: Sequence[int], room: Sequence[int]
) -> None:
    names = [f"q{n}" for n in range(len(weights))]
    slots = make(
        shared=tuple(names),
        order="weighted",
        weights=dict(zip(names, weights, strict=True)),
        slots=7,
    )
    for _ in range(7):
        slots.take(names[0])
    waiting: Counter[str] = Counter(dict.fromkeys(names, 10_000))
    served: Counter[str] = Counter()
    rounds = sum(weights)
    for turn in range(rounds):
        for _ in range(room[turn % len(room)]):
            slots.give(names[0])
        taken = serve(slots, waiting)
        served.update(taken)
        for queue in taken:
            slots.give(queue)
        for _ in range(slots.free):
            slots.take(names[0])
    # In as many starts as all weights together everyone had its weight's worth.
    for name, weight in zip(names, weights, strict=True):
        assert served[name] >= weight


def test_room_is_announced_when_a_job_ends_if_the_claimer_waits_for_it() -> None:
    slots = Slots(WorkerSettings(slots=2), wake := asyncio.Event())
    slots.take("default")
    assert not wake.is_set()
    slots.give("default")
    assert slots.free == 2
    assert wake.is_set()

    wake.clear()
    slots.await_room(awaited=False)
    slots.take("default")
    slots.give("default")
    slots.ring()
    assert not wake.is_set()
    slots.await_room(awaited=True)
    slots.ring()
    assert wake.is_set()


# --- claims --------------------------------------------------------------------------------------


def noop(app: Windlass) -> Task[[], None]:
    @app.task(name="noop")
    async def noop() -> None: ...

    return noop


async def fill(it: Bench, count: int) -> None:
    task = noop(it.app)
    await it.app.enqueue_many([task.call() for _ in range(count)])


async def test_a_claim_takes_at_most_the_free_slots() -> None:
    async with bench(slots=3) as it:
        await fill(it, 10)
        assert await it.engine.step() == 3
        (counts,) = await it.app.admin.queues.counts()
        assert (counts.succeeded, counts.ready, counts.running) == (3, 7, 0)


async def test_a_claim_with_some_slots_taken_takes_the_rest() -> None:
    async with bench(slots=3) as it:
        await fill(it, 10)
        it.engine.slots.take("default")
        assert await it.engine.step() == 2


async def test_nothing_is_claimed_while_no_slot_is_free() -> None:
    async with bench(slots=1) as it:
        await fill(it, 1)
        it.engine.slots.take("default")
        assert await it.engine.step() == 0
        assert it.store.calls["jobs.claim"] == 0
