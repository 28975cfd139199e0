"""A warm program: each job says with its arguments what the program does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def say(**reply: Any) -> None:
    sys.stdout.write(f"{json.dumps(reply)}\n")
    sys.stdout.flush()


def complain(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def hang(*others: int) -> None:
    """Report the processes, and never answer."""
    say(progress=0.1, note=" ".join(map(str, (os.getpid(), *others))))
    time.sleep(600)


def pid(request: dict[str, Any], _value: Any) -> None:
    say(job=request["job"], result=os.getpid())


def request(request: dict[str, Any], _value: Any) -> None:
    say(job=request["job"], result=request)


def variable(request: dict[str, Any], name: Any) -> None:
    say(job=request["job"], result=[os.environ.get(name), str(Path.cwd())])


def talk(request: dict[str, Any], _value: Any) -> None:
    say(progress=0.25, note="begun")
    say(job=request["job"], progress=0.5, note="half")
    say(log="a careful line", level="warning")
    complain("a line of standard error")
    say(job=request["job"], result=None)


def error(request: dict[str, Any], reply: Any) -> None:
    say(job=request["job"], **reply)


def raw(request: dict[str, Any], line: Any) -> None:
    sys.stdout.write(line.replace("JOB", request["job"]) + "\n")
    sys.stdout.flush()


def leave(_request: dict[str, Any], code: Any) -> None:
    complain("about to leave")
    sys.exit(code)


def suicide(_request: dict[str, Any], number: Any) -> None:
    os.kill(os.getpid(), number)


def silent(_request: dict[str, Any], _value: Any) -> None:
    os.close(1)
    time.sleep(600)


def deaf(_request: dict[str, Any], _value: Any) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    hang(subprocess.Popen(["sleep", "600"]).pid)


def endless(_request: dict[str, Any], _value: Any) -> None:
    hang()


def polite(request: dict[str, Any], _value: Any) -> None:
    def answer(_number: int, _frame: object) -> None:
        say(job=request["job"], result="asked to end")

    signal.signal(signal.SIGTERM, answer)
    hang()


def grow(_request: dict[str, Any], megabytes: Any) -> None:
    kept = b"x" * (megabytes * 1024 * 1024)
    time.sleep(600)
    del kept


ACTIONS: dict[str, Callable[[dict[str, Any], Any], None]] = {
    action.__name__: action
    for action in (
        *(pid, request, variable, talk, error, raw, leave, suicide),
        *(silent, deaf, endless, polite, grow),
    )
}

for line in sys.stdin:
    asked = json.loads(line)
    ACTIONS[asked["arguments"]["what"]](asked, asked["arguments"]["value"])
