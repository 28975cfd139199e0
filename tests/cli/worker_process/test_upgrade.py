"""A worker that is older than its storage: a newer Windlass has been there while it ran."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest
import redis

from tests.cli.processes import Running, environment, until
from tests.storage.newer_schema import downgraded, upgraded
from windlass import Flow, Windlass
from windlass._app.parts import parts_of
from windlass._core.job.job import JobRecord
from windlass._core.job.state import State
from windlass._storage.open import StorageOpener
from windlass._storage.protocol.storage import Storage
from windlass.admin import JobFilter

APP = """
import asyncio, pathlib
from windlass import Windlass

app = Windlass({url!r})

@app.task(name="held")
async def held(gate: str) -> str:
    pathlib.Path(gate + ".asked").touch()
    while not pathlib.Path(gate).exists():
        await asyncio.sleep(0.02)
    return "done"
"""


OLDER = "112971ac48021395a473e4b7b0528fa4abb88fcb"
"""A commit whose code checks the stored version when it claims."""
ENQUEUE = """
import sys
from yard import held
held.enqueue_sync(sys.argv[1])
"""


class Yard:
    """An app in a folder, and a gate that holds its jobs."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.gate = folder, folder / "gate"
        self._app = Windlass(url)
        self._held = self._app.task(name="held")(_held)
        self._storage = self._app.blocking.run(StorageOpener(self._app.settings).open())
        (folder / "yard.py").write_text(APP.format(url=url), encoding="utf-8")

    def enqueue(self) -> str:
        return str(self._held.enqueue_sync(str(self.gate)).id)

    def job(self, job: str) -> JobRecord:
        return self._app.blocking.run(self._app.admin.jobs.get(job))

    def change(self, how: Callable[[Storage], Coroutine[Any, Any, None]]) -> None:
        """Do what only the store itself can be asked."""
        self._app.blocking.run(how(self._storage))

    def close(self) -> None:
        self._app.blocking.run(self._storage.close())
        self._app.blocking.run(self._app.close())
        parts_of(self._app).blocking_loop.stop()


async def _held(gate: str) -> str:
    return gate


def test_a_worker_ends_what_it_runs_takes_nothing_more_and_asks_for_an_upgrade(
    tmp_path: Path, each_url: str
) -> None:
    yard = Yard(tmp_path, each_url)
    running = yard.enqueue()
    try:
        with Running("worker", "yard:app", cwd=tmp_path) as worker:
            worker.wait_for(r"pid \d+")
            assert until(lambda: yard.job(running).state is State.RUNNING)
            yard.change(upgraded)
            waiting = yard.enqueue()
            worker.wait_for("upgrade windlass in this process; it takes no more jobs")
            yard.gate.touch()
            assert worker.wait() == 78
        assert "too old here: upgrade it" in worker.text
        assert yard.job(running).state is State.SUCCEEDED
        assert (yard.job(waiting).state, yard.job(waiting).claim_number) == (State.WAITING, 0)
        with Running("worker", "yard:app", cwd=tmp_path) as worker:
            worker.wait_for("Upgrade windlass in this process")
            assert worker.wait() == 78
    finally:
        yard.change(downgraded)
        yard.close()


def test_a_supervisor_tries_a_worker_that_is_too_old_once_more_and_gives_up(tmp_path: Path) -> None:
    yard = Yard(tmp_path, f"sqlite:///{tmp_path}/jobs.db")
    command = "from windlass._cli.worker_process import supervisor; supervisor._UPGRADED = 0.2\n"
    command += "from windlass._cli.main import main; raise SystemExit(main())"
    prefix = [sys.executable, "-c", command]
    with Running("worker", "yard:app", "--processes", "2", cwd=tmp_path, instead=prefix) as both:
        both.wait_for("started, pid")
        yard.change(upgraded)
        both.wait_for("is too old for its storage .*: upgrade windlass. Restarting it once in 0.2")
        both.wait_for("giving up: .* is too old for its storage .*Upgrade windlass in this process")
        assert both.wait() == 78
    yard.close()


