"""Handlers that end the event loop of their worker. It must not take the neighbours along."""

from __future__ import annotations

import os
import sys
from itertools import product

import pytest

from tests.crash.harness.backends import DURABLE, SQLITE
from tests.crash.harness.processes import Process, until
from tests.crash.harness.scene import Scene
from tests.crash.harness.store import FAILED, SUCCEEDED, WAITING

pytestmark = pytest.mark.crash

WHOLE = "WINDLASS_TEST_WHOLE"

either_loop = pytest.mark.parametrize("uvloop", [True, False], ids=["uvloop", "asyncio"])
TASKS = ["gather", "group", "unkept task"]
if sys.version_info < (3, 12):  # from then on it awaits in the handler's own task
    TASKS.append("wait_for")

each_exit = pytest.mark.parametrize(
    ("place", "how", "uvloop"),
    [
        pytest.param(place, how, uvloop, id=f"{place}-{how}-{'uvloop' if uvloop else 'asyncio'}")
        for place, how, uvloop in product(DURABLE, TASKS, (True, False))
        # The loop decides what an exit does, not the store: the others are tried once each.
        if place == SQLITE or (how, uvloop) == ("gather", True) or os.environ.get(WHOLE)
    ],
    indirect=["place"],
)


def two_neighbours_and(scene: Scene, how: str) -> tuple[str, list[str]]:
    neighbours = [scene.enqueue("hold", str(scene.gate)) for _ in range(2)]
    return scene.enqueue("quit", how, str(scene.folder / "go")), neighbours


def go(scene: Scene, *jobs: str) -> None:
    """Let the culprit do it once all of them run."""
    until(lambda: all(map(scene.running, jobs)), "all jobs run")
    (scene.folder / "go").touch()


def ended(scene: Scene, job: str) -> bool:
    return scene.job(job).state in {SUCCEEDED, FAILED}


def neighbours_end_in(scene: Scene, worker: Process, neighbours: list[str]) -> None:
    scene.open_gate()
    until(lambda: all(ended(scene, job) for job in neighbours), "the neighbours end")
    for job in neighbours:
        assert (scene.job(job).state, scene.job(job).claim_number) == (SUCCEEDED, 1)
    scene.stop(worker)
    scene.audit()


@each_exit
def test_an_exit_in_a_sub_task_fails_its_job_and_the_neighbours_run_on(
    scene: Scene, how: str, *, uvloop: bool
) -> None:
    culprit, neighbours = two_neighbours_and(scene, how)
    worker = scene.worker(uvloop=uvloop)
    go(scene, culprit, *neighbours)
    until(lambda: ended(scene, culprit), "it has ended")
    job = scene.job(culprit)
    kind = "KeyboardInterrupt" if how == "group" else "SystemExit"
    assert (job.state, job.attempt, job.error_kind) == (FAILED, 1, kind)
    assert f"{kind}(" in worker.text
    neighbours_end_in(scene, worker, neighbours)


@pytest.mark.parametrize("place", [SQLITE], indirect=True)
def test_an_exit_in_a_callback_fails_its_job_too(scene: Scene) -> None:
    culprit, neighbours = two_neighbours_and(scene, "callback")
    worker = scene.worker(uvloop=False)
    go(scene, culprit, *neighbours)
    until(lambda: ended(scene, culprit), "it has ended")
    assert (scene.job(culprit).state, scene.job(culprit).error_kind) == (FAILED, "SystemExit")
    neighbours_end_in(scene, worker, neighbours)


@pytest.mark.parametrize("place", [SQLITE], indirect=True)
def test_an_exit_in_a_callback_under_uvloop_ends_no_worker_and_no_job(scene: Scene) -> None:
    """uvloop keeps nothing of a callback that raises: no job may be blamed on a guess."""
    culprit, neighbours = two_neighbours_and(scene, "callback")
    worker = scene.worker()
    go(scene, culprit, *neighbours)
    until(lambda: "SystemExit(0) was raised by a callback while jobs" in worker.text, "it is told")
    neighbours_end_in(scene, worker, [*neighbours, culprit])


@either_loop
@pytest.mark.parametrize("place", [SQLITE], indirect=True)
def test_a_stopped_loop_is_entered_again(scene: Scene, *, uvloop: bool) -> None:
    culprit, neighbours = two_neighbours_and(scene, "stop")
    worker = scene.worker(uvloop=uvloop)
    go(scene, culprit, *neighbours)
    until(lambda: ended(scene, culprit), "it has ended")
    assert scene.job(culprit).state == SUCCEEDED
    assert "loop.stop() was called" in worker.text
    neighbours_end_in(scene, worker, neighbours)


@either_loop
def test_a_job_that_cancels_every_task_costs_three_workers_and_is_quarantined(
    scene: Scene, *, uvloop: bool
) -> None:
    culprit, neighbours = two_neighbours_and(scene, "cancel all")
    (scene.folder / "go").touch()
    for _ in range(3):
        worker = scene.worker(uvloop=uvloop)
        assert worker.wait() == 70, worker.text
        assert culprit in worker.text
        assert "it cannot continue" in worker.text
        scene.open_gate()  # from the second one on neighbours end in time, or run alone
    scene.settle()
    job = scene.job(culprit)
    assert (job.state, job.attempt, job.error_kind) == (FAILED, 3, "Quarantined")
    assert [scene.job(neighbour).state for neighbour in neighbours] == [SUCCEEDED, SUCCEEDED]
    scene.audit()


@pytest.mark.parametrize("place", [SQLITE], indirect=True)
def test_a_supervisor_reports_a_crash_and_starts_another_worker(scene: Scene) -> None:
    culprit = scene.enqueue("quit", "cancel all", str(scene.folder / "go"))
    (scene.folder / "go").touch()
    supervisor = scene.worker("--processes", "2")
    until(lambda: ended(scene, culprit), "it is quarantined")
    # Two workers and the replacements of three; the first one prints a banner instead.
    until(lambda: supervisor.text.count("started, pid") == 4, "the last replacement has started")
    assert supervisor.text.count("crashed after") == 3
    assert "restarting it in" in supervisor.text
    assert "stopped" not in supervisor.text
    scene.stop(supervisor)
    scene.audit()


@each_exit
def test_an_exit_in_a_program_with_a_worker_fails_its_job_and_gives_the_others_back(
    scene: Scene, how: str, *, uvloop: bool
) -> None:
    """The loop belongs to the program, which ends; only the job that ended it pays for that."""
    culprit, neighbours = two_neighbours_and(scene, how)
    program = scene.start("embedded", uvloop=uvloop)
    go(scene, culprit, *neighbours)
    program.wait()
    job = scene.job(culprit)
    kind = "KeyboardInterrupt" if how == "group" else "SystemExit"
    assert (job.state, job.attempt, job.error_kind) == (FAILED, 1, kind), program.text
    for neighbour in neighbours:
        assert (scene.job(neighbour).state, scene.job(neighbour).attempt) == (WAITING, 0)
    scene.open_gate()
    scene.settle()
    scene.audit()
