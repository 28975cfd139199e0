"""Every block of Python in the documentation runs, and the tables name what there is."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import click
import pytest

from tests.architecture.source import ROOT
from tests.examples import pages, run_page
from windlass import Windlass, testing
from windlass._app.parts import parts_of
from windlass._cli import exit_codes
from windlass._cli.main import cli
from windlass._settings.load import load_settings
from windlass._settings.settings import Settings, WorkerSettings, parse_duration
from windlass._tasks.call import OPTIONS
from windlass._tasks.context import Context
from windlass._tasks.task import TaskOptions

DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
WITH_BLOCKS = [page for page in PAGES if any(block.title is None for block in pages.blocks(page))]
WITH_FILES = [page for page in PAGES if pages.files(page) and page.parent.name != "tutorial"]
"""The files of the tutorial span several pages: test_tutorial runs them."""


# Sentry's library imports eventlet where it is installed, and that warns of itself.
WARNINGS = ("-W", "error", "-W", "ignore::Warning:sentry_sdk.utils")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix().removeprefix("docs/")


def run(folder: Path, *command: str, **environment: str) -> str:
    ran = subprocess.run(
        [sys.executable, *WARNINGS, *command],
        cwd=folder,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environment},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def write_files(page: Path, folder: Path) -> dict[str, str]:
    files = pages.files(page)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return files


@pytest.mark.parametrize("page", WITH_BLOCKS, ids=name_of)
def test_the_blocks_of_a_page_run_in_order(
    page: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    write_files(page, tmp_path)
    environment = {}
    if any(pages.SERVER in block.code for block in pages.blocks(page)):
        environment["WINDLASS_TEST_POSTGRES"] = request.getfixturevalue("postgres_url")
    run(tmp_path, str(run_page.__file__), str(page), **environment)


@pytest.mark.parametrize("page", WITH_FILES, ids=name_of)
def test_the_files_of_a_page_work(page: Path, tmp_path: Path) -> None:
    files = write_files(page, tmp_path)
    for name, text in files.items():
        if "__main__" in text:
            run(tmp_path, name)
    tests = [name for name in files if name.startswith("test_")]
    if tests:
        (tmp_path / "pytest.ini").write_text(
            "[pytest]\nwindlass_app = shop:app\nasyncio_mode = auto\n"
            "asyncio_default_fixture_loop_scope = function\n"
        )
        plugins = ("-p", "windlass.testing.fixtures", "-p", "pytest_asyncio.plugin")
        text = "\n".join(files[test] for test in tests)
        count = len(re.findall(r"^(?:async )?def test_", text, re.MULTILINE))
        passed = re.search(r"(\d+) passed", run(tmp_path, "-m", "pytest", "-q", *plugins))
        # A suite of the conformance tests brings its own.
        inherited = "windlass.testing.conformance" in text
        assert passed
        assert int(passed[1]) > count if inherited else int(passed[1]) == count


def test_a_block_that_fails_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    for code in ("assert False", "import asyncio\nawait asyncio.sleep(0)\nassert False"):
        page.write_text(f"# Title\n\n```python\n{code}\n```\n")
        with pytest.raises(AssertionError, match=r"page\.md"):
            run(tmp_path, str(run_page.__file__), str(page))


def test_every_page_is_in_the_navigation() -> None:
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = re.findall(r"^ +- [^:\n]+: (\S+\.md)$", site, re.MULTILINE)
    assert sorted(listed) == sorted(map(name_of, DOCS.rglob("*.md")))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", page.read_text()):
        linked = page.parent / target if target else page
        assert linked.is_file(), target
        if anchor:
            titles = re.findall(r"^#+ (.*)$", linked.read_text(), re.MULTILINE)
            slugs = {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}
            assert anchor in slugs, anchor


# --- tables ---


def named(page: str) -> set[str]:
    """Everything the page shows in code style."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return {
        word
        for code in re.findall(r"`([^`\n]+)`", text)
        for word in re.findall(r"[A-Za-z_]+", code)
    }


def test_every_setting_is_documented_with_its_default() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| ([^|]+) \|",
        (DOCS / "reference" / "settings.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    told = {name: default.strip().strip("`") for name, default in rows}
    assert sorted(told) == sorted(Settings.__struct_fields__)
    settings = load_settings("memory://", {}, environment={})
    for name, default in told.items():
        value = getattr(settings, name)
        match value:
            case timedelta():
                assert parse_duration(default, name) == value, name
            case None | ():
                assert default == "none", name
            case bool():
                assert default == str(value).lower(), name
            case _ if name != "url":
                assert default == str(value), name


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("guides/tasks.md", set(TaskOptions.__struct_fields__)),
        ("guides/tasks.md", set(OPTIONS)),
        (
            "guides/tasks.md",
            {name for name in dir(Context) if not name.startswith("_")} - {"claimed"},
        ),
        ("operating/workers.md", set(WorkerSettings.__struct_fields__) - {"shared"}),
        ("guides/testing.md", set(testing.__all__) - {"Drained", "Enqueued"}),
    ],
    ids=["options of a task", "options of a call", "the context", "a worker", "testing"],
)
def test_every_name_is_documented(page: str, names: set[str]) -> None:
    shown = named(page) | {
        word for block in pages.blocks(DOCS / page) for word in re.findall(r"\w+", block.code)
    }
    assert names - shown == set()


def test_every_command_and_exit_code_is_in_the_reference() -> None:
    text = (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")
    context = click.Context(cli)
    for name in cli.list_commands(context):
        rows = re.search(rf"^\| `{name}` .*\n(?:\| \| .*\n)*", text, re.MULTILINE)
        assert rows, name
        command = cli.get_command(context, name)
        subcommands = command.commands if isinstance(command, click.Group) else {}
        assert [one for one in subcommands if f"`{one}`" not in rows[0]] == []
    table = text.partition("## Exit codes")[2]
    codes = {
        int(code)
        for cell in re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE)
        for code in cell.split(", ")
    }
    assert codes == {getattr(exit_codes, name) for name in exit_codes.__all__} | {130}


def test_the_worker_takes_what_the_page_says() -> None:
    settings = parts_of(Windlass("memory://")).workers.settings(
        queues=["a", "b"], slots=3, order="weighted", weights={"a": 2}, max_jobs=1, max_megabytes=1
    )
    assert settings.total_slots == 3
