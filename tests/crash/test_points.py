"""A process dies at a named point, and another one finishes what it has left."""

from __future__ import annotations

import signal

import pytest

from tests.crash.harness import points
from tests.crash.harness.backends import SQLITE
from tests.crash.harness.points import POINTS, Point
from tests.crash.harness.processes import Process, stand_still, until
from tests.crash.harness.scene import Scene
from tests.crash.harness.store import SUCCEEDED
from windlass._cli.worker_process.signals import TOGETHER

pytestmark = pytest.mark.crash


TELLING = {"claim, answered", "run, in the handler", "finish, on its way", "finish, answered"}
"""Where much is under way at once."""


def at_points_of(*who: str, on_servers: set[str] | None = None) -> pytest.MarkDecorator:
    """On each backend, at each of its points that concern them; on servers maybe at fewer."""
    return pytest.mark.parametrize(
        ("place", "name"),
        [
            pytest.param(backend, name, id=f"{backend}: {name}")
            for backend, points_there in POINTS.items()
            for name, point in points_there.items()
            if point.who in who and (on_servers is None or backend == SQLITE or name in on_servers)
        ],
        indirect=["place"],
    )


def dies(process: Process, name: str) -> None:
    """It has come to the point, and nowhere else has it ended."""
    assert process.wait() == -signal.SIGKILL, f"{name} was never reached:\n{process.text}"


def finished_elsewhere(scene: Scene, job: str, name: str) -> None:
    point = POINTS[scene.place.backend][name]
    scene.open_gate()
    scene.settle()
    assert scene.job(job).attempt in _possible(point, point.attempts)
    assert scene.runs(job) in _possible(point, point.runs)
    scene.audit()


def _possible(point: Point, most: int) -> set[int]:
    """What was on its way may have arrived, or not."""
    return {most, most - 1} if point.when == "amid" else {most}


@at_points_of(points.WORKER)
def test_a_worker_dies_with_one_job(scene: Scene, name: str) -> None:
    job = scene.enqueue("work", 0.01)
    dies(scene.worker(point=name), name)
    finished_elsewhere(scene, job, name)


@at_points_of(points.WORKER, on_servers=TELLING)
def test_a_worker_dies_among_many_jobs(scene: Scene, name: str) -> None:
    scene.enqueue("work", 0.01, count=12)
    scene.enqueue("grind", 0.01, count=4)
    dies(scene.worker("--slots", "3", point=name), name)
    scene.settle()
    scene.audit()


@at_points_of(points.WORKER, on_servers=TELLING)
def test_a_success_and_the_job_that_follows_it_are_stored_together_or_not_at_all(
    scene: Scene, name: str
) -> None:
    scene.enqueue("pay", 0.01)
    dies(scene.worker(point=name), name)
    assert_together(scene)
    scene.settle()
    assert_together(scene)
    assert len(scene.store.jobs()) == 2
    scene.audit(unknown=1)


def assert_together(scene: Scene) -> None:
    jobs = scene.store.jobs()
    paid = [job for job in jobs if job.task == "crash.pay" and job.state == SUCCEEDED]
    assert len([job for job in jobs if job.task == "crash.thank"]) == len(paid)


@at_points_of(points.OPENER)
def test_a_worker_dies_while_it_makes_the_database(scene: Scene, name: str) -> None:
    dies(scene.worker(point=name), name)
    job = scene.enqueue("work", 0.01)
    finished_elsewhere(scene, job, name)


@at_points_of(points.BEATING)
def test_a_worker_dies_at_a_heartbeat(scene: Scene, name: str) -> None:
    job = scene.enqueue("hold", str(scene.gate))
    dies(scene.worker(point=name), name)
    assert scene.running(job)
    finished_elsewhere(scene, job, name)


@at_points_of(points.REAPER)
def test_a_worker_dies_while_it_buries_another(scene: Scene, name: str) -> None:
    job = scene.enqueue("hold", str(scene.gate))
    first = scene.worker()
    until(lambda: scene.running(job), "the job runs")
    first.kill()
    # It serves another queue, so that it cannot take the job before it dies.
    dies(scene.worker("--queue", "elsewhere", point=name), name)
    finished_elsewhere(scene, job, name)


@at_points_of(points.STOPPING, points.STUBBORN)
def test_a_worker_dies_while_it_stops(scene: Scene, name: str) -> None:
    point = POINTS[scene.place.backend][name]
    task = "hold" if point.who == points.STOPPING else "stand"
    job = scene.enqueue(task, str(scene.gate))
    worker = scene.worker(point=name)
    until(lambda: scene.running(job), "the job runs")
    worker.signal(signal.SIGTERM)
    until(lambda: "SIGTERM: taking no new jobs" in worker.text, "the first signal was heard")
    stand_still(TOGETHER)  # before, it would be the same request
    worker.signal(signal.SIGTERM)
    dies(worker, name)
    finished_elsewhere(scene, job, name)


@at_points_of(points.PRODUCER)
def test_a_producer_dies_while_it_enqueues(scene: Scene, name: str) -> None:
    known = scene.folder / "known"
    dies(scene.start("producer", known=str(known), seed=1, count=1, point=name), name)
    assert known.read_text(encoding="utf-8") == ""
    scene.settle()
    stored = scene.store.jobs()
    # What it was not told of may be there, whole, or not be there; never half.
    point = POINTS[scene.place.backend][name]
    assert len(stored) in _possible(point, point.attempts)
    assert {job.attempt for job in stored} <= {1}
    scene.audit(unknown=len(stored))


def test_a_point_that_does_not_exist_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = Point("windlass._app.app:Windlass.gone", "before", "", 0, 0)
    monkeypatch.setitem(POINTS[SQLITE], "nowhere", gone)
    with pytest.raises(LookupError, match=r"windlass\._app\.app:Windlass\.gone does not exist"):
        points.arm(SQLITE, "nowhere", "SIGKILL")


def test_every_point_is_killed_at() -> None:
    played = {
        points.WORKER,
        points.OPENER,
        points.BEATING,
        points.REAPER,
        points.STOPPING,
        points.STUBBORN,
        points.PRODUCER,
        points.PLANNER,  # in test_flows.py
        points.MEMBERS,
    }
    assert {point.who for there in POINTS.values() for point in there.values()} == played
