"""``windlass worker`` alone: what it says, what signals do to it, how it ends."""

from __future__ import annotations

import importlib.util
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.processes import PATIENCE, Running, ending, environment, until, windlass
from tests.cli.shop import Shop
from windlass._core.job.ids import short_id
from windlass._core.job.state import State

READY = r"pid \d+"


def test_a_worker_introduces_itself(shop: Shop) -> None:
    with Running("worker", "shop:app", "--grace", "7s", cwd=shop.folder) as worker:
        worker.wait_for(r"windlass \S+ · worker w\w+ · pid \d+")
        worker.wait_for(r"app +shop:app")
        worker.wait_for(r"storage +SQLite")
        worker.wait_for(r"queues +default before talk \(10 slots together\)")
        # A long path has a line of its own, somewhere between the two.
        assert any(f"{shop.folder}/jobs.db" in line for line in worker.lines)
        worker.wait_for(r"tasks +8: shop.add, shop.block")
        worker.wait_for(r"stop +Ctrl-C or SIGTERM: .*\(up to 7 s\)")
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0


def test_a_worker_logs_how_its_storage_is_set_up_at_debug_level(shop: Shop) -> None:  # DBH-4
    words = ("worker", "shop:app", "--until-empty", "--log-level", "debug")
    with Running(*words, cwd=shop.folder) as worker:
        worker.wait_for(r"storage: version .*journal_mode wal, .*busy_timeout 30 s")
        assert worker.wait() == 0


def test_uvloop_is_used_where_it_is_installed(shop: Shop) -> None:
    expected = "uvloop" if importlib.util.find_spec("uvloop") else "asyncio"
    with Running("worker", "shop:app", "--until-empty", cwd=shop.folder) as worker:
        worker.wait_for(rf"event loop {expected}")
        assert worker.wait() == 0


def test_queues_that_are_not_served_are_named(shop: Shop) -> None:
    with Running("worker", "shop:app", "-q", "talk=3", "--until-empty", cwd=shop.folder) as worker:
        worker.wait_for(r"queues +talk \(3 slots\)")
        worker.wait_for(r"not served +default \(7\)")
        assert worker.wait() == 0


def test_a_misspelt_queue_is_pointed_out(shop: Shop) -> None:
    with Running("worker", "shop:app", "-q", "defualt", "--until-empty", cwd=shop.folder) as worker:
        worker.wait_for(r"no task uses the queue 'defualt'. Did you mean 'default'\?")
        assert worker.wait() == 0


def test_every_job_is_one_line(shop: Shop) -> None:
    good = shop.enqueue("add", 1, 2)
    bad = shop.enqueue("fail", "first line\x1b[31m\nsecond line")
    with Running("worker", "shop:app", cwd=shop.folder) as worker:
        worker.wait_for(rf"✓ succeeded {short_id(good)} shop.add +1/5  waited .* ran ")
        worker.wait_for(
            rf"↻ retrying  {short_id(bad)} shop.fail +1/2 .*  → again in 50 ms, at ..:..:.."
        )
        worker.wait_for(
            rf"✗ failed    {short_id(bad)} shop.fail +2/2 .*  ValueError: first line\\x1b\[31m"
            rf"  \(job {bad}\)$"
        )
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
        # Where it failed, once and indented.
        assert worker.text.count("    │ Traceback (most recent call last):") == 1
        assert re.search(r"^    │ +raise ValueError\(text\)$", worker.text, re.MULTILINE)
        assert worker.text.count("    │ second line") == worker.text.count("second line") == 1
        worker.wait_for("stopped: 1 succeeded, 1 retried, 1 failed in ")


def test_json_logs_are_one_object_per_line_with_every_field(shop: Shop) -> None:
    shop.enqueue("add", 1, 2, correlation_id="r-1", tenant="acme")
    job = shop.enqueue("fail", "no\nsuch thing")
    talk = shop.enqueue("talk", "hello\nthere")
    ended = windlass("worker", "shop:app", "--until-empty", "--log-format", "json", cwd=shop.folder)
    assert ended.returncode == 0
    entries = [json.loads(line) for line in ended.stderr.splitlines()]
    (start,) = [entry for entry in entries if entry.get("event") == "start"]
    assert start["app"] == "shop:app"
    assert start["queues"] == ["default", "talk"]
    (added,) = [entry for entry in entries if entry.get("task") == "shop.add"]
    assert added["event"] == "succeed"
    assert (added["correlation_id"], added["tenant"]) == ("r-1", "acme")
    assert added["waited"] >= 0
    assert added["ran"] >= 0
    failed = [entry for entry in entries if entry.get("job_id") == job]
    assert [(entry["event"], entry["attempt"], entry["level"]) for entry in failed] == [
        ("retry", 1, "warning"),
        ("fail", 2, "error"),
    ]
    assert failed[0]["error"] == "no\nsuch thing"
    assert "Traceback" in failed[0]["error_traceback"]
    assert failed[0]["again_at"] > failed[0]["at"]
    (said,) = [entry for entry in entries if entry["message"] == "hello\nthere"]
    assert said["job_id"] == talk


