from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, transaction

from tests.integrations.conftest import SETTINGS
from tests.integrations.programs import complaint, run
from windlass import Windlass
from windlass._app.parts import parts_of
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass.errors import PayloadError, UnknownTask
from windlass.integrations.django import TARGET, enqueue_on_commit, get_app, on_commit

Work = Callable[..., None]


def stored(app: Windlass, task: Any) -> list[str]:
    """The jobs of a task, newest first."""
    wanted = JobFilter(task=task.name)
    return [job.id for job in app.blocking.run(app.admin.jobs.find(wanted))]


def django(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    site = {"DJANGO_SETTINGS_MODULE": SETTINGS, "SHOP_FOLDER": str(folder)}
    return run(folder, *arguments, **{**site, **environment})


# --- settings and discovery ---


def test_the_settings_say_which_app_it_is(app: Windlass) -> None:
    assert get_app() is app
    assert app.settings.url == f"sqlite:///{os.environ['SHOP_FOLDER']}/jobs.db"


def test_tasks_are_found_in_the_tasks_module_of_every_installed_app(app: Windlass) -> None:
    found = {name.rpartition(".")[2] for name in app.tasks.names}
    assert {"receipt", "elsewhere", "add", "add_later"} <= found


def test_without_an_app_one_is_made_from_the_settings(tmp_path: Path) -> None:
    program = """
from django.conf import settings
settings.configure(WINDLASS={"URL": "sqlite:///own.db", "DEFAULT_QUEUE": "shop"})
from windlass.integrations.django import get_app
app = get_app()
print(app.settings.url, app.settings.default_queue, get_app() is app)
"""
    ran = run(tmp_path, "-c", program)
    assert (ran.stdout, ran.stderr) == ("sqlite:///own.db shop True\n", "")


@pytest.mark.parametrize("written", ["", "WINDLASS={}", "WINDLASS='sqlite:///jobs.db'"])
def test_settings_that_say_nothing_are_refused(tmp_path: Path, written: str) -> None:
    program = f"""
from django.conf import settings
settings.configure({written})
from windlass.integrations.django import get_app
get_app()
"""
    assert "settings.WINDLASS must name the storage" in run(tmp_path, "-c", program).stderr


@pytest.mark.parametrize(
    ("module", "missing", "install"),
    [
        ("windlass.integrations.django", ["django"], "django"),
        ("windlass.integrations.django.django_tasks", ["django_tasks"], "django-tasks"),
    ],
)
def test_without_the_library_the_import_says_what_to_install(
    tmp_path: Path, module: str, missing: list[str], install: str
) -> None:
    assert complaint(tmp_path, module, *missing).endswith(f"pip install '{install}'")


# --- on commit ---


def test_a_job_is_stored_when_the_transaction_commits(app: Windlass, shop: Any, work: Work) -> None:
    before = stored(app, shop.receipt)
    with transaction.atomic():
        enqueue_on_commit(shop.receipt, 7)
        assert stored(app, shop.receipt) == before
    job, *rest = stored(app, shop.receipt)
    assert rest == before
    work(job)
    assert app.blocking.result(app.job(job)) == "receipt 7"


def test_without_a_transaction_it_is_stored_at_once(app: Windlass, shop: Any) -> None:
    before = stored(app, shop.receipt)
    enqueue_on_commit(shop.receipt, order=8)
    assert len(stored(app, shop.receipt)) == len(before) + 1


def test_rolled_back_nothing_is_stored(app: Windlass, shop: Any) -> None:
    before = stored(app, shop.receipt)
    with transaction.atomic():
        enqueue_on_commit(shop.receipt, 9)
        transaction.set_rollback(True)
    assert stored(app, shop.receipt) == before


def test_options_and_several_calls_are_stored_together(app: Windlass, shop: Any) -> None:
    before = stored(app, shop.receipt)
    with transaction.atomic():
        enqueue_on_commit(shop.receipt.options(queue="reports"), 1)
        on_commit(shop.receipt.call(2), shop.receipt.call(3), using="default")
    third, second, first = stored(app, shop.receipt)[: -len(before) or None]
    kept = [app.blocking.run(app.admin.jobs.get(job)) for job in (first, second, third)]
    assert [job.payload for job in kept] == [b'{"order":%d}' % n for n in (1, 2, 3)]
    assert kept[0].queue == "reports"


def test_wrong_arguments_are_refused_before_the_commit(shop: Any, tmp_path: Path) -> None:
    other = Windlass(f"sqlite:///{tmp_path}/other.db")

    @other.task
    def foreign() -> None: ...

    with transaction.atomic():
        with pytest.raises(PayloadError):
            enqueue_on_commit(shop.receipt, "seven")
        with pytest.raises(UnknownTask):
            enqueue_on_commit(foreign)
    assert not connection.in_atomic_block


def test_in_postgresql_a_job_can_be_part_of_the_transaction_itself(
    tmp_path: Path, postgres_url: str
) -> None:
    program = """
import sys
from psycopg.conninfo import conninfo_to_dict
import django
from django.conf import settings
url = sys.argv[1]
at = conninfo_to_dict(url)
database = {"ENGINE": "django.db.backends.postgresql", "NAME": at["dbname"]}
keys = {"HOST": "host", "PORT": "port", "USER": "user", "PASSWORD": "password"}
database.update({key: at.get(name, "") for key, name in keys.items()})
settings.configure(
    DATABASES={"default": database},
    INSTALLED_APPS=["windlass.integrations.django"],
    WINDLASS={"URL": url},
)
django.setup()
from django.db import connection, transaction
from windlass.integrations.django import get_app
app = get_app()

@app.task
def receipt(order: int) -> None: ...

app.blocking.run(app.admin.queues.counts())  # makes the tables
for order in (1, 2):
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("select 1")
        receipt.options(connection=connection.connection).enqueue_sync(order)
        print(len(app.blocking.run(app.admin.jobs.find())))
        transaction.set_rollback(order == 2)
print(*[job.payload.decode() for job in app.blocking.run(app.admin.jobs.find())])
connection.close()
"""
    ran = run(tmp_path, "-c", program, postgres_url)
    assert ran.stdout.split() == ["0", "1", '{"order":1}'], ran.stderr
    assert ran.stderr == ""


def test_threads_that_ask_at_once_are_given_one_app(tmp_path: Path) -> None:
    program = """
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from django.conf import settings
settings.configure(WINDLASS={"URL": "sqlite:///own.db"})
from windlass.integrations.django import get_app
together = Barrier(8)
def ask(_):
    together.wait()
    return id(get_app())
with ThreadPoolExecutor(8) as pool:
    print(len(set(pool.map(ask, range(8)))))
"""
    assert run(tmp_path, "-c", program).stdout == "1\n"


# --- the worker command ---


def test_the_command_runs_what_waits_and_its_code_is_the_workers(tmp_path: Path) -> None:
    ask = """
import django; django.setup()
from tests.integrations.shopfront.shop import tasks
from windlass.integrations.django import get_app
jobs = [tasks.receipt.enqueue_sync(4).id, tasks.elsewhere.enqueue_sync().id]
jobs.append(tasks.add.using(queue_name="reports").enqueue(1).id)
print(*jobs)
"""
    jobs = django(tmp_path, "-c", ask).stdout.split()
    assert len(jobs) == 3
    options = ["--until-empty", "--slots", "2"]
    ran = django(tmp_path, "-m", "django", "windlass_worker", *options, SHOP_LOGGING="root")
    assert ran.returncode == 0, ran.stderr
    # Printed once, though the project's own handler prints everything, too.
    assert len([line for line in ran.stderr.splitlines() if jobs[0][-8:] in line]) == 1
    assert TARGET in ran.stderr + ran.stdout
    tell = f"""
import django; django.setup()
from windlass.integrations.django import get_app
app = get_app()
for job in {jobs!r}:
    print(app.blocking.result(app.job(job), timeout=0.1))
"""
    first, child, third = django(tmp_path, "-c", tell).stdout.splitlines()
    assert (first, third) == ("receipt 4", "2")
    assert child.endswith(", True]")


def test_every_launcher_serves_the_queues_of_the_settings(app: Windlass) -> None:
    """What `windlass worker` and `app.worker()` serve, and so the command, which is the first."""
    assert {"default", "mail", "reports"} <= set(parts_of(app).workers.settings().shared)


def test_processes_of_the_command_have_django_set_up(tmp_path: Path) -> None:
    site = {"DJANGO_SETTINGS_MODULE": SETTINGS, "SHOP_FOLDER": str(tmp_path)}
    options = ["--processes", "2", "--no-summary", "--log-format", "json"]
    worker = subprocess.Popen(
        [sys.executable, "-m", "django", "windlass_worker", *options],
        cwd=Path(__file__).parents[2],
        env={**os.environ, **site},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    ask = """
import django; django.setup()
from tests.integrations.shopfront.shop import tasks
from windlass.integrations.django import get_app
print(get_app().blocking.result(tasks.receipt.enqueue_sync(5), timeout=30))
"""
    try:
        assert django(tmp_path, "-c", ask).stdout == "receipt 5\n"
        worker.send_signal(signal.SIGTERM)
        _, said = worker.communicate(timeout=30)
        assert worker.returncode == 0, said
    finally:
        worker.kill()
        worker.wait()


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--help"], 0, "--max-megabytes"),
        (["--slots", "none"], 1, "'none' is not a valid integer"),
        (["--weight", "mail=2", "--order", "strict"], 1, "--weight needs --order weighted"),
    ],
)
def test_options_are_those_of_windlass_worker(
    tmp_path: Path, options: list[str], code: int, words: str
) -> None:
    ran = django(tmp_path, "-m", "django", "windlass_worker", *options)
    assert ran.returncode == code
    assert words in ran.stdout + ran.stderr
