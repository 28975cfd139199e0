"""The setting ``routes``: queues by patterns of task names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from windlass import Every, Failure, Success, Windlass
from windlass._app.parts import parts_of
from windlass._settings.load import load_settings
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass.errors import ConfigError

ROUTES = {"reports.daily": "fast", "reports.*": "slow", "*.tell": "mail"}


async def empty() -> None: ...


@pytest.mark.parametrize(
    ("name", "own", "queue"),
    [
        ("reports.daily", None, "fast"),
        ("reports.yearly", None, "slow"),
        ("reports.yearly", "own", "slow"),
        ("Reports.yearly", "own", "own"),
        ("pay", "own", "own"),
        ("pay", None, "default"),
    ],
)
async def test_the_first_pattern_that_matches_wins_over_the_queue_of_the_task(
    name: str, own: str | None, queue: str
) -> None:
    async with Windlass("memory://", routes=ROUTES) as app:
        task = app.task(name=name, queue=own)(empty)
        assert (await (await task.enqueue()).refresh()).queue == queue
        (job,) = await app.enqueue_many([task.call()])
        assert (await job.refresh()).queue == queue


async def test_the_queue_of_a_call_wins_over_a_route() -> None:
    async with Windlass("memory://", routes=ROUTES) as app:
        task = app.task(name="reports.daily")(empty)
        assert (await (await task.options(queue="now").enqueue()).refresh()).queue == "now"


async def test_a_task_that_only_workers_have_is_routed_by_its_name() -> None:
    async with Windlass("memory://", routes=ROUTES) as app:
        assert (await (await app.enqueue("reports.weekly")).refresh()).queue == "slow"


async def test_schedules_and_jobs_that_follow_are_routed() -> None:
    async with Windlass("memory://", routes=ROUTES) as app:

        @app.task(name="ok.tell")
        async def ok(success: Success) -> None: ...

        @app.task(name="no.tell")
        async def no(failure: Failure) -> None: ...

        @app.schedule(Every("1h"))
        @app.task(name="reports.hourly", on_success="ok.tell", on_failure=no)
        async def hourly() -> None: ...

        async with app.worker():
            fired = await app.admin.schedules.trigger("reports.hourly")
            assert fired is not None
            await app.job(fired.id).result(timeout=30)
        (ran,) = await app.admin.jobs.find(JobFilter(task="reports.hourly"))
        (then,) = await app.admin.jobs.find(JobFilter(task="ok.tell"))
        assert ran.on_failure is not None
        assert (ran.queue, then.queue, ran.on_failure.queue) == ("slow", "mail", "mail")


async def test_a_worker_serves_routed_queues_and_those_where_earlier_jobs_wait() -> None:
    async with Windlass("memory://", routes={"pay": "bank"}) as app:
        app.task(name="pay", queue="shop")(empty)
        assert parts_of(app).queues() == ("default", "bank", "shop")


def test_routes_come_from_a_file_in_its_order_or_from_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "windlass.toml"
    file.write_text(
        '[windlass]\nurl = "memory://"\n[windlass.routes]\n"reports.daily" = "fast"\n'
        '"reports.*" = "slow"\n'
    )
    read = load_settings(None, {}, config=file, environment={})
    assert list(read.routes.items()) == [("reports.daily", "fast"), ("reports.*", "slow")]
    environment = {"WINDLASS_ROUTES": '{"*": "all"}'}
    assert load_settings("memory://", {}, environment=environment).routes == {"*": "all"}


@pytest.mark.parametrize(
    ("routes", "message"),
    [
        (["reports.*"], "routes must be a table of task names and queues"),
        ("reports.*=slow", "routes must be a table of task names and queues"),
        ({"reports.*": 5}, "routes must be a table of task names and queues"),
        ({"reports.*": "no good"}, r"the queue of 'reports\.\*' in routes"),
        ({"reports.*": ""}, r"the queue of 'reports\.\*' in routes"),
    ],
)
def test_routes_that_lead_nowhere_are_refused(routes: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Windlass("memory://", routes=routes)