def test_log_text_of_a_job_cannot_pass_for_another_log_line(shop: Shop) -> None:
    shop.enqueue("talk", "hello\n22:00:00 ✓ succeeded forged\x1b[2J")
    ended = windlass("worker", "shop:app", "--until-empty", cwd=shop.folder)
    assert "\n    │ 22:00:00 ✓ succeeded forged\\x1b[2J\n" in ended.stderr
    assert "\x1b" not in ended.stderr


def test_less_is_logged_at_a_higher_level(shop: Shop) -> None:
    shop.enqueue("add", 1, 2)
    shop.enqueue("fail", "oh")
    ended = windlass("worker", "shop:app", "--until-empty", "--log-level", "error", cwd=shop.folder)
    line, *trace = ended.stderr.splitlines()
    assert "✗ failed" in line
    assert all(more.startswith("    │ ") for more in trace)


def test_settings_of_the_log_may_come_from_the_environment(shop: Shop) -> None:
    env = {"WINDLASS_LOG_FORMAT": "json", "WINDLASS_LOG_LEVEL": "info"}
    ended = windlass("worker", "shop:app", "--until-empty", cwd=shop.folder, env=env)
    assert all(json.loads(line) for line in ended.stderr.splitlines())


# --- signals ---


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_lets_running_jobs_end(shop: Shop, number: signal.Signals) -> None:
    running, waiting = shop.enqueue("nap", 1.0), shop.enqueue("nap", 1.0, priority=1)
    with Running("worker", "shop:app", "--slots", "1", cwd=shop.folder) as worker:
        worker.wait_for(READY)
        assert until(lambda: shop.begun(running))
        worker.signal(number)
        worker.wait_for(rf"{number.name}: taking no new jobs; running jobs may finish, up to 30 s")
        assert worker.wait() == 0
    assert shop.job(running).state is State.SUCCEEDED
    assert shop.job(waiting).state is State.WAITING


def test_the_second_signal_interrupts_and_gives_the_attempt_back(shop: Shop) -> None:
    job = shop.enqueue("nap", 60.0)
    with Running("worker", "shop:app", cwd=shop.folder) as worker:
        worker.wait_for(READY)
        assert until(lambda: shop.begun(job))
        worker.signal(signal.SIGTERM)
        worker.wait_for("Send it again to interrupt")
        worker.signal_again(signal.SIGTERM)
        worker.wait_for("SIGTERM again: interrupting running jobs")
        worker.signal(signal.SIGTERM)  # a third one changes nothing
        assert worker.wait() == 0
    stored = shop.job(job)
    assert (stored.state, stored.attempt) == (State.WAITING, 0)


def test_two_signals_at_the_same_moment_are_one_request(shop: Shop) -> None:
    """As from ``timeout 2 windlass worker …``, which signals its child and then its group."""
    job = shop.enqueue("nap", 1.0)
    with Running("worker", "shop:app", cwd=shop.folder) as worker:
        worker.wait_for(READY)
        assert until(lambda: shop.begun(job))
        worker.signal(signal.SIGTERM)
        worker.wait_for("Send it again to interrupt")  # else the system makes one of them
        worker.signal(signal.SIGTERM)
        worker.signal(signal.SIGINT)
        assert worker.wait() == 0
    assert "interrupting running jobs" not in worker.text
    assert (shop.job(job).state, shop.job(job).attempt) == (State.SUCCEEDED, 1)


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_worker_that_could_not_store_an_outcome_says_so_and_exits_with_73(
    shop: Shop, processes: str
) -> None:
    (shop.folder / "down.py").write_text(
        "from shop import app\n"
        "from windlass.errors import StorageUnavailable\n"
        "from windlass._storage.sqlite.jobs.jobs import SqliteJobs\n"
        "async def apply(self, transitions):\n"
        "    raise StorageUnavailable('the store is away')\n"
        "SqliteJobs.apply = apply\n"
    )
    job = shop.enqueue("nap", 0.01)
    with Running("worker", "down:app", "--processes", processes, cwd=shop.folder) as worker:
        worker.wait_for("outcomes cannot be stored, retrying")
        worker.signal(signal.SIGTERM)
        worker.wait_for(f"ends before it could store how job {job} ended")
        worker.wait_for("ended before every outcome was stored")
        assert worker.wait() == 73


