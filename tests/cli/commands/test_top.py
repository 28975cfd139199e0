"""``windlass top``."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from tests.cli.fixtures import Desk
from tests.cli.processes import PATIENCE, environment
from windlass import Windlass
from windlass._app.parts import parts_of
from windlass._cli.top.frame import render_frame, sparkline
from windlass._cli.top.frame_reader import read_frame
from windlass._core.job.job import NewJob
from windlass._core.job.outcome import GaveUp
from windlass._system.seams import new_job_id
from windlass.testing import isolated
from windlass.testing.conformance.steps import (
    HOUR,
    OOPS,
    SECOND,
    a_worker,
    claim,
    happened,
    succeeded,
)


def drawn(seen: Any, width: int = 140) -> str:
    console = Console(width=width, highlight=False, color_system=None)
    with console.capture() as captured:
        console.print(render_frame(seen, "every 2 s"))
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


async def test_a_frame_shows_the_current_state() -> None:
    app = Windlass("memory://")
    with isolated(app) as clock:
        async with app:
            storage = await parts_of(app).storage()
            worker = msgspec.structs.replace(a_worker("w1", lease=HOUR), queues=["mail", "idle"])
            await storage.workers.register(worker)
            await storage.workers.beat("w1", memory=64 * 2**20)
            silent = msgspec.structs.replace(a_worker("w2", lease=SECOND), queues=["mail"])
            await storage.workers.register(silent)
            news = [NewJob(id=new_job_id(), task="send", queue="mail") for _ in range(6)]
            await storage.jobs.insert(news[:1])
            await succeeded(storage, *await claim(storage, queue="mail"))
            clock.advance(20 * 60)  # long enough ago to say nothing about the pace
            await storage.jobs.insert(news[1:])
            await storage.workers.beat("w1")
            bank = NewJob(id=new_job_id(), task="pay [red]", queue="bank\x1b[2J", delay=HOUR)
            await storage.jobs.insert([bank])
            await storage.admin.pause("bank\x1b[2J")
            clock.advance(90)
            taken = await claim(storage, 4, queue="mail")
            for job in taken[:2]:
                await succeeded(storage, job)
            await happened(storage, taken[2], GaveUp(OOPS))
            clock.advance(30)
            text = drawn(await read_frame(app))
    head, line, *rest = text.splitlines()
    assert head.startswith("windlass top  memory")
    assert head.endswith("UTC  every 2 s")
    assert re.fullmatch(r"▁{37}▄▁{20}█▁  4 runs ended in 60 minutes, 1 with an error", line)
    rows = [[cell for cell in re.split(r"  +", row.strip()) if cell] for row in rest if row]
    by_name = {row[0]: row for row in rows}
    # 3 runs in the four minutes that are over, and none in the one that has just begun.
    assert by_name["mail"] == ["mail", "1", "0", "0", "1", "10", "2 m", "0.8", "0.2", "open"]
    assert by_name["idle"][5:] == ["10", "–", "–", "–", "open"]
    assert by_name["bank\\x1b[2J"][-1] == "paused, no worker"
    assert by_name["w1"][1:5] == ["live", "host", "1", "mail, idle"]
    assert by_name["w1"][5:] == ["1 of 10", "64 MiB", "2 m ago"]
    assert by_name["w2"][1] == "silent"
    assert rows[-1] == ["1", "30 s ago", "send", "ValueError: boom"]


@pytest.mark.parametrize("width", [60, 80])
async def test_a_narrow_screen_leaves_columns_out_and_folds_no_name(width: int) -> None:
    app, worker, queue = Windlass("memory://"), "w0123456789ab", "reports-of-all-shops"
    with isolated(app):
        async with app:
            storage = await parts_of(app).storage()
            start = msgspec.structs.replace(a_worker(worker, lease=HOUR), queues=[queue])
            await storage.workers.register(start)
            await storage.jobs.insert([NewJob(id=new_job_id(), task="send", queue=queue)])
            (job,) = await claim(storage, worker=worker, queue=queue)
            await happened(storage, job, GaveUp(OOPS))
            text = drawn(await read_frame(app), width)
    assert "1 run ended in 60 minutes, 1 with an error" in " ".join(text.split())
    heads = [line.split() for line in text.splitlines() if line.startswith(("queue", "worker"))]
    assert heads[0][-1] == "state"
    assert heads[1][:2] == ["worker", "state"]
    (row,) = [line for line in text.splitlines() if line.startswith("repo")]
    assert row.split()[-1] == "open"
    (row,) = [line for line in text.splitlines() if worker in line]
    assert row.split()[1] == "live"


async def test_an_empty_store_is_shown_as_empty() -> None:
    app = Windlass("memory://")
    with isolated(app):
        async with app:
            text = drawn(await read_frame(app))
    assert "No queue has jobs" in text
    assert "No worker is live." in text


def test_the_highest_bar_is_full_and_little_is_not_nothing() -> None:
    assert sparkline([0, 1, 50, 100]) == "▁▂▅█"
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline([]) == ""


def test_one_frame_goes_into_a_pipe_and_to_machines(everywhere: Desk) -> None:
    desk = everywhere
    desk.fetch.enqueue_sync("a")
    said = desk("top", "--once")
    assert said.code == 0
    assert said.out.startswith("windlass top  ")
    assert "default" in said.out
    assert "\x1b" not in said.out
    told = desk("top", "--once", "--json").json
    assert set(told) == {
        *("at", "storage", "queues", "workers", "errors", "ended_per_minute", "errors_per_minute")
    }
    (queue,) = told["queues"]
    assert (queue["queue"], queue["ready"], queue["slots"]) == ("default", 1, 0)


def test_frames_follow_one_another_until_the_reader_has_enough(tmp_path: Path) -> None:
    (tmp_path / "jobs.db").touch()
    words = ["top", "--url", "sqlite:///jobs.db", "--every", "100ms", "--json"]
    with subprocess.Popen(
        [sys.executable, "-m", "windlass", *words],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        first, second = (json.loads(running.stdout.readline()) for _ in range(2))
        running.stdout.close()
        assert running.wait(PATIENCE) == 0
    assert first["at"] < second["at"]


def test_q_gives_the_screen_back(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    (tmp_path / "jobs.db").touch()
    words = ["top", "--url", "sqlite:///jobs.db", "--every", "1h"]
    with subprocess.Popen(
        [sys.executable, "-m", "windlass", *words],
        cwd=tmp_path,
        env=environment({"TERM": "xterm", "COLUMNS": "140", "LINES": "40"}),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    ) as running:
        os.close(theirs)
        shown = b""
        while b"No worker is live." not in shown:
            shown += os.read(ours, 65536)
        assert b"q quits" in shown
        os.write(ours, b"q")
        while True:
            try:
                shown += os.read(ours, 65536)
            except OSError:  # how the other end of a terminal says that it is over
                break
        assert running.wait(PATIENCE) == 0
    os.close(ours)
    assert b"\x1b[?1049h" in shown  # another screen …
    assert shown.rstrip().endswith((b"\x1b[?1049l", b"\x1b[?25h"))  # … and back


@pytest.mark.parametrize("every", ["often", "1ms"])
def test_how_often_is_checked(desk: Desk, every: str) -> None:
    said = desk("top", "--every", every)
    assert said.code == 1
    assert "--every" in said.err
