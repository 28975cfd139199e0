from __future__ import annotations

from pathlib import Path

import pytest
from flask import Flask, current_app

from tests.integrations.programs import complaint, run
from windlass import Windlass
from windlass.errors import BlockingCallOnLoop, ConfigError
from windlass.integrations.flask import get_app, init_app


@pytest.fixture
def app(tmp_path: Path) -> Windlass:
    return Windlass(f"sqlite:///{tmp_path}/jobs.db")


def shop(app: Windlass, **options: bool) -> Flask:
    """A factory, as Flask applications have: called again, it makes another one."""
    server = Flask("shop")
    server.config["CITY"] = "Ghent"
    init_app(server, app, **options)

    @server.post("/double/<int:number>")
    def enqueue(number: int) -> str:
        task = get_app().tasks.find("double")
        assert task is not None
        return task.enqueue_sync(number).id

    return server


def test_a_view_enqueues_and_a_worker_runs_it(app: Windlass) -> None:
    @app.task(name="double")
    def double(number: int) -> int:
        return 2 * number

    job = shop(app).test_client().post("/double/21").text

    async def work() -> object:
        async with app.worker():
            return await app.job(job).result(timeout=30)

    assert app.blocking.run(work()) == 42
    app.blocking.close()


async def test_jobs_run_inside_the_context_of_the_application(app: Windlass) -> None:
    @app.task
    def thread() -> str:
        return str(current_app.config["CITY"])

    @app.task
    async def loop() -> str:
        return str(current_app.config["CITY"])

    shop(app, context=True)
    async with app, app.worker():
        for task in (thread, loop):
            assert await (await task.enqueue()).result(timeout=30) == "Ghent"


async def test_without_being_asked_jobs_run_outside_it(app: Windlass) -> None:
    @app.task
    async def seen() -> bool:
        return bool(current_app)

    shop(app)
    async with app, app.worker():
        assert await (await seen.enqueue()).result(timeout=30) is False


async def test_on_a_running_loop_it_is_refused_with_the_reason(app: Windlass) -> None:
    server = shop(app)
    with (
        server.app_context(),
        pytest.raises(BlockingCallOnLoop, match="would block the running event loop"),
    ):
        get_app()


def test_nothing_is_kept_but_in_the_slot_of_the_extension(app: Windlass) -> None:
    server = shop(app)
    assert server.extensions["windlass"] is app
    with server.app_context():
        assert get_app() is app
    other = Flask("other")
    with other.app_context(), pytest.raises(ConfigError, match="'other' has no Windlass app"):
        get_app()


def test_the_same_app_twice_is_fine_and_a_second_one_is_refused(
    app: Windlass, tmp_path: Path
) -> None:
    server = shop(app)
    init_app(server, app)
    with pytest.raises(ConfigError, match="one Flask application has one app"):
        init_app(server, Windlass(f"sqlite:///{tmp_path}/other.db"))


def test_the_app_is_closed_when_the_program_ends(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        """
import atexit
from flask import Flask
from windlass import Windlass
from windlass._app.parts import parts_of
from windlass.integrations.flask import init_app

app = Windlass("sqlite:///jobs.db")
atexit.register(lambda: print("open:", len(parts_of(app).connections.loops)))  # runs last

@app.task
def nothing() -> None: ...

init_app(Flask("shop"), app)
nothing.enqueue_sync()
print("open:", len(parts_of(app).connections.loops))
"""
    )
    ran = run(tmp_path, "shop.py")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "open: 1\nopen: 0\n", "")


def test_without_flask_the_import_says_what_to_install(tmp_path: Path) -> None:
    said = complaint(tmp_path, "windlass.integrations.flask", "flask")
    assert said.endswith("pip install 'flask'")
