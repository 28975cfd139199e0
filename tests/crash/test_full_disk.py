"""A disk without room: nothing is acknowledged that is not stored, and nothing is forgotten."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.crash.harness.processes import Processes, stand_still, until
from tests.crash.harness.scene import Scene
from tests.crash.harness.sqlite_store import StoreElsewhere
from tests.crash.harness.store import SUCCEEDED

pytestmark = pytest.mark.crash

_OWN_MOUNTS = ["unshare", "--user", "--map-root-user", "--mount"]
_MOUNT = 'mount -t tmpfs -o size=24m none "$1" && shift && exec "$@"'


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Scene]:
    """A scene whose database is on 24 megabytes of memory that only its processes see."""
    disk = tmp_path / "disk"
    disk.mkdir()
    in_it = [*_OWN_MOUNTS, "sh", "-c", _MOUNT, "sh", str(disk)]
    if shutil.which("unshare") is None or subprocess.run([*in_it, "true"], check=False).returncode:
        pytest.skip("a small file system cannot be mounted here")
    with Processes(prefix=in_it) as processes:
        scene = Scene(tmp_path, processes)
        path = scene.file = disk / "jobs.db"

        def ask(sql: str, values: Sequence[Any]) -> str:
            answer = tmp_path / "answer"
            role = scene.start("look", path=str(path), sql=sql, values=values, answer=str(answer))
            assert role.wait() == 0, role.text
            return answer.read_text(encoding="utf-8")

        scene.store = StoreElsewhere(path, ask)
        scene.env["WINDLASS_URL"] = f"sqlite:///{path}"
        yield scene
        scene.open_gate()


def enqueue(
    scene: Scene, task: str, *arguments: object, count: int = 1, queue: str = "default"
) -> str:
    """Enqueue from a process that sees the disk; how it ended."""
    known = scene.folder / "known"
    known.touch()
    role = scene.start(
        "enqueuer", known=str(known), task=task, arguments=arguments, count=count, queue=queue
    )
    assert role.wait() == 0, role.text
    scene.known = known.read_text(encoding="ascii").split()
    return role.text


def test_running_jobs_are_finished_once_there_is_room_again(small_disk: Scene) -> None:
    scene = small_disk
    enqueue(scene, "hold", str(scene.gate), count=2)
    enqueue(scene, "stand", str(scene.gate))
    jobs = list(scene.known)
    worker, other = scene.worker("--queue", "default"), scene.worker("--queue", "other")
    scene.ready(worker, other)
    until(lambda: all(map(scene.running, jobs)), "the jobs run")

    # Twelve megabytes to give back: what stands in the write-ahead file needs its room twice.
    reserve, crumbs = (str(scene.file.with_name(name)) for name in ("reserve", "crumbs"))
    assert scene.start("fill", path=reserve, blocks=3072).wait() == 0
    said = enqueue(scene, "carry", "x" * 200_000, count=200, queue="later")
    assert "StorageFull: The disk that holds" in said
    assert len(scene.known) < 203
    assert scene.start("fill", path=crumbs, blocks=None).wait() == 0
    # What the write-ahead file has reserved lasts for a few beats.
    until(lambda: "the heartbeat failed" in worker.text, "the last room is gone")
    scene.open_gate()
    until(lambda: "outcomes cannot be stored, retrying" in worker.text, "the worker says so")
    stand_still(1.5)  # longer than the lease: nobody is buried for what befalls all
    assert "StorageFull" in enqueue(scene, "carry", "x" * 200_000, queue="later")

    assert scene.start("remove", path=reserve).wait() == 0
    until(lambda: "outcomes are stored again" in worker.text, "the worker goes on")
    until(lambda: all(scene.job(job).state == SUCCEEDED for job in jobs), "the jobs are finished")
    assert "all enqueued" in enqueue(scene, "work", 0.01)
    assert [scene.job(job).claim_number for job in jobs] == [1, 1, 1]
    assert {row.state for row in scene.store.workers()} == {"live"}
    later = scene.worker("--queue", "later")
    scene.settle(worker, other, later)
    scene.audit()


def test_a_worker_that_starts_on_a_full_disk_waits_for_room(small_disk: Scene) -> None:
    scene = small_disk
    reserve, crumbs = (str(scene.file.with_name(name)) for name in ("reserve", "crumbs"))
    assert scene.start("fill", path=reserve, blocks=3072).wait() == 0
    enqueue(scene, "work", 0.01)
    (job,) = scene.known
    assert scene.start("fill", path=crumbs, blocks=None).wait() == 0
    worker = scene.worker()
    until(worker.log.exists, "the worker has begun")
    until(lambda: "waiting for the storage" in worker.text, "the worker says so")
    assert "is full: free some space" in worker.text
    assert scene.start("remove", path=reserve).wait() == 0
    until(lambda: scene.job(job).state == SUCCEEDED, "the job is finished")
    assert worker.text.count("waiting for the storage") == 1
    scene.settle(worker)