@pytest.fixture
def older(tmp_path: Path) -> dict[str, str]:
    """The environment in which processes run the code of an older commit."""
    repository = Path(__file__).parents[3]
    packed = tmp_path / "older.tar"
    archive = ["git", "-C", str(repository), "archive", "-o", str(packed), OLDER, "src/windlass"]
    try:
        subprocess.run(archive, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip(f"needs git and the history back to {OLDER[:7]}: git fetch --unshallow")
    with tarfile.open(packed) as files:
        files.extractall(tmp_path / "older", filter="data")
    return {"PYTHONPATH": str(tmp_path / "older" / "src")}


@contextmanager
def of_the_next_version(url: str) -> Iterator[None]:
    """Raise the stored version for a while, by the hand of neither release."""
    if url.startswith("sqlite:"):
        file = apsw.Connection(url.removeprefix("sqlite:///"))
        file.set_busy_timeout(5000)
        version = file.pragma("user_version")
        file.pragma("user_version", 100)
        yield
        file.pragma("user_version", version)
        file.close()
    elif url.startswith("redis:"):
        with redis.Redis.from_url(url) as line:
            epoch = line.get("{windlass}:epoch")
            assert isinstance(epoch, bytes)
            layout, _, jobs = epoch.decode().partition("-")
            line.mset(
                {"{windlass}:finishes": layout, "{windlass}:epoch": f"{int(layout) + 1}-{jobs}"}
            )
            yield
            line.set("{windlass}:epoch", epoch)
            line.delete("{windlass}:finishes")
    else:
        with psycopg.connect(url, autocommit=True) as line:
            line.execute("INSERT INTO windlass.schema_versions (version) VALUES (200)")
            yield
            line.execute("DELETE FROM windlass.schema_versions WHERE version = 200")


@pytest.mark.parametrize("backend", ["sqlite", "postgres", "redis"])
def test_the_worker_of_an_older_commit_leaves_a_store_of_the_next_version(
    backend: str, request: pytest.FixtureRequest, tmp_path: Path, older: dict[str, str]
) -> None:
    url, gate = f"sqlite:///{tmp_path}/jobs.db", tmp_path / "gate"
    if backend != "sqlite":
        url = request.getfixturevalue(f"{backend}_url")
    (tmp_path / "yard.py").write_text(APP.format(url=url), encoding="utf-8")
    with Running("worker", "yard:app", cwd=tmp_path, env=older) as worker:
        worker.wait_for(r"pid \d+")
        command = [sys.executable, "-c", ENQUEUE, str(gate)]
        subprocess.run(command, cwd=tmp_path, env=environment(older), check=True)
        assert until(Path(f"{gate}.asked").exists)
        with of_the_next_version(url):
            worker.wait_for("upgrade windlass in this process; it takes no more jobs")
            gate.touch()
            assert worker.wait() == 78
    # What it left is read, and its storage brought up to date, by this release.
    app = Windlass(url)
    (job,) = app.blocking.run(app.admin.jobs.find(JobFilter()))
    assert (job.task, job.state) == ("held", State.SUCCEEDED)
    app.blocking.run(app.close())
    parts_of(app).blocking_loop.stop()


@pytest.mark.parametrize("backend", ["sqlite", "postgres", "redis"])
def test_the_worker_of_an_older_commit_starts_no_member_of_a_flow(
    backend: str, request: pytest.FixtureRequest, tmp_path: Path, older: dict[str, str]
) -> None:
    url, gate = f"sqlite:///{tmp_path}/jobs.db", tmp_path / "gate"
    if backend != "sqlite":
        url = request.getfixturevalue(f"{backend}_url")
    (tmp_path / "yard.py").write_text(APP.format(url=url), encoding="utf-8")
    app = Windlass(url)
    flow = Flow("upgrade")
    flow.add(app.task(name="held")(_held).call(str(gate)))
    with Running("worker", "yard:app", cwd=tmp_path, env=older) as worker:
        worker.wait_for(r"pid \d+")
        app.blocking.start(flow)
        worker.wait_for("upgrade windlass in this process; it takes no more jobs")
        assert worker.wait() == 78
    assert not Path(f"{gate}.asked").exists()
    (job,) = app.blocking.run(app.admin.jobs.find(JobFilter()))
    assert (job.state, job.claim_number) == (State.WAITING, 0)
    app.blocking.run(app.close())
    parts_of(app).blocking_loop.stop()
