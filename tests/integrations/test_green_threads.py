"""Code that gevent, eventlet or trio runs: it enqueues, or is told what to do instead."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast
from urllib.request import urlopen

import pytest

from tests.integrations.programs import run
from windlass import Windlass

SHOP = """
import json, os
from windlass import Windlass

app = Windlass(**json.loads(os.environ["SHOP"]))

@app.task(name="double")
def double(number: int) -> int:
    return 2 * number

def serve(environ, start_response):
    number = int(environ["PATH_INFO"].strip("/"))
    job = double.enqueue_sync(number)
    many = app.blocking.enqueue_many([double.call(0), double.call(1)])
    answer = {
        "id": job.id,
        "cancelled": app.blocking.cancel(many[0]).value,
        "state": app.blocking.refresh(many[1]).state.value,
        "result": app.blocking.result(job, timeout=15),
    }
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(answer).encode()]
"""


@contextmanager
def served(folder: Path, kind: str, settings: dict[str, Any]) -> Iterator[str]:
    """The shop under gunicorn; its address."""
    (folder / "shop.py").write_text(SHOP, encoding="utf-8")
    command = [sys.executable, "-m", "gunicorn", "-k", kind, "-b", "127.0.0.1:0"]
    command += ["--no-control-socket", "--graceful-timeout", "1", "shop:serve"]
    server = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "SHOP": json.dumps(settings)},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert server.stderr is not None
    try:
        for line in server.stderr:
            if address := re.search(r"http://[\d.]+:\d+", line):
                break
        else:
            pytest.fail(f"gunicorn ended with {server.wait()}")
        yield address[0]
    finally:
        server.terminate()
        server.communicate(timeout=30)


def ask(address: str, number: int) -> dict[str, Any]:
    with urlopen(f"{address}/{number}", timeout=20) as answer:  # noqa: S310 -- loopback
        return cast("dict[str, Any]", json.load(answer))


@pytest.mark.parametrize("backend", ["postgres", "redis"])
async def test_requests_under_gevent_enqueue_and_wait_side_by_side(
    backend: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    name, place = (
        ("schema", "postgres_schema") if backend == "postgres" else ("prefix", "redis_prefix")
    )
    url, own = request.getfixturevalue(place)
    settings = {"url": url.replace("127.0.0.1", "localhost"), name: own}
    app = Windlass(**settings)

    @app.task(name="double")
    def double(number: int) -> int:
        return 2 * number

    with served(tmp_path, "gevent", settings) as address, ThreadPoolExecutor(12) as visitors:
        asked = [visitors.submit(ask, address, number) for number in range(24)]
        async with app, app.worker():
            answers = [await asyncio.wrap_future(one) for one in asked]
    assert [answer["result"] for answer in answers] == [2 * number for number in range(24)]
    assert len({answer["id"] for answer in answers}) == 24


TASK = """
from windlass import Windlass
app = Windlass({url!r})
@app.task
def double(number: int) -> int:
    return 2 * number
"""
ONE_CALL = """
try:
    double.enqueue_sync(1)
except RuntimeError as error:
    print(type(error).__name__, error)
"""
GEVENT = "from gevent import monkey; monkey.patch_all()"
EVENTLET = """
import warnings; warnings.simplefilter("ignore")
import eventlet; eventlet.monkey_patch()
"""


@pytest.mark.parametrize(
    ("patches", "url", "advice"),
    [
        (GEVENT, "sqlite:///jobs.db", "Use postgresql:// or redis:// with gevent"),
        (EVENTLET, "memory://", "Use gevent (gunicorn -k gevent)"),
        (EVENTLET, "sqlite:///jobs.db", "Use gevent (gunicorn -k gevent)"),
    ],
)
def test_unsupported_calls_on_green_threads_are_refused_at_the_first_call(
    patches: str, url: str, advice: str, tmp_path: Path
) -> None:
    said = run(tmp_path, "-c", patches + TASK.format(url=url) + ONE_CALL)
    assert (said.stderr, said.returncode) == ("", 0)
    assert said.stdout.startswith("WrongEventLoop ")
    assert advice in said.stdout
    assert not (tmp_path / "jobs.db").exists()


def test_a_script_under_gevent_forks_closes_and_ends(clean_database: str, tmp_path: Path) -> None:
    program = """
import os
first = double.enqueue_sync(1)
if (child := os.fork()) == 0:
    os._exit(not double.enqueue_sync(2).created)
assert os.waitpid(child, 0)[1] == 0
app.blocking.close()
assert app.blocking.refresh(first).state == "waiting"
app.blocking.close()
"""
    ran = run(tmp_path, "-c", GEVENT + TASK.format(url=clean_database) + program)
    assert (ran.stdout, ran.stderr, ran.returncode) == ("", "", 0)


def test_trio_users_are_advised_to_use_a_thread_and_that_works(tmp_path: Path) -> None:
    program = """
import trio
from windlass.errors import BlockingCallOnLoop, WrongEventLoop

async def main():
    for call in (double.enqueue, app.__aenter__):
        try:
            await call(*[1] * (call == double.enqueue))
        except WrongEventLoop as error:
            assert "trio.to_thread.run_sync" in str(error)
    try:
        double.enqueue_sync(1)
    except BlockingCallOnLoop as error:
        assert "trio.to_thread.run_sync" in str(error)
    print((await trio.to_thread.run_sync(double.enqueue_sync, 4)).created)

trio.run(main)
"""
    ran = run(tmp_path, "-c", TASK.format(url="memory://") + program)
    assert (ran.stdout, ran.stderr) == ("True\n", "")
