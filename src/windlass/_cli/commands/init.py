"""``windlass init``: write a small project that works."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from windlass._cli.options.groups import examples
from windlass.errors import ConfigError

__all__ = ["init"]

_JOBS = '''\
"""The app and its tasks."""

from __future__ import annotations

import os
from datetime import timedelta

from windlass import Every, Windlass

app = Windlass(os.environ.get("WINDLASS_URL", "sqlite:///jobs.db"))


@app.task(max_attempts=5)
async def send_welcome(to: str, *, name: str) -> str:
    """Send a mail. Runs again after an error, up to five times."""
    return f"Hello {name}, this goes to {to}"


@app.schedule(Every(timedelta(minutes=1)))
@app.task
def report() -> str:
    """Run once a minute, on one worker. A plain function runs on a thread."""
    return "all is well"
'''

_ENQUEUE = '''\
"""Enqueue a job: python enqueue.py"""

from __future__ import annotations

from jobs import send_welcome

job = send_welcome.enqueue_sync("ada@example.org", name="Ada")
print(f"job {job.id} waits for a worker")
'''

_TEST = '''\
"""Tests of the jobs, without a worker and without a file."""

from __future__ import annotations

from jobs import app, report, send_welcome
from windlass.testing import drain_sync, isolated


def test_a_mail_is_sent_after_a_minute() -> None:
    with isolated(app) as clock:
        send_welcome.options(delay=60).enqueue_sync("ada@example.org", name="Ada")
        assert drain_sync(app).succeeded == 0
        clock.advance(60)
        assert drain_sync(app).succeeded == 1


def test_a_handler_is_still_a_function() -> None:
    assert report() == "all is well"
'''

_README = """\
# Background jobs

    python enqueue.py               # store a job
    windlass worker jobs:app        # run jobs; Ctrl-C stops it
    python -m pytest                # test them

`jobs.py` has the app and its tasks. Jobs are stored in the file `jobs.db`. For another storage set
`WINDLASS_URL`; `.env.example` has the lines for it.

    pip install 'windlass[web]'
    windlass dashboard jobs:app     # watch jobs in your browser
    windlass jobs list jobs:app     # the same in the terminal
"""

_ENV = """\
# The storage of the jobs. Copy the line that you need to .env, or to your deployment.
WINDLASS_URL=sqlite:///jobs.db
# WINDLASS_URL=postgresql://user:password@localhost/database
# WINDLASS_URL=redis://localhost:6379/0
"""

_FILES: Mapping[str, str] = {
    "jobs.py": _JOBS,
    "enqueue.py": _ENQUEUE,
    "test_jobs.py": _TEST,
    "README.md": _README,
    ".env.example": _ENV,
}


@click.command(epilog=examples("windlass init", "windlass init shop"))
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default=".")
def init(folder: Path) -> int:
    """Write a small project that works.

    FOLDER is the current directory if you leave it out. The project has an app with two tasks and a
    schedule, a script that enqueues a job, and a test. Files that exist are never overwritten.
    """
    taken = [name for name in _FILES if (folder / name).exists()]
    if taken:
        message = (
            f"{folder / taken[0]} exists, and nothing was written. Choose another folder, as in "
            f"windlass init shop, or move {', '.join(taken)} away"
        )
        raise ConfigError(message)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in _FILES.items():
            with (folder / name).open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        message = f"cannot write to {folder}: {error}. Choose a folder that you may write to"
        raise ConfigError(message) from error
    _say(folder)
    return 0


def _say(folder: Path) -> None:
    click.echo(f"Wrote {', '.join(_FILES)}. Next:\n")
    if folder != Path():
        click.echo(f"  cd {folder}")
    click.echo("  python enqueue.py           # store a job")
    click.echo("  windlass worker jobs:app    # run it; Ctrl-C stops the worker")
    click.echo("  python -m pytest            # run the test")
