"""What is left when nothing is ready."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tests.cli.processes import windlass
from tests.cli.shop import Shop
from windlass._cli.worker_process.messages import remaining_in_words
from windlass._storage.protocol.admin import QueueCounts

NOW = datetime(2025, 3, 4, 5, 6, 7, tzinfo=UTC)


def test_nothing_is_left_only_when_nothing_waits() -> None:
    assert (
        remaining_in_words([QueueCounts(queue="a", succeeded=5)], None, NOW) == "no jobs are left"
    )


def test_jobs_due_later_are_reported_with_the_next_time() -> None:
    counts = [QueueCounts(queue="a", scheduled=1), QueueCounts(queue="b", scheduled=1)]
    due = NOW + timedelta(hours=1)
    assert remaining_in_words(counts, due, NOW) == (
        f"no job is ready; 2 jobs are scheduled, the next at {due.astimezone():%H:%M:%S}"
    )
    far = NOW + timedelta(days=3)
    assert remaining_in_words(counts[:1], far, NOW) == (
        f"no job is ready; 1 job is scheduled, the next at {far.astimezone():%Y-%m-%d %H:%M:%S}"
    )


def test_jobs_in_a_paused_queue_are_reported() -> None:
    counts = [QueueCounts(queue="a", ready=1000, paused=True)]
    assert (
        remaining_in_words(counts, None, NOW) == "no job is ready; 1,000 jobs are in a paused queue"
    )


def test_a_worker_that_ends_says_what_waits_for_later(shop: Shop) -> None:
    shop.enqueue("add", 1, 2)
    late = shop.enqueue("add", 1, 2, delay=3600)
    due = shop.job(late).due.astimezone()
    said = f"no job is ready; 1 job is scheduled, the next at {due:%H:%M:%S}"
    ended = windlass("worker", "shop:app", "--until-empty", cwd=shop.folder)
    assert f"{said}: 1 succeeded in " in ended.stderr
    ended = windlass("worker", "shop:app", "--until-empty", "--processes", "2", cwd=shop.folder)
    assert ended.returncode == 0
    assert ended.stderr.count("stopped after ") == 2
    assert said in ended.stderr
    assert "no jobs are left" not in ended.stderr
