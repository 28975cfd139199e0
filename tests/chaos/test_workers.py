"""Real workers behind a wire that is cut, gone silent or answers late."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from tests.chaos.fixtures import POSTGRES, REDIS, Home
from tests.crash.harness.backends import Place, on_prefix, on_schema
from tests.crash.harness.processes import Processes, stand_still, until
from tests.crash.harness.scene import Scene
from tests.crash.harness.store import SUCCEEDED
from tests.servers.proxy import Match, Proxy
from windlass._storage.redis.io.scripts import library, script

pytestmark = pytest.mark.chaos

LEASE = 1.0
"""What `tests.crash.harness.shop.SETTINGS` says."""


def place_of(home: Home) -> Place:
    return (on_schema if home.backend == POSTGRES else on_prefix)(home.url, home.name)


@pytest.fixture
def wire(home: Home) -> Iterator[Proxy]:
    with home.proxy() as proxy:
        yield proxy


@pytest.fixture
def scene(tmp_path: Path, processes: Processes, home: Home, wire: Proxy) -> Iterator[Scene]:
    """Its processes are behind the wire; what the test itself asks goes past it."""
    made = Scene(tmp_path, processes, place_of(home))
    made.env |= place_of(home.through(wire)).env
    yield made
    wire.heal()
    made.open_gate()
    processes.end_all()
    made.store.close()


def asks_for(home: Home, operation: str) -> Match:
    """Whether a request is this operation of the storage."""
    if home.backend == REDIS:
        wanted = f"FCALL {library().function_of(script(operation))}".upper()
        return lambda request: request == wanted
    said = {
        "register": ".workers (id, host,",
        "claim": ".claim_jobs(",
        "apply": ".apply_",
        "beat": ".beat(",
        "leave": ".leave_worker(",
    }
    return lambda request: said[operation] in request


def test_a_worker_continues_after_any_lost_answer(scene: Scene, home: Home, wire: Proxy) -> None:
    scene.enqueue("work", 0.01)
    scene.settle()  # the server knows the scripts now
    jobs = [scene.enqueue("work", 0.02) for _ in range(30)]
    operations = ("register", "claim", "apply", "beat", "leave")
    losses = {name: wire.lose_answer(asks_for(home, name)) for name in operations}
    losses["second claim"] = wire.lose_answer(asks_for(home, "claim"), at=2)
    worker = scene.worker("--slots", "3")
    scene.settle(worker)
    assert [name for name, loss in losses.items() if not loss.happened] == []
    assert {scene.job(job).attempt for job in jobs} == {1}
    assert {scene.runs(job) for job in jobs} == {1}
    scene.audit()


@pytest.mark.parametrize("seed", [1])
def test_a_wire_that_is_cut_again_and_again_costs_no_attempt(
    scene: Scene, home: Home, wire: Proxy, seed: int
) -> None:
    """At any instant, and on Redis the server also forgets its scripts each time."""
    draw = random.Random(seed)
    scene.enqueue("work", 0.005, count=600)
    worker = scene.worker("--slots", "4")
    until(lambda: len(scene.effects.read()) > 20, "jobs run")
    for _ in range(20):
        stand_still(draw.uniform(0.02, 0.2))  # the instant is what is left to chance
        if home.backend == REDIS:
            with redis.Redis.from_url(home.url) as client:
                client.function_flush()
        wire.cut()
    scene.settle(worker)
    assert {(job.attempt, job.state) for job in scene.store.jobs()} == {(1, SUCCEEDED)}
    assert {scene.runs(job) for job in scene.known} == {1}
    assert [row.state for row in scene.store.workers()] == ["gone"]
    scene.audit()


def cut_off(wire: Proxy) -> None:
    wire.refuse()
    wire.cut()


@pytest.mark.parametrize("fault", [cut_off, Proxy.black_hole])
def test_a_partition_longer_than_the_lease_kills_no_worker_and_costs_no_attempt(
    scene: Scene, wire: Proxy, fault: Callable[[Proxy], None]
) -> None:
    held = [scene.enqueue("hold", str(scene.gate)), scene.enqueue("stand", str(scene.gate))]
    workers = [scene.worker("--slots", "2") for _ in range(2)]
    scene.ready(*workers)
    until(lambda: all(map(scene.running, held)), "the jobs run")
    scene.beat_for(1.5 * LEASE)  # from now on they may judge each other
    fault(wire)
    stand_still(2.5 * LEASE)
    wire.heal()
    scene.beat_for(1.5 * LEASE)
    scene.open_gate()
    scene.settle(*workers)
    assert {worker.state for worker in scene.store.workers()} == {"gone"}
    assert len(scene.store.workers()) == 2, "nobody had to take a new name"
    assert [scene.job(job).claim_number for job in held] == [1, 1]
    scene.audit()


def test_a_wake_up_line_that_is_dead_and_does_not_know_it_costs_a_poll_at_most(
    scene: Scene, home: Home, wire: Proxy
) -> None:
    worker = scene.worker()
    scene.ready(worker)
    listening = "LISTEN" if home.backend == POSTGRES else "XREAD"
    until(lambda: wire.silence(lambda request: listening in request.upper()) > 0, "it listens")
    job = scene.enqueue("work", 0.01)
    until(lambda: scene.job(job).state == SUCCEEDED, "the job is found all the same", 3.0)
    scene.settle(worker)
    scene.audit()
