"""``OPTIONS = {"transactional": True}``: a job is there if, and only if, the request's rows are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import transaction
from django.test import override_settings

from tests.integrations.programs import run
from tests.integrations.shopfront.interface import task_enqueued
from windlass import Windlass
from windlass._storage.protocol.lists.job_list import JobFilter

PROGRAM = """
import sys
import django
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict

url, rows = sys.argv[1:]
at = conninfo_to_dict(rows)
database = {"ENGINE": "django.db.backends.postgresql", "NAME": at["dbname"], "USER": at["user"],
            "HOST": at["host"], "PORT": at["port"]}
settings.configure(
    DATABASES={"default": database},
    INSTALLED_APPS=["windlass.integrations.django", "django_tasks"],
    WINDLASS={"URL": url, "POLL": 60},
    TASKS={"default": {"BACKEND": "windlass.integrations.django.django_tasks.WindlassBackend",
                       "OPTIONS": {"transactional": True}}},
)
django.setup()
from django.core.checks import run_checks
from django.db import connection, transaction
from django_tasks import task
from windlass.integrations.django import _commit, get_app

@task
def add(a, b):
    return a + b

app = get_app()

def stored():
    return [job.id for job in app.blocking.run(app.admin.jobs.find())]

def rolled_back(enqueue):
    try:
        with transaction.atomic():
            enqueue()
            raise LookupError
    except LookupError:
        pass

rolled_back(lambda: add.enqueue(1, 1))
assert stored() == []
asked, _commit._asked = _commit._asked, None  # where both are is asked once
with transaction.atomic():
    first = add.enqueue(1, 2)
    inside = first.enqueued_at is not None
    assert stored() == []
    with transaction.atomic():
        second = add.enqueue(2, 2)
    rolled_back(lambda: add.enqueue(3, 3))
    late = []
    transaction.on_commit(lambda: late.append(add.enqueue(4, 4)))
ids = [first.id, second.id, late[0].id]
assert sorted(stored()) == sorted(ids), (stored(), ids)
assert add.get_result(first.id).enqueued_at == first.enqueued_at
_commit._asked = asked
print("inside" if inside else "after")
print(*[message.id for message in run_checks()])
print(*[message.id for message in run_checks(databases=["default"])])
"""
WOKEN = """
async def work(ready, stop):
    async with app.worker():
        ready.set_result(None)
        await asyncio.wrap_future(stop)

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
ready, stop = Future(), Future()
with ThreadPoolExecutor(1) as pool:
    worker = pool.submit(asyncio.run, work(ready, stop))
    ready.result(20)
    for job in ids:
        app.blocking.result(app.job(job), timeout=20)
    with transaction.atomic():
        woken = add.enqueue(20, 22)
    print(app.blocking.result(app.job(woken.id), timeout=20))
    stop.set_result(None)
    worker.result(20)
"""
CLOSE = "connection.close()\napp.blocking.close()\n"


def test_on_the_requests_own_connection_in_postgresql(tmp_path: Path, postgres_url: str) -> None:
    ran = run(tmp_path, "-c", PROGRAM + WOKEN + CLOSE, postgres_url, postgres_url)
    # Workers look once a minute here: the commit has woken them.
    assert ran.stdout.splitlines() == ["inside", "", "", "42"], ran.stderr


def test_in_another_database_of_the_server_after_the_commit(
    tmp_path: Path, postgres_url: str, fresh_postgres: Any
) -> None:
    ran = run(tmp_path, "-c", PROGRAM + CLOSE, postgres_url, fresh_postgres.home)
    assert ran.stdout.splitlines() == ["after", "windlass.W003", "windlass.W003"], ran.stderr
    assert "stored after its commit" in ran.stderr


def test_a_schema_that_the_connection_may_not_use_is_another_place(
    tmp_path: Path, postgres_url: str
) -> None:
    """The settings look alike: only asking tells."""
    import psycopg  # noqa: PLC0415 -- who asks pays for the driver

    with psycopg.connect(postgres_url, autocommit=True) as line:
        line.execute("CREATE ROLE clerk LOGIN")
    try:
        other = postgres_url.replace("postgres@", "clerk@")
        assert other != postgres_url
        ran = run(tmp_path, "-c", PROGRAM + CLOSE, postgres_url, other)
        assert ran.stdout.splitlines() == ["after", "", "windlass.W003"], ran.stderr
    finally:
        with psycopg.connect(postgres_url, autocommit=True) as line:
            line.execute("DROP ROLE clerk")


# --- SQLite: after the commit ---


@pytest.fixture
def orders(shop: Any, app: Windlass) -> Iterator[list[str]]:
    """Transactional for a test; the jobs that are told of as enqueued meanwhile."""
    told: list[str] = []

    def hear(task_result: Any, **_: object) -> None:
        told.append(task_result.id)

    (params,) = settings.TASKS.values()
    options = {**params["OPTIONS"], "transactional": True}
    task_enqueued.connect(hear)
    with override_settings(TASKS={"default": {**params, "OPTIONS": options}}):
        yield told
    task_enqueued.disconnect(hear)


def stored(app: Windlass, shop: Any) -> set[str]:
    wanted = JobFilter(task=shop.add.module_path)
    return {job.id for job in app.blocking.run(app.admin.jobs.find(wanted, limit=1000))}


def test_rolled_back_leaves_no_job(app: Windlass, shop: Any, orders: list[str]) -> None:
    before = stored(app, shop)
    with transaction.atomic():
        result = shop.add.enqueue(1)
        transaction.set_rollback(True)
    assert stored(app, shop) == before
    assert (result.enqueued_at, orders) == (None, [])


def test_a_commit_leaves_one(app: Windlass, shop: Any, orders: list[str]) -> None:
    before = stored(app, shop)
    with transaction.atomic():
        result = shop.add.enqueue(1)
        assert result.enqueued_at is None
        assert stored(app, shop) == before
    assert stored(app, shop) - before == {result.id} == set(orders)
    assert shop.add.get_result(result.id) == result


def test_savepoints_and_callbacks_decide_for_their_own_jobs(
    app: Windlass, shop: Any, orders: list[str]
) -> None:
    before = stored(app, shop)
    late = []
    with transaction.atomic():
        kept = shop.add.enqueue(1)
        with transaction.atomic():
            shop.add.enqueue(2)
            transaction.set_rollback(True)
        with transaction.atomic():
            released = shop.add.enqueue(3)
        transaction.on_commit(lambda: late.append(shop.add.enqueue(4)))
    assert stored(app, shop) - before == {kept.id, released.id, late[0].id}
    assert orders == [kept.id, released.id, late[0].id]


def test_without_a_transaction_it_is_stored_at_once(
    app: Windlass, shop: Any, orders: list[str]
) -> None:
    result = shop.add.enqueue(1)
    assert result.enqueued_at is not None
    assert {result.id} == {*orders} <= stored(app, shop)
