"""``windlass plugins``."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from tests.architecture.source import ROOT
from tests.cli.fixtures import Said
from windlass import Backoff, Context, Every, Grants, Registrar, Windlass
from windlass._cli.main import main

MODULE = "windlass_test_plugged"
FIELDS = {
    "name",
    "documentation",
    "grants",
    "running",
    "tasks",
    "schedules",
    "middleware",
    "services",
}
TASK = {
    "name",
    "documentation",
    "queue",
    "concurrency",
    "timeout",
    "max_attempts",
    "backoff",
    "breaker",
}


class Newsletter:
    """Sends the weekly letter
    to everybody.

    Written on Sundays.
    """

    name = "newsletter"

    def register(self, registrar: Registrar) -> None:
        registrar.service("mailer")

        @registrar.schedule(Every(900))
        @registrar.task(concurrency=1, timeout=90, max_attempts=3, backoff=Backoff.fixed(60))
        async def weekly(ctx: Context) -> None:
            """Writes to all of them.

            Slowly.
            """

        @registrar.task(breaker=False)
        async def test() -> None: ...

        @registrar.middleware
        async def layer(ctx: Context, call_next: Callable[[], object]) -> object:
            return call_next()


Desk = Callable[..., Said]


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Desk:
    """Call it with the words of a command, about an app with a plugin."""

    def order(*words: str) -> Said:
        app = Windlass(f"sqlite:///{tmp_path}/jobs.db")
        app.install(
            Newsletter(),
            grants=Grants(
                tasks=True,
                schedules=True,
                middleware="own",
                max_running=10,
                queues=["mail", "slow"],
                services=["mailer"],
            ),
        )
        module = ModuleType(MODULE)
        vars(module)["app"] = app
        sys.modules[MODULE] = module
        capsys.readouterr()
        try:
            code = main(["plugins", words[0], f"{MODULE}:app", *words[1:]])
        finally:
            del sys.modules[MODULE]
        return Said(code, *capsys.readouterr())

    return order


def test_plugins_are_listed_with_what_they_say_of_themselves(desk: Desk) -> None:
    said = desk("list")
    assert said.rows[0] == [
        "newsletter",
        "2",
        "1",
        "0 of 10",
        "mail, slow",
        "Sends the weekly letter to everybody.",
    ]
    assert said.rows[1][:5] == ["windlass", "0", "2", "–", "–"]
    assert said.rows[1][5].startswith("Deletes jobs after their retention")
    first, second = desk("list", "--json").json
    assert set(first) == set(second) == FIELDS


def test_one_is_shown_with_its_definitions_and_its_grants(desk: Desk) -> None:
    said = desk("show", "newsletter")
    assert said.code == 0
    lines = {" ".join(line.split()) for line in said.out.splitlines()}
    assert {
        "newsletter",
        "description Sends the weekly letter to everybody. Written on Sundays.",
        "running 0 of 10",
        "needs services mailer",
        "may add tasks, schedules",
        "may use queues mail, slow",
        "max running 10 over all workers",
        "may add middleware around its own jobs",
        "may use services mailer",
        "newsletter.weekly mail 1 90s 3 yes Writes to all of them.",
        "newsletter.test mail no limit – 5 no –",
        "newsletter.weekly every 15 minutes newsletter.weekly",
    } <= lines
    told = desk("show", "newsletter", "--json").json
    weekly, test = told["tasks"]
    assert set(weekly) == TASK
    assert (weekly["concurrency"], weekly["timeout"], weekly["backoff"]) == (1, 90.0, "1m")
    assert (test["concurrency"], test["timeout"], test["backoff"]) == (None, None, None)
    assert told["grants"] == {
        "tasks": True,
        "schedules": True,
        "chores": False,
        "middleware": "own",
        "max_running": 10,
        "queues": ["mail", "slow"],
        "services": ["mailer"],
    }
    assert told["schedules"] == [
        {"name": "newsletter.weekly", "words": "every 15 minutes", "task": "newsletter.weekly"}
    ]
    assert (told["middleware"], told["services"]) == (1, ["mailer"])
    assert "a chore, without a job" in desk("show", "windlass").out


def test_one_that_is_not_there_is_an_error_that_says_which_are(desk: Desk) -> None:
    said = desk("show", "newsleter")
    assert said.code == 1
    assert "Did you mean 'newsletter'?" in said.err
    assert "Installed: newsletter, windlass" in said.err


def test_without_an_app_there_is_our_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "jobs.db").touch()
    assert main(["plugins", "list", "--url", f"sqlite:///{tmp_path}/jobs.db"]) == 0
    assert Said(0, *capsys.readouterr()).rows[0][0] == "windlass"


def test_the_page_names_every_field() -> None:
    page = (ROOT / "docs/guides/plugins.md").read_text(encoding="utf-8")
    table = page[page.index("| Field of `--json`") :].partition("\n\n")[0]
    named = set(re.findall(r"`(\w+)`", table))
    assert named - {"null", "max_running"} - FIELDS - TASK == {"words", "task"}
    assert named >= FIELDS | TASK
