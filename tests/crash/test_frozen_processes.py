"""Processes that stand still, as in a debugger, a suspended machine or a starved container."""

from __future__ import annotations

import signal

import pytest

from tests.crash.harness import points
from tests.crash.harness.backends import SQLITE
from tests.crash.harness.points import POINTS
from tests.crash.harness.processes import Process, stand_still, until
from tests.crash.harness.scene import Scene
from tests.crash.harness.store import SUCCEEDED

pytestmark = pytest.mark.crash

LEASE = 1.0
"""What `tests.crash.harness.shop.SETTINGS` says."""

UNLOCKED = [
    "claim, answered",
    "run, in the handler",
    "finish, before it is sent",
    "finish, after its commit",
]
LOCKED = [name for name, p in POINTS[SQLITE].items() if p.who == points.WORKER and p.locked]
ON_A_FILE = pytest.mark.parametrize("place", [SQLITE], indirect=True)


def state_of(scene: Scene, process: Process) -> list[str]:
    """The state of every identity this process has had, oldest first."""
    return [worker.state for worker in scene.store.workers_of(process.pid)]


def works_on(scene: Scene, process: Process) -> None:
    """It takes and finishes a job that it alone can take."""
    own = scene.enqueue("work", 0.01, queue="own")
    until(lambda: scene.job(own).state == SUCCEEDED, "the worker goes on")
    assert {effect.pid for effect in scene.effects.read() if effect.job == own} == {process.pid}


@pytest.mark.parametrize("name", UNLOCKED)
def test_a_worker_stopped_beyond_its_lease_comes_back_with_a_new_id(
    scene: Scene, name: str
) -> None:
    job = scene.enqueue("work", 0.01)
    zombie = scene.worker("--queue", "default", "--queue", "own", point=name, signal="SIGSTOP")
    zombie.wait_until_stopped()
    other = scene.worker("--queue", "default")
    until(lambda: state_of(scene, zombie) == ["dead"], "the stopped worker is buried")
    until(lambda: scene.store.unfinished() == 0, "another worker has finished the job")
    attempts = POINTS[scene.place.backend][name].attempts
    assert scene.job(job).attempt == attempts
    zombie.signal(signal.SIGCONT)
    until(lambda: state_of(scene, zombie) == ["dead", "live"], "it continues with a new id")
    works_on(scene, zombie)
    scene.settle(zombie, other)
    assert scene.job(job).attempt == POINTS[scene.place.backend][name].attempts, (
        "what came late was refused"
    )
    scene.audit()


@pytest.mark.parametrize("task", ["hold", "stand"])
def test_the_late_end_of_a_handler_is_refused(scene: Scene, task: str) -> None:
    """Once as a coroutine, which is interrupted, and once on a thread, which nobody can stop."""
    job = scene.enqueue(task, str(scene.gate))
    zombie = scene.worker("--queue", "default", "--queue", "own")
    until(lambda: scene.running(job), "the job runs")
    scene.freeze(zombie)
    other = scene.worker("--queue", "default")
    until(lambda: scene.running(job, claim=2), "the job runs elsewhere")
    zombie.signal(signal.SIGCONT)
    until(lambda: state_of(scene, zombie) == ["dead", "live"], "it continues with a new id")
    scene.open_gate()
    until(lambda: "the claim was lost, its outcome" in zombie.text, "the late end is refused")
    works_on(scene, zombie)
    scene.settle(zombie, other)
    stored = scene.job(job)
    assert (stored.state, stored.claim_number, stored.result) == (SUCCEEDED, 2, b"2")
    scene.audit()


def test_a_worker_stopped_for_less_than_its_lease_keeps_its_job(scene: Scene) -> None:
    scene.env["WINDLASS_LEASE"] = "3s"
    job = scene.enqueue("hold", str(scene.gate))
    stopped, other = scene.worker(), scene.worker()
    scene.ready(stopped, other)
    until(lambda: scene.running(job), "the job runs")
    holder, idle = (stopped, other) if scene.effects.of(stopped.pid) else (other, stopped)
    holder.signal(signal.SIGSTOP)
    holder.wait_until_stopped()
    stand_still(1.0)
    holder.signal(signal.SIGCONT)
    scene.beat_for(0.5)
    scene.open_gate()
    scene.settle(holder, idle)
    assert (scene.job(job).claim_number, scene.runs(job)) == (1, 1)
    assert {worker.state for worker in scene.store.workers()} == {"gone"}
    scene.audit()


@ON_A_FILE
@pytest.mark.parametrize("name", LOCKED)
def test_no_worker_dies_for_waiting_on_one_stopped_in_its_transaction(
    scene: Scene, name: str
) -> None:
    lease = 3.0  # a busy machine may keep a process waiting
    scene.env["WINDLASS_LEASE"] = f"{lease:g}s"
    held = scene.enqueue("hold", str(scene.gate), queue="held")
    waiting = [scene.worker("--queue", "held"), scene.worker("--queue", "idle")]
    scene.ready(*waiting)
    until(lambda: scene.running(held), "a job runs elsewhere")
    scene.beat_for(1.2 * lease)  # from now on they may judge others
    job = scene.enqueue("work", 0.01)
    holder = scene.worker("--queue", "default", point=name, signal="SIGSTOP")
    holder.wait_until_stopped()
    stand_still(1.5 * lease)
    said = "\n".join(worker.text for worker in (*waiting, holder))
    assert {worker.state for worker in scene.store.workers()} == {"live"}, said
    late = scene.worker("--queue", "default")
    holder.signal(signal.SIGCONT)
    until(lambda: scene.job(job).state == SUCCEEDED, "the job is finished")
    scene.ready(late)
    scene.beat_for(1.2 * lease)  # and now again
    scene.open_gate()
    scene.settle(holder, late, *waiting)
    assert {worker.state for worker in scene.store.workers()} == {"gone"}
    assert len(scene.store.workers()) == 4
    for each in (held, job):
        assert (scene.job(each).claim_number, scene.runs(each)) == (1, 1)
    scene.audit()


@ON_A_FILE
def test_an_enqueue_waits_for_a_worker_stopped_in_its_transaction_and_is_stored(
    scene: Scene,
) -> None:
    scene.enqueue("work", 0.01)
    holder = scene.worker(point="finish, before its commit", signal="SIGSTOP")
    holder.wait_until_stopped()
    known = scene.folder / "known"
    producer = scene.start("producer", known=str(known), seed=1, count=1)
    stand_still(1.5 * LEASE)
    assert known.read_text(encoding="ascii") == ""
    holder.signal(signal.SIGCONT)
    assert producer.wait() == 0
    scene.known += known.read_text(encoding="ascii").split()
    scene.settle(holder)
    scene.audit()
