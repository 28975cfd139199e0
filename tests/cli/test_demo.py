"""What a newcomer sees first."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.processes import Running, gone_within, windlass
from windlass import Windlass
from windlass.core.state import State

pytestmark = pytest.mark.crash


def test_the_demo_ends_as_it_should_and_tells_every_state(tmp_path: Path) -> None:
    own = {"WINDLASS_URL": f"sqlite:///{tmp_path}/mine.db", "WINDLASS_MAX_ATTEMPTS": "1"}
    kept = tmp_path / "kept.db"
    ended = windlass("demo", "--fast", "--keep", str(kept), cwd=tmp_path, env=own, timeout=60)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stderr == ""
    # A path cannot be broken.
    lines = [line for line in ended.stdout.splitlines() if str(tmp_path) not in line]
    assert max(map(len, lines)) <= 100
    for word in (*("succeeded", "failed", "cancelled", "discarded"), "kill -9", "Try next"):
        assert word in ended.stdout
    assert "its worker was killed (SIGKILL) in mid-run" in ended.stdout
    assert not (tmp_path / "mine.db").exists()  # the user's own database is none of its business

    app = Windlass(f"sqlite:///{kept}")
    jobs = app.blocking.run(app.admin.find(limit=1000))
    app.blocking.run(app.close())
    app.blocking.stop()
    assert len(jobs) == 61
    assert {job.state for job in jobs} == {
        State.SUCCEEDED,
        State.FAILED,
        State.CANCELLED,
        State.DISCARDED,
    }


def test_the_demo_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "precious.db").write_text("mine")
    ended = windlass("demo", "--keep", "precious.db", cwd=tmp_path)
    assert ended.returncode == 1
    assert "precious.db exists already; name a file that does not" in ended.stderr
    assert (tmp_path / "precious.db").read_text() == "mine"


def test_nothing_of_the_demo_outlives_it(tmp_path: Path) -> None:
    # Killed, it cannot remove its folder.
    with Running("demo", cwd=tmp_path, env={"TMPDIR": str(tmp_path)}) as demo:
        workers = [int(demo.wait_for(r"worker w\w+ started, pid (\d+)")[1]) for _ in range(2)]
        demo.process.kill()
        assert all(gone_within(pid, 5.0) for pid in workers)
