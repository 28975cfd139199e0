"""``windlass`` itself: help, version, exit codes, and a quick start."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.source import ROOT
from tests.cli.processes import windlass
from windlass import __version__
from windlass._cli import exit_codes
from windlass._cli.commands.worker import worker


def test_the_version_is_printed(tmp_path: Path) -> None:
    ended = windlass("--version", cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (0, f"windlass {__version__}\n")


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_names_the_commands_and_the_first_steps(tmp_path: Path, arguments: list[str]) -> None:
    ended = windlass(*arguments, cwd=tmp_path)
    assert ended.returncode == 0
    for word in ("worker", "demo", "windlass worker shop:app"):
        assert word in ended.stdout


def test_help_for_a_worker_tells_signals_and_exit_codes(tmp_path: Path) -> None:
    told = windlass("worker", "--help", cwd=tmp_path).stdout
    for word in (
        "SIGTERM",
        "SIGUSR1",
        "74   the database was deleted",
        "75   at --max-jobs or --max-megabytes",
        "five times in a row",
        "--weight NAME=N",
    ):
        assert word in told
    assert "--child" not in told


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["wroker"], "No such command 'wroker'. Did you mean 'worker'?"),
        (["jobs", "requue"], "No such command 'requue'. Did you mean 'requeue'?"),
        (["schedules", "xyzzy"], "No such command 'xyzzy'.\n"),
        (["worker"], "Missing argument 'MODULE:APP'"),
        (["worker", "shop:app", "--slots", "0"], "0 is not in the range x>=1"),
        (["worker", "shop:app", "--colour"], "No such option"),
        (["worker", "shop:app", "-q", "a=1", "-q", "b"], "give every --queue its slots"),
        (["worker", "shop:app", "--grace", "soon"], "--grace must be a duration"),
    ],
)
def test_a_wrong_command_line_is_exit_code_1_with_a_reason(
    tmp_path: Path, arguments: list[str], says: str
) -> None:
    ended = windlass(*arguments, cwd=tmp_path)
    assert ended.returncode == 1
    assert says in ended.stderr
    assert "Traceback" not in ended.stderr


def test_version_and_help_do_not_pay_for_what_commands_need(tmp_path: Path) -> None:
    code = (
        "import sys; from windlass._cli.main import main; main(['--help'])\n"
        "print([name for name in ('rich', 'apsw', 'uvloop') if name in sys.modules])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert ended.stdout.splitlines()[-1] == "[]"


def test_the_page_about_workers_tells_every_option_and_every_exit_code() -> None:
    page = (ROOT / "docs" / "operating" / "workers.md").read_text(encoding="utf-8")
    options = [option for option in worker.params if not getattr(option, "hidden", False)]
    written = [name for option in options for name in (*option.opts, *option.secondary_opts)]
    assert [name for name in written if name.startswith("-") and f"`{name}" not in page] == []
    told = {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
    others = {exit_codes.UNHEALTHY, exit_codes.HANDLER_FAILED}
    assert told == {getattr(exit_codes, name) for name in exit_codes.__all__} - others
    for name, own in (("doctor", exit_codes.UNHEALTHY), ("jobs", exit_codes.HANDLER_FAILED)):
        page = (ROOT / "docs" / "operating" / f"{name}.md").read_text(encoding="utf-8")
        told = {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
        assert told == {exit_codes.IN_ORDER, exit_codes.COULD_NOT_START, own}