def test_jobs_released_at_a_stop_are_in_the_last_count(shop: Shop) -> None:
    (shop.folder / "held.py").write_text(
        "import time\n"
        "from shop import Context, app, begin\n"
        "@app.task(name='held.hold')\n"
        "def hold(ctx: Context) -> None:\n"
        "    begin(ctx)\n"
        "    time.sleep(60)\n"  # a thread: nobody can interrupt it
    )

    @shop.app.task(name="held.hold")
    def hold() -> None: ...

    job = hold.enqueue_sync().id
    with Running("worker", "held:app", cwd=shop.folder) as worker:
        worker.wait_for(READY)
        assert until(lambda: shop.begun(job))
        worker.signal(signal.SIGTERM)
        worker.wait_for("Send it again to interrupt")
        worker.signal_again(signal.SIGTERM)
        worker.wait_for(rf"released  {short_id(job)}")
        worker.wait_for("stopped: 1 released in ")
        assert worker.wait() == 0


def test_jobs_of_a_dead_worker_are_in_the_last_count(shop: Shop) -> None:
    job = shop.enqueue("nap", 60.0, on_lost="fail")
    with Running("worker", "shop:app", cwd=shop.folder) as worker:
        worker.wait_for(READY)
        assert until(lambda: shop.begun(job))
        worker.signal(signal.SIGKILL)
        worker.wait()
    ended = windlass("worker", "shop:app", "--until-empty", cwd=shop.folder)
    assert shop.job(job).state is State.FAILED
    assert "no jobs are left: 1 failed in " in ended.stderr


def test_a_job_that_outlasts_the_grace_period_is_given_back(shop: Shop) -> None:
    job = shop.enqueue("nap", 60.0)
    with Running("worker", "shop:app", "--grace", "200ms", cwd=shop.folder) as worker:
        worker.wait_for(READY)
        assert until(lambda: shop.begun(job))
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
    stored = shop.job(job)
    assert (stored.state, stored.attempt) == (State.WAITING, 0)


def test_a_signal_is_answered_while_a_job_blocks_the_loop(shop: Shop) -> None:
    job = shop.enqueue("block", 4.0)
    with Running("worker", "shop:app", cwd=shop.folder) as worker:
        worker.wait_for(READY)
        assert until(lambda: shop.begun(job))
        worker.signal(signal.SIGTERM)
        worker.wait_for("SIGTERM: taking no new jobs", timeout=3.5)
        assert worker.wait() == 0
    assert shop.job(job).state is State.SUCCEEDED


