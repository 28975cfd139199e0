"""Orders reach workers that are running."""

from __future__ import annotations

import itertools
import json
import runpy
from datetime import timedelta

from tests.cli.processes import Running, until, windlass
from tests.cli.shop import Shop
from windlass._app.parts import parts_of


def order(shop: Shop, *words: str) -> dict[str, object]:
    ended = windlass(*words, "--json", cwd=shop.folder)
    assert ended.returncode == 0, ended.stderr
    told: dict[str, object] = json.loads(ended.stdout)
    return told


def test_a_running_worker_is_paused_and_resumed(shop: Shop) -> None:
    with Running("worker", "shop:app", cwd=shop.folder) as worker:
        worker.wait_for("worker .* pid")
        assert shop.result(shop.enqueue("add", 1, 1)) == 2
        assert order(shop, "queues", "pause", "shop:app", "default")["paused"] is True
        held = shop.enqueue("add", 2, 2)
        # Another queue of the same worker is served: it has claimed since, and left this one.
        said = shop.enqueue("talk", "hello")
        shop.result(said)
        assert shop.job(held).state == "waiting"
        order(shop, "queues", "resume", "shop:app", "default")
        assert shop.result(held) == 4


def test_a_bound_that_is_set_holds_for_workers_that_run_already(shop: Shop) -> None:
    with Running("worker", "shop:app", cwd=shop.folder) as worker:
        worker.wait_for("worker .* pid")
        order(shop, "queues", "set", "shop:app", "default", "--max-running", "1")
        naps = [shop.enqueue("nap", 0.1) for _ in range(5)]
        for nap in naps:
            assert shop.result(nap) == "rested"
        ran = sorted(
            (job.started_at, job.finished_at)
            for job in map(shop.job, naps)
            if job.started_at is not None and job.finished_at is not None
        )
        assert len(ran) == len(naps)
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ran))


ROUGH = """
from windlass import Windlass

app = Windlass("sqlite:///{folder}/jobs.db")

@app.task(queue="rough")
async def stumble() -> None:
    raise ValueError("ouch")
"""


def test_a_backoff_that_is_set_holds_for_jobs_whose_task_has_none(shop: Shop) -> None:
    (shop.folder / "rough.py").write_text(ROUGH.format(folder=shop.folder))
    stumble = runpy.run_path(str(shop.folder / "rough.py"), run_name="rough")["stumble"]

    def waits_an_hour() -> bool:
        """A worker learns of it within a second: until then jobs wait as by default."""
        tried = shop.app.blocking.run(parts_of(shop.app).producer.enqueue_call(stumble.call())).id
        assert until(lambda: shop.job(tried).error is not None)
        job = shop.job(tried)
        return job.started_at is not None and job.due - job.started_at > timedelta(minutes=59)

    shop.app.tasks.add(stumble)
    with Running("worker", "rough:app", cwd=shop.folder) as worker:
        worker.wait_for("worker .* pid")
        assert not waits_an_hour()
        order(shop, "queues", "set", "rough:app", "rough", "--backoff", "1h")
        assert until(waits_an_hour)
