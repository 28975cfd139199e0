"""Workers that are told to stop, politely and not; `tests/cli` says what they say meanwhile."""

from __future__ import annotations

import os
import random
import signal

import pytest

from tests.crash.harness.backends import DURABLE, SQLITE
from tests.crash.harness.processes import Process, running, stand_still, until
from tests.crash.harness.scene import Scene
from tests.crash.harness.store import RUNNING, SUCCEEDED, WAITING
from windlass._cli.worker_process.signals import TOGETHER

pytestmark = pytest.mark.crash


def seeds(*, on_a_file: int, on_servers: int) -> pytest.MarkDecorator:
    """A server adds little that is new here, and takes longer."""
    counts = {backend: on_a_file if backend == SQLITE else on_servers for backend in DURABLE}
    return pytest.mark.parametrize(
        ("place", "seed"),
        [(backend, seed) for backend, count in counts.items() for seed in range(count)],
        indirect=["place"],
    )


def test_an_idle_worker_ends_within_two_seconds(scene: Scene) -> None:
    worker = scene.worker()
    scene.ready(worker)
    worker.signal(signal.SIGTERM)
    assert worker.wait(2.0) == 0
    assert [row.state for row in scene.store.workers()] == ["gone"]


def test_a_worker_with_running_jobs_drains_and_takes_no_more(scene: Scene) -> None:
    running_jobs = [scene.enqueue("hold", str(scene.gate)) for _ in range(2)]
    worker = scene.worker("--slots", "2")
    until(lambda: all(map(scene.running, running_jobs)), "both jobs run")
    worker.signal(signal.SIGTERM)
    until(lambda: "SIGTERM: taking no new jobs" in worker.text, "the signal was heard")
    waiting = scene.enqueue("work", 0.01)
    scene.open_gate()
    assert worker.wait() == 0
    assert [scene.job(job).claim_number for job in running_jobs] == [1, 1]
    assert (scene.job(waiting).state, scene.job(waiting).claim_number) == (WAITING, 0)
    scene.settle()
    scene.audit()


@seeds(on_a_file=6, on_servers=2)
def test_two_signals_at_random_end_it_in_bounded_time_and_give_every_attempt_back(
    scene: Scene, seed: int
) -> None:
    draw = random.Random(seed)
    jobs = [scene.enqueue("hold", str(scene.gate)) for _ in range(3)]
    jobs += [scene.enqueue("stand", str(scene.gate))]
    scene.enqueue("work", 0.02, count=60)
    worker = scene.worker("--slots", str(draw.randint(5, 8)))
    until(lambda: all(map(scene.running, jobs)), "the long jobs run")
    _signal_twice(worker, TOGETHER + draw.uniform(0.05, 0.5))
    # One second for handlers that do not unwind, the rest for a busy machine.
    assert worker.wait(20.0) == 0, worker.text
    assert not [job for job in scene.store.jobs() if job.state == RUNNING]
    for job in jobs:
        assert (scene.job(job).state, scene.job(job).attempt) == (WAITING, 0)
    scene.open_gate()
    scene.settle()
    scene.audit()


@pytest.mark.parametrize("place", [SQLITE], indirect=True)
def test_a_signal_while_the_store_is_opened_is_not_lost(scene: Scene) -> None:
    """It comes in a callback of the event loop, which would swallow what it raises there."""
    scene.enqueue("work", 0.01)
    worker = scene.worker(point="opening, about to be answered", signal="SIGTERM")
    assert worker.wait(20.0) == 0, worker.text
    # It had no row yet, or has taken leave: the thread that hears signals may be a little late.
    assert {row.state for row in scene.store.workers()} <= {"gone"}
    scene.settle()
    scene.audit()


@seeds(on_a_file=2, on_servers=1)
def test_graceful_restarts_at_random_instants_cost_no_attempt_and_repeat_no_run(
    scene: Scene, seed: int
) -> None:
    """As deploys do: the first instants of a worker's life are hit as well as the others."""
    draw = random.Random(seed)
    scene.enqueue("work", 0.02, count=100)
    scene.enqueue("grind", 0.02, count=20)
    for _ in range(15):
        worker = scene.worker("--slots", "3")
        stand_still(draw.uniform(0, 0.25))
        worker.signal(signal.SIGTERM)
        # Before it has said what a signal means, the system says it: it just ends.
        assert worker.wait() in {0, -signal.SIGTERM}, worker.text
        assert not [job for job in scene.store.jobs() if job.state == RUNNING], worker.text
    scene.settle()
    assert {(job.attempt, job.state) for job in scene.store.jobs()} == {(1, SUCCEEDED)}
    assert {scene.runs(job) for job in scene.known} == {1}
    assert {worker.state for worker in scene.store.workers()} == {"gone"}
    scene.audit()


def test_a_killed_supervisor_takes_its_children_along_and_their_jobs_are_rescued(
    scene: Scene,
) -> None:
    jobs = [scene.enqueue("stand", str(scene.gate)) for _ in range(2)]
    jobs += [scene.enqueue("hold", str(scene.gate)) for _ in range(2)]
    supervisor = scene.worker("--processes", "2", "--slots", "2")
    until(lambda: all(map(scene.running, jobs)), "the jobs run")
    children = [worker.pid for worker in scene.store.workers()]
    assert len(children) == 2
    supervisor.kill()
    try:
        until(lambda: not any(map(running, children)), "the children end", 10)  # by themselves
    finally:
        for child in children:
            if running(child):
                os.kill(child, signal.SIGKILL)
    scene.open_gate()
    scene.settle()
    assert [scene.job(job).claim_number for job in jobs] == [2, 2, 2, 2]
    scene.audit()


def _signal_twice(worker: Process, pause: float) -> None:
    worker.signal(signal.SIGTERM)
    stand_still(pause)
    worker.signal(signal.SIGTERM)
