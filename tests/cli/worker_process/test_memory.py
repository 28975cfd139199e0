"""``windlass worker`` on memory://: refused where no code could give it a job."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.processes import windlass

APP = "from windlass import Every, Windlass\napp = Windlass('memory://')\n"
TASK = "@app.task\ndef work() -> None: ...\n"
SCHEDULE = "@app.schedule(Every(3600))\n" + TASK
LIFESPAN = "@app.lifespan\nasync def fill(app):\n    await work.enqueue()\n    yield\n"
ENQUEUED = "work.enqueue_sync()\n"

REFUSED = "this worker would never get a job"
WARNED = "memory:// exists only in this process: no other program can enqueue jobs"


def run(folder: Path, text: str, *options: str) -> tuple[int, str]:
    (folder / "alone.py").write_text(APP + text)
    ended = windlass("worker", "alone:app", "--until-empty", *options, cwd=folder)
    return ended.returncode, ended.stderr


def test_a_worker_that_can_get_no_job_is_refused_with_what_to_do(tmp_path: Path) -> None:
    code, said = run(tmp_path, TASK)
    assert code == 1
    assert REFUSED in said
    assert "Use sqlite:///jobs.db, or app.worker() in the program that enqueues." in said
    assert "add --allow-memory" in said


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (SCHEDULE, ()),
        (TASK + LIFESPAN, ()),
        (TASK + ENQUEUED, ()),
        (TASK, ("--allow-memory",)),
    ],
    ids=["schedule", "lifespan", "enqueued", "allowed"],
)
def test_a_worker_whose_process_enqueues_runs_and_warns(
    tmp_path: Path, text: str, options: tuple[str, ...]
) -> None:
    code, said = run(tmp_path, text, *options)
    assert code == 0, said
    assert WARNED in said
    assert REFUSED not in said


def test_jobs_that_importing_the_app_enqueued_are_run(tmp_path: Path) -> None:
    code, said = run(tmp_path, TASK + ENQUEUED)
    assert code == 0
    assert "1 succeeded" in said


def test_several_processes_are_refused_even_if_memory_is_allowed(tmp_path: Path) -> None:
    code, said = run(tmp_path, SCHEDULE, "--allow-memory", "--processes", "2")
    assert code == 1
    assert "memory:// belongs to one process" in said