def test_a_stop_before_the_app_is_imported_ends_it_gracefully(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("import time\nprint('importing', flush=True)\ntime.sleep(60)")
    with Running("worker", "slow:app", cwd=shop.folder) as worker:
        worker.wait_for("importing")
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
        assert "stopped before it started" in worker.text


def test_a_hang_up_and_a_reader_that_goes_away_stop_nothing(shop: Shop) -> None:
    worker = subprocess.Popen(
        [sys.executable, "-m", "windlass", "worker", "shop:app"],
        cwd=shop.folder,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    with ending(worker):
        assert worker.stderr is not None
        assert any("pid" in line for line in worker.stderr)
        worker.stderr.close()
        worker.send_signal(signal.SIGHUP)
        jobs = [shop.enqueue("add", number, 1) for number in range(3)]
        assert until(lambda: all(shop.job(job).state is State.SUCCEEDED for job in jobs))
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(PATIENCE) == 0


def test_sigusr1_writes_every_stack_and_the_worker_continues(shop: Shop) -> None:
    job = shop.enqueue("nap", 60.0)
    with Running("worker", "shop:app", cwd=shop.folder) as worker:
        worker.wait_for(READY)
        assert until(lambda: shop.begun(job))
        worker.signal(signal.SIGUSR1)
        worker.wait_for(r"^(Current thread|Thread) 0x")
        worker.wait_for(r"is called windlass-heartbeat")
        worker.wait_for(r"asyncio tasks:")
        worker.wait_for(r"in nap")
        other = shop.enqueue("add", 1, 2)
        worker.wait_for(rf"succeeded {short_id(other)}")


def test_a_thread_that_user_code_left_behind_does_not_keep_a_stopped_worker_alive(
    shop: Shop,
) -> None:
    job = shop.enqueue("cling", 300.0)
    with Running("worker", "shop:app", "--grace", "100ms", cwd=shop.folder) as worker:
        worker.wait_for(READY)
        assert until(lambda: shop.begun(job))
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
    assert (shop.job(job).state, shop.job(job).attempt) == (State.WAITING, 0)


def test_a_worker_without_standard_error_works(shop: Shop) -> None:
    job = shop.enqueue("add", 1, 2)
    command = f"exec {sys.executable} -m windlass worker shop:app --until-empty 2>&-"
    subprocess.run(["sh", "-c", command], cwd=shop.folder, env=environment(), check=True)
    assert shop.job(job).state is State.SUCCEEDED


# --- ends of its own ---


def test_until_empty_runs_everything_and_ends(shop: Shop) -> None:
    jobs = [shop.enqueue("add", number, 1) for number in range(5)]
    ended = windlass("worker", "shop:app", "--until-empty", cwd=shop.folder)
    assert ended.returncode == 0
    assert "no jobs are left: 5 succeeded in " in ended.stderr
    assert all(shop.job(job).state is State.SUCCEEDED for job in jobs)


def test_a_worn_out_worker_without_a_supervisor_ends_with_zero_and_says_why(shop: Shop) -> None:
    for number in range(8):
        shop.enqueue("add", number, 1)
    ended = windlass("worker", "shop:app", "--max-jobs", "5", "--slots", "1", cwd=shop.folder)
    assert ended.returncode == 0
    assert "max_jobs=5" in ended.stderr
    assert "that needs --processes 2 or more" in ended.stderr


def test_a_worker_whose_database_is_deleted_ends_with_a_separate_code(shop: Shop) -> None:
    with Running("worker", "shop:app", cwd=shop.folder) as worker:
        worker.wait_for(READY)
        (shop.folder / "jobs.db").unlink()
        worker.wait_for("was deleted or replaced while it was open")
        assert worker.wait() == 74
        assert "Traceback" not in worker.text
        assert "ended because its database was deleted or replaced" in worker.text


def test_a_summary_can_be_left_out(shop: Shop) -> None:
    shop.enqueue("add", 1, 1)
    ended = windlass("worker", "shop:app", "--until-empty", "--no-summary", cwd=shop.folder)
    assert ended.stderr.splitlines()[-1].endswith("no jobs are left")


def test_a_busy_loop_passes_the_interpreter_on_after_a_millisecond(shop: Shop) -> None:
    (shop.folder / "turns.py").write_text(
        "import sys\n"
        "from shop import app\n"
        "@app.task(name='turns.turns')\n"
        "async def turns() -> float:\n"
        "    return sys.getswitchinterval()\n"
    )

    @shop.app.task(name="turns.turns")
    async def turns() -> float:
        return 0.0

    job = turns.enqueue_sync()
    assert windlass("worker", "turns:app", "--until-empty", cwd=shop.folder).returncode == 0
    assert shop.app.blocking.result(job, 30) == pytest.approx(0.001)


# --- an app's own logging ---


def test_an_app_that_sets_up_logging_itself_gets_its_way_and_is_not_silenced(shop: Shop) -> None:
    (shop.folder / "own.py").write_text(
        "import logging.config\n"
        "from shop import app\n"
        "logging.config.dictConfig({'version': 1,\n"
        "  'formatters': {'mine': {'format': 'MINE %(name)s %(message)s'}},\n"
        "  'handlers': {'mine': {'class': 'logging.StreamHandler', 'formatter': 'mine'}},\n"
        "  'root': {'handlers': ['mine'], 'level': 'INFO'}})\n"
    )
    job = shop.enqueue("add", 1, 1)
    ended = windlass("worker", "own:app", "--until-empty", cwd=shop.folder)
    assert f"MINE windlass.jobs succeeded {job} shop.add 1/5" in ended.stderr
