"""An app whose tasks run programs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from windlass import Backoff, Program, Secret, Windlass

WARM = Program(
    [sys.executable, "-I", str(Path(__file__).with_name("warm_program.py"))],
    warm=True,
    env={"SHOP": "corner"},
    cwd=Path(__file__).parent,
)
AT_ONCE = Backoff.fixed(0)
app = Windlass(
    os.environ.get("PROGRAM_URL", "memory://"), grace=0.2, lease=30, backoff=AT_ONCE, max_attempts=2
)


@app.task(run_in=WARM, name="warm")
def warm(what: str, value: Any = None) -> Any:
    return ["the function", what, value]


@app.task(run_in=WARM, name="timed", timeout=2, max_attempts=1)
def timed(what: str, value: Any = None) -> Any:
    raise NotImplementedError


@app.task(run_in=WARM, name="soft", soft_timeout=0.2, timeout=20, max_attempts=1)
async def soft(what: str, value: Any = None) -> str:
    raise NotImplementedError


@app.task(run_in=WARM, name="number")
def number(what: str, value: Any = None) -> int:
    raise NotImplementedError


@app.task(run_in=WARM, name="secret")
def secret(what: str, value: Any, token: Secret[str]) -> None:
    raise NotImplementedError


def shell(name: str, script: str, **options: Any) -> Any:
    """Register a program of the shell that runs one job."""
    program = Program(["sh", "-c", script], give_up_codes=[7])

    @app.task(run_in=program, name=name, **options)
    def once(value: Any = None) -> Any:
        raise NotImplementedError

    return once


repeats = shell("repeats", "cat")
ignores = shell("ignores", 'printf "[1,\\n 2]"')
says_nothing = shell("says_nothing", "true")
no_json = shell("no_json", "echo done")
fails = shell("fails", "echo first >&2; echo the disk is full >&2; exit 3")
gives_up = shell("gives_up", "exit 7")
floods = shell("floods", "yes")
sleeps = shell("sleeps", 'echo "$$" >&2; sleep 600')
WAIT = "while :; do sleep 0.05; done"
LATE = {"soft_timeout": 1, "timeout": 20, "max_attempts": 1}
obeys = shell("obeys", f"trap 'exit 0' TERM; {WAIT}", **LATE)
obeys_with_words = shell("obeys_with_words", f"trap 'echo 50; exit 0' TERM; {WAIT}", **LATE)
