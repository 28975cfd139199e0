"""``--processes N``: restarts, signals, and what becomes of children without a supervisor."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.processes import PATIENCE, Running, alive, environment, gone_within, until, windlass
from tests.cli.shop import Shop
from windlass._core.job.ids import short_id
from windlass._core.job.state import State

pytestmark = pytest.mark.crash


def started(supervisor: Running) -> list[int]:
    """The pids of both workers, once they work."""
    first = supervisor.wait_for(r"· pid (\d+) ·")
    second = supervisor.wait_for(r"\[2\] . worker w\w+ started, pid (\d+)")
    return [int(first[1]), int(second[1])]


def test_one_banner_speaks_for_all_and_lines_say_which_worker(shop: Shop) -> None:
    with Running("worker", "shop:app", "--processes", "2", cwd=shop.folder) as supervisor:
        supervisor.wait_for(r"windlass \S+: supervisor, pid \d+, 2 workers for shop:app")
        supervisor.wait_for(r"stop +Ctrl-C or SIGTERM: running jobs may finish")
        supervisor.wait_for(r"\[2\] . worker w\w+ started")
        job = shop.enqueue("add", 1, 2)
        supervisor.wait_for(rf"\[[12]\] ✓ succeeded {short_id(job)}")
        supervisor.signal(signal.SIGTERM)
        assert supervisor.wait() == 0
        assert len(re.findall(r"app +shop:app", supervisor.text)) == 1
        assert "all workers have ended: 1 succeeded" in supervisor.text


def test_the_supervisor_itself_imports_no_user_code(shop: Shop) -> None:
    (shop.folder / "seen.py").write_text(
        "import os\nfrom shop import app\nprint('imported by', os.getpid(), flush=True)\n"
    )
    with Running("worker", "seen:app", "--processes", "2", cwd=shop.folder) as supervisor:
        importers = {int(supervisor.wait_for(r"imported by (\d+)")[1]) for _ in range(2)}
        assert len(importers) == 2
        assert supervisor.process.pid not in importers


def test_a_killed_worker_is_named_and_started_again(shop: Shop) -> None:
    with Running("worker", "shop:app", "--processes", "2", cwd=shop.folder) as supervisor:
        first, _ = started(supervisor)
        job = shop.enqueue("nap", 0.2)
        os.kill(first, signal.SIGKILL)
        supervisor.wait_for(
            rf"worker 1 \(pid {first}\) was killed by SIGKILL .* after .*; "
            r"restarting it in 0.5 s"
        )
        supervisor.wait_for(r"\[1\] . worker w\w+ started, pid \d+")
        assert until(lambda: shop.job(job).state is State.SUCCEEDED)
        supervisor.signal(signal.SIGTERM)
        assert supervisor.wait() == 0


def test_workers_whose_database_was_deleted_are_started_again_on_the_new_one(shop: Shop) -> None:
    with Running("worker", "shop:app", "--processes", "2", cwd=shop.folder) as supervisor:
        started(supervisor)
        (shop.folder / "jobs.db").unlink()
        for _ in range(2):
            supervisor.wait_for(
                r"worker \d .* lost its database, which was deleted or replaced after .*; "
                r"restarting it in 0.5 s"
            )
        for _ in range(2):
            supervisor.wait_for(r"worker w\w+ started, pid \d+")
        job = shop.enqueue("add", 1, 2)
        assert until(lambda: shop.job(job).state is State.SUCCEEDED)
        supervisor.signal(signal.SIGTERM)
        assert supervisor.wait() == 0


def test_no_child_is_alive_two_seconds_after_the_supervisor_was_killed(shop: Shop) -> None:
    jobs = [shop.enqueue("nap", 60.0) for _ in range(4)]
    with Running(
        "worker", "shop:app", "--processes", "2", "--slots", "2", cwd=shop.folder
    ) as supervisor:
        children = started(supervisor)
        assert until(lambda: all(shop.begun(job) for job in jobs))
        supervisor.process.kill()
        assert all(gone_within(child, 2.0) for child in children)
    # They had time to stop in order: what they ran is given back with its attempt.
    assert [shop.job(job).attempt for job in jobs] == [0, 0, 0, 0]


def test_a_child_that_blocks_its_loop_dies_with_the_supervisor_all_the_same(shop: Shop) -> None:
    job = shop.enqueue("block", 60.0)
    with Running(
        "worker", "shop:app", "--processes", "2", "--slots", "1", cwd=shop.folder
    ) as supervisor:
        children = started(supervisor)
        assert until(lambda: shop.begun(job))
        supervisor.process.kill()
        assert all(gone_within(child, 10.0) for child in children)


def test_a_child_that_is_still_importing_dies_with_the_supervisor(shop: Shop) -> None:
    (shop.folder / "slow.py").write_text(
        "import os, time\nprint('importing', os.getpid(), flush=True)\ntime.sleep(60)\n"
    )
    with Running("worker", "slow:app", "--processes", "2", cwd=shop.folder) as supervisor:
        child = int(supervisor.wait_for(r"importing (\d+)")[1])
        supervisor.process.kill()
        assert gone_within(child, 10.0)


def test_a_child_that_dies_at_import_is_started_again_and_then_given_up(shop: Shop) -> None:
    (shop.folder / "broken.py").write_text("from shop import app\n1 / 0\n")
    with Running("worker", "broken:app", "--processes", "2", cwd=shop.folder) as supervisor:
        for pause in ("0.5", "1", "2", "4"):
            supervisor.wait_for(rf"worker 1 .* could not start .*; restarting it in {pause} s")
        assert supervisor.wait() == 1
        assert supervisor.text.count("ZeroDivisionError: division by zero") >= 5
        assert (
            "giving up: worker 1 died 5 times in a row before it was ready, the last time with: "
            "importing 'broken' raised ZeroDivisionError: division by zero"
        ) in supervisor.text


def test_the_other_children_stop_gracefully_when_one_is_given_up(shop: Shop) -> None:
    # The second one to be imported, and every one after it, fails.
    (shop.folder / "odd.py").write_text(
        "import os\nfrom shop import app\n"
        "try:\n    os.mkdir('first')\nexcept FileExistsError:\n    os._exit(3)\n"
    )
    job = shop.enqueue("nap", 12.0)
    with Running("worker", "odd:app", "--processes", "2", cwd=shop.folder) as supervisor:
        supervisor.wait_for(r"worker 2 \(pid \d+\) ended with exit code 3 after")
        supervisor.wait_for(r"giving up: worker 2 died 5 times in a row .* ended with exit code 3")
        supervisor.wait_for(r"\[1\] .* stopped: 1 succeeded")
        assert supervisor.wait() == 1
    assert shop.job(job).state is State.SUCCEEDED


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("shpo:app", "no module named 'shpo'. Did you mean 'shop'?"),
        ("shop:ap", "module 'shop' has no 'ap'. Its app is called app: use shop:app"),
    ],
)
def test_a_permanent_failure_is_given_up_at_once(shop: Shop, target: str, says: str) -> None:
    ended = windlass("worker", target, "--processes", "3", cwd=shop.folder)
    assert ended.returncode == 1
    assert f"giving up: worker 1 cannot start: {says}" in ended.stderr
    assert "started again" not in ended.stderr


def test_memory_is_refused_with_several_processes(tmp_path: Path) -> None:
    (tmp_path / "throwaway.py").write_text(
        "from windlass import Windlass\napp = Windlass('memory://')\n"
    )
    ended = windlass("worker", "throwaway:app", "--processes", "2", cwd=tmp_path)
    assert ended.returncode == 1
    assert "memory:// belongs to one process" in ended.stderr
    assert "Use sqlite:///jobs.db, or leave out --processes." in ended.stderr


# --- signals ---


def test_the_first_signal_is_passed_on_and_waited_for(shop: Shop) -> None:
    with Running(
        "worker", "shop:app", "--processes", "2", "--slots", "1", cwd=shop.folder
    ) as supervisor:
        children = started(supervisor)
        # Not before: the first worker would have run one of them when the second is there.
        jobs = [shop.enqueue("nap", 3.0) for _ in range(2)]
        assert until(lambda: all(shop.begun(job) for job in jobs))
        supervisor.signal(signal.SIGINT)
        supervisor.wait_for("SIGINT: the workers take no new jobs and stop when")
        assert supervisor.wait() == 0
        assert not any(alive(child) for child in children)
    assert [shop.job(job).state for job in jobs] == [State.SUCCEEDED, State.SUCCEEDED]


def test_the_second_signal_interrupts_and_the_attempts_are_given_back(shop: Shop) -> None:
    jobs = [shop.enqueue("nap", 60.0) for _ in range(2)]
    with Running(
        "worker", "shop:app", "--processes", "2", "--slots", "1", cwd=shop.folder
    ) as supervisor:
        started(supervisor)
        assert until(lambda: all(shop.begun(job) for job in jobs))
        supervisor.signal(signal.SIGTERM)
        supervisor.wait_for("Send it again to interrupt")
        supervisor.signal_again(signal.SIGTERM)
        supervisor.wait_for("SIGTERM again: the workers interrupt their jobs")
        supervisor.signal(signal.SIGTERM)
        assert supervisor.wait() == 0
    assert [(shop.job(job).state, shop.job(job).attempt) for job in jobs] == [
        (State.WAITING, 0),
        (State.WAITING, 0),
    ]


def test_a_signal_to_a_supervisor_and_to_its_workers_is_one_request(shop: Shop) -> None:
    """As systemd sends it: to every process of the service."""
    jobs = [shop.enqueue("nap", 4.0) for _ in range(2)]
    with Running(
        "worker", "shop:app", "--processes", "2", "--slots", "1", cwd=shop.folder
    ) as supervisor:
        started(supervisor)
        assert until(lambda: all(shop.begun(job) for job in jobs))
        for pid in supervisor.pids():
            os.kill(pid, signal.SIGTERM)
        supervisor.signal(signal.SIGTERM)
        supervisor.wait_for("Send it again to interrupt")
        supervisor.signal(signal.SIGTERM)
        assert supervisor.wait() == 0
    assert [shop.job(job).state for job in jobs] == [State.SUCCEEDED, State.SUCCEEDED]


def test_a_worker_that_another_process_stops_is_replaced(shop: Shop) -> None:
    with Running("worker", "shop:app", "--processes", "2", cwd=shop.folder) as supervisor:
        first, _ = started(supervisor)
        os.kill(first, signal.SIGTERM)
        supervisor.wait_for(rf"worker 1 \(pid {first}\) stopped after .*; restarting it")
        supervisor.wait_for(r"\[1\] . worker w\w+ started, pid \d+")


def test_sigusr1_and_sighup_do_not_end_the_supervisor(shop: Shop) -> None:
    with Running("worker", "shop:app", "--processes", "2", cwd=shop.folder) as supervisor:
        started(supervisor)
        supervisor.signal(signal.SIGHUP)
        supervisor.signal(signal.SIGUSR1)
        supervisor.wait_for(r"asyncio tasks:")
        supervisor.wait_for(r"asyncio tasks:")
        job = shop.enqueue("add", 1, 2)
        supervisor.wait_for(rf"succeeded {short_id(job)}")


# --- ends of their own ---


def test_worn_out_workers_are_replaced_at_once_until_nothing_is_left(shop: Shop) -> None:
    jobs = [shop.enqueue("nap", 0.05) for _ in range(30)]
    with Running(
        *("worker", "shop:app", "--processes", "2", "--slots", "1"),
        *("--max-jobs", "5", "--until-empty"),
        cwd=shop.folder,
    ) as supervisor:
        supervisor.wait_for(
            r"worker \d \(pid \d+\) stopped to be replaced after .*; the next one starts now"
        )
        assert supervisor.wait(60) == 0
        assert "all workers have ended: 30 succeeded" in supervisor.text
    assert all(shop.job(job).state is State.SUCCEEDED for job in jobs)


def test_a_worker_that_is_worn_out_by_starting_is_not_replaced_in_a_tight_loop(shop: Shop) -> None:
    with Running(
        "worker", "shop:app", "--processes", "2", "--max-megabytes", "1", cwd=shop.folder
    ) as supervisor:
        supervisor.wait_for(r"it uses \d+ MiB \(max_megabytes=1\)")
        supervisor.wait_for(
            r"worker \d \(pid \d+\) stopped to be replaced after .*; restarting it in 0.5 s"
        )


def test_workers_that_an_operator_stops_are_not_replaced(shop: Shop) -> None:
    often = {"WINDLASS_HEARTBEAT": "100ms"}
    with Running(
        "worker", "shop:app", "--processes", "2", cwd=shop.folder, env=often
    ) as supervisor:
        started(supervisor)
        told = windlass("workers", "stop", "shop:app", "--all", "--yes", cwd=shop.folder)
        assert "Asked 2 workers to stop." in told.stdout
        for _ in range(2):
            supervisor.wait_for(r"worker \d \(pid \d+\) .*: an operator stopped it, so it is not")
        assert supervisor.wait() == 0


def test_json_lines_of_all_processes_parse(shop: Shop) -> None:
    for number in range(10):
        shop.enqueue("add", number, 1)
    ended = windlass(
        *("worker", "shop:app", "--processes", "2", "--until-empty", "--log-format", "json"),
        cwd=shop.folder,
    )
    assert ended.returncode == 0
    entries = [json.loads(line) for line in ended.stderr.splitlines()]
    assert sum(entry.get("event") == "succeed" for entry in entries) == 10
    assert len({entry["pid"] for entry in entries}) == 3


# --- terminals and containers ---


# Makes standard input the controlling terminal, so that Ctrl+C is a signal, and goes on as Python.
_TAKE_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)


class Screen:
    """The supervisor on a terminal of its own."""

    def __init__(self, *arguments: str, cwd: Path) -> None:
        self._fd, child = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", _TAKE_TERMINAL, "-m", "windlass", *arguments],
            cwd=cwd,
            env=environment({"TERM": "xterm"}),
            stdin=child,
            stdout=child,
            stderr=child,
            start_new_session=True,
        )
        os.close(child)
        os.set_blocking(self._fd, False)
        self.text = ""

    def shows(self, pattern: str) -> bool:
        try:
            while chunk := os.read(self._fd, 65536):
                self.text += chunk.decode(errors="replace")
        except OSError:
            pass
        return re.search(pattern, self.text) is not None

    def press(self, keys: bytes) -> None:
        os.write(self._fd, keys)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE)
        os.close(self._fd)


@pytest.fixture
def screen(shop: Shop) -> Iterator[Screen]:
    made = Screen("worker", "shop:app", "--processes", "2", cwd=shop.folder)
    yield made
    made.close()


def test_a_terminal_shows_a_line_that_is_kept_up_to_date(shop: Shop, screen: Screen) -> None:
    assert until(lambda: screen.shows(r"2 workers · 0/20 running · nothing done yet"))
    shop.enqueue("add", 1, 2)
    assert until(lambda: screen.shows(r"2 workers · 0/20 running · 1 succeeded · .*/s · up "))
    assert screen.shows(r"\x1b\[32m✓\x1b\[0m succeeded")


def test_ctrl_c_reaches_the_workers_once(shop: Shop, screen: Screen) -> None:
    assert until(lambda: screen.shows(r"2 workers"))
    job = shop.enqueue("nap", 1.0)
    assert until(lambda: shop.begun(job))
    screen.press(b"\x03")
    assert until(lambda: screen.shows("SIGINT: the workers take no new jobs"))
    assert until(lambda: screen.shows("all workers have ended: 1 succeeded"))
    assert screen.process.wait(PATIENCE) == 0
    assert shop.job(job).state is State.SUCCEEDED


def _may_unshare() -> bool:
    command = ["unshare", "--pid", "--fork", "--mount-proc", "true"]
    return (
        shutil.which("unshare") is not None
        and subprocess.run(command, capture_output=True, check=False).returncode == 0
    )


@pytest.mark.skipif(not _may_unshare(), reason="needs the right to make a PID namespace")
def test_it_works_as_pid_1_and_reaps_what_others_leave_behind(shop: Shop) -> None:
    with Running(
        *("worker", "shop:app", "--processes", "2"),
        cwd=shop.folder,
        prefix=["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"],
    ) as supervisor:
        supervisor.wait_for(r"supervisor, pid 1, 2 workers")
        pid = shop.result(shop.enqueue("orphan"))
        assert until(lambda: shop.result(shop.enqueue("exists", pid)) is False)
        supervisor.wait_for(r"\[2\] . worker w\w+ started")
        os.kill(int(inside(supervisor.process.pid)), signal.SIGTERM)
        assert supervisor.wait() == 0
        supervisor.lines.clear()  # the pids in it are those of another namespace


def inside(unshare: int) -> str:
    """The one process that ``unshare`` has started, by its pid out here."""
    (child,) = Path(f"/proc/{unshare}/task/{unshare}/children").read_text().split()
    return child
