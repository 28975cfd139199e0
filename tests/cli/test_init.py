"""``windlass init``: the project it writes works as it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.processes import environment, windlass


def python(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = windlass("init", "shop", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    return tmp_path / "shop"


def test_it_prints_the_commands_to_try_next(tmp_path: Path) -> None:
    said = windlass("init", "shop", cwd=tmp_path).stdout
    commands = [line.partition("#")[0].strip() for line in said.splitlines() if line[:2] == "  "]
    assert commands == [
        "cd shop",
        "python enqueue.py",
        "windlass worker jobs:app",
        "python -m pytest",
    ]


def test_the_project_passes_its_own_test(project: Path) -> None:
    tested = python("-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=project)
    assert tested.returncode == 0, tested.stdout
    assert "2 passed" in tested.stdout
    assert not (project / "jobs.db").exists()


def test_a_worker_runs_the_job_that_the_script_enqueued(project: Path) -> None:
    enqueued = python("enqueue.py", cwd=project)
    assert enqueued.returncode == 0, enqueued.stderr
    assert "waits for a worker" in enqueued.stdout
    worked = windlass("worker", "jobs:app", "--until-empty", cwd=project)
    assert worked.returncode == 0, worked.stderr
    # Beside it, the schedule may have fired: it does every minute.
    assert re.search(r"succeeded +\S+ jobs\.send_welcome", worked.stderr), worked.stderr


def test_it_writes_to_the_current_folder_by_default(tmp_path: Path) -> None:
    made = windlass("init", cwd=tmp_path)
    assert made.returncode == 0
    assert "cd " not in made.stdout
    names = {"jobs.py", "enqueue.py", "test_jobs.py", "README.md", ".env.example"}
    assert {file.name for file in tmp_path.iterdir()} == names


def test_it_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("mine")
    refused = windlass("init", cwd=tmp_path)
    assert refused.returncode == 1
    assert "README.md exists, and nothing was written" in refused.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["README.md"]
    assert (tmp_path / "README.md").read_text() == "mine"


def test_a_folder_that_cannot_be_made_is_an_error_and_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused = windlass("init", "file/shop", cwd=tmp_path)
    assert refused.returncode == 1
    assert "cannot write to file/shop" in refused.stderr
    assert "Traceback" not in refused.stderr
