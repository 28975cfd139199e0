"""What an import loads: no more than a program needs that defines tasks and enqueues.

Each case is a process of its own, and what it must not load is looked for in its ``sys.modules``.
How long imports take is a figure of ``python -m benchmarks --only imports``.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest

import windlass
from tests.architecture.source import PACKAGE

DRIVERS = {"apsw", "asyncpg", "redis", "psycopg", "sqlite3"}
EXTRAS = {"opentelemetry", "prometheus_client", "starlette", "jinja2", "uvicorn", "uvloop"}
OUTPUT = {"click", "rich"}
FOR_OTHERS = {
    "windlass._admin", "windlass._cli", "windlass._plugins", "windlass._storage.memory",
    "windlass._storage.postgres", "windlass._storage.redis", "windlass._storage.sqlite",
    "windlass._web", "windlass._worker", "windlass.admin", "windlass.plugins", "windlass.storage",
    "windlass.testing",
}  # fmt: skip
NOT_NEEDED = DRIVERS | EXTRAS | OUTPUT | FOR_OTHERS | {"importlib.metadata", "tomllib", "difflib"}

DEFINE = """
from datetime import timedelta
from windlass import Backoff, Context, Cron, Every, Grants, Limit, Rate, Secret, Unique, Windlass

app = Windlass("sqlite:///jobs.db", event_log=True)

@app.schedule(Every(60))
@app.task(queue="mail", unique=Unique(), limits=Limit("api", rate=Rate(5, 1)), breaker=True)
async def send(ctx: Context, to: str = "ada", card: Secret[str] = "") -> None: ...

call = send.options(delay="5m", key="one").call("grace")
job = app.job("0" * 12 + "7000" + "8" + "0" * 15)
"""


def loaded(program: str, *arguments: str, cwd: Path) -> set[str]:
    """The modules that a process has loaded at the end of ``program``."""
    told = f"{program}\nimport json, sys\nprint(json.dumps(list(sys.modules)))"
    ran = subprocess.run(
        [sys.executable, "-c", told, *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(json.loads(ran.stdout.splitlines()[-1]))


def of(unwanted: Collection[str], modules: Collection[str]) -> list[str]:
    """Which of ``modules`` are unwanted, or are in an unwanted package."""
    return sorted(
        name for name in modules if any(f"{name}.".startswith(f"{one}.") for one in unwanted)
    )


def test_importing_windlass_loads_nothing_but_itself(tmp_path: Path) -> None:
    new = loaded("import windlass", cwd=tmp_path) - loaded("", cwd=tmp_path)
    assert of({"windlass"}, new) == ["windlass", "windlass._version"]
    assert of(NOT_NEEDED | {"asyncio", "msgspec"}, new) == []


def test_defining_tasks_loads_only_what_that_takes(tmp_path: Path) -> None:
    assert of(NOT_NEEDED, loaded(DEFINE, cwd=tmp_path)) == []


def test_enqueueing_loads_the_backend_of_the_url_and_no_other(tmp_path: Path) -> None:
    modules = loaded(f"{DEFINE}\nsend.enqueue_sync()\napp.blocking.close()", cwd=tmp_path)
    own = {"apsw", "windlass._storage.sqlite"}
    assert of(own, modules) != []
    assert of(NOT_NEEDED - own, modules) == []


def test_a_worker_and_an_operator_load_what_they_need(tmp_path: Path) -> None:
    program = f"{DEFINE}\napp.admin\napp.worker()\napp.plugins"
    assert {"windlass._admin", "windlass._plugins", "windlass._worker"} <= loaded(
        program, cwd=tmp_path
    )


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["no-such-command"]])
def test_the_command_line_answers_without_loading_the_app(
    tmp_path: Path, arguments: list[str]
) -> None:
    program = "import sys\nfrom windlass._cli.main import main\nmain(sys.argv[1:])"
    modules = loaded(program, *arguments, cwd=tmp_path)
    assert "click" in modules
    assert of({"asyncio", "msgspec", "rich", "windlass._app"} | EXTRAS | DRIVERS, modules) == []


def test_an_unwanted_module_is_found() -> None:
    modules = {"click", "click.core", "clicker", "windlass._web.app", "windlass._website"}
    assert of({"click", "windlass._web"}, modules) == ["click", "click.core", "windlass._web.app"]


# --- names that are loaded when they are asked for ---


def typed_homes() -> dict[str, str]:
    """Where type checkers find the names of ``windlass``."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    (branch,) = [node for node in tree.body if isinstance(node, ast.If)]
    return {
        alias.name: node.module
        for node in branch.body
        if isinstance(node, ast.ImportFrom) and node.module is not None
        for alias in node.names
    }


def test_programs_and_type_checkers_find_the_same_names() -> None:
    homes = {name: f"windlass.{home}" for name, home in vars(windlass)["_HOMES"].items()}
    assert {**homes, "errors": "windlass"} == typed_homes()
    assert {*homes, "errors", "__version__"} == set(windlass.__all__)


def test_every_name_is_offered_and_no_other_is_found() -> None:
    assert set(windlass.__all__) <= set(dir(windlass))
    with pytest.raises(AttributeError, match="module 'windlass' has no attribute 'Broker'"):
        windlass.Broker  # type: ignore[attr-defined] # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'Broker'"):
        from windlass import Broker  # type: ignore[attr-defined] # noqa: F401, PLC0415
