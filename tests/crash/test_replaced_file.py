"""The database is deleted, moved away or replaced under the processes that use it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.harness.backends import SQLITE
from tests.crash.harness.processes import until
from tests.crash.harness.scene import Scene
from tests.crash.harness.sqlite_store import SqliteStore
from windlass._cli.exit_codes import STORAGE_LOST

pytestmark = [pytest.mark.crash, pytest.mark.parametrize("place", [SQLITE], indirect=True)]


def deleted(path: Path) -> None:
    path.unlink()


def moved(path: Path) -> None:
    path.rename(path.with_name("moved.db"))


def restored(path: Path) -> None:
    """As a backup is put back by somebody who forgot the workers."""
    shutil.copyfile(path, path.with_name("backup.db"))
    path.with_name("backup.db").replace(path)


@pytest.mark.parametrize("change", [deleted, moved, restored])
def test_nothing_more_is_acknowledged_and_everybody_says_why(
    scene: Scene, change: Callable[[Path], None]
) -> None:
    job = scene.enqueue("hold", str(scene.gate))
    worker = scene.worker("--slots", "1")
    until(lambda: scene.running(job), "the job runs")
    known = scene.folder / "known"
    producer = scene.start("producer", known=str(known), seed=1)
    until(lambda: known.exists() and known.stat().st_size > 0, "the producer is heard")
    kept = _keep(scene.file)
    change(scene.file)

    assert producer.wait() != 0
    assert "StorageReplaced" in producer.text
    until(lambda: "was deleted or replaced while it was open" in worker.text, "the worker says so")
    assert worker.wait(15.0) == STORAGE_LOST, worker.text

    stored = {row.id for row in kept.jobs()}
    assert set(known.read_text(encoding="ascii").split()) <= stored, "acknowledged and lost"
    assert kept.is_sound()


def _keep(path: Path) -> SqliteStore:
    """Second names for the files as they are: what was acknowledged must be in them."""
    folder = path.parent / "kept"
    folder.mkdir()
    for name in (path.name, f"{path.name}-wal"):
        os.link(path.with_name(name), folder / name)
    return SqliteStore(folder / path.name)
