"""Every example runs in an empty folder and prints what its reader expects."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.architecture.source import ROOT

EXAMPLES = ROOT / "examples"

PRINTS = {
    "quickstart.py": "sent 'Welcome' to ada@example.org\ncover.png, 100 pixels wide",
    "asgi_lifespan.py": "receipt for order 7 sent",
    "wsgi_producer.py": r"202 Accepted .*\njob [0-9a-f]{32} is waiting",
    "steering.py": (
        r"https://shop\.example/hook answered at attempt 2, after ConnectionError: refused\n"
        r"https://gone\.example will never answer"
    ),
    "schedules.py": (
        r"the numbers of jp\n"
        r"poll: every 200 milliseconds, paused\n"
        r"report-eu: at 08:00 on Monday to Friday, Europe/Berlin, active\n"
        r"report-jp: only when triggered, active\n"
        r"report-us: at 08:00 on Monday to Friday, America/New_York, active\n"
        r"windlass\.retention: every minute, active\n"
        r"windlass\.tidy: every minute, active"
    ),
    "fastapi_shop.py": "receipt for order 7 sent",
    "flask_shop.py": "waiting\nreceipt for order 7 of the corner shop sent",
    "django_shop.py": "receipt for order 7 sent, sqlite says",
    "django_tasks_shop.py": "SUCCESSFUL receipt for order 7 sent",
    "bulk.py": "328350\ndefault: 106 succeeded, 0 failed",
    "flow_import.py": "some rows are wrong\n3 rows, total 70\nflow failed, 1 stopped",
    "programs.py": r"\{'be': 2, 'not': 1, 'or': 1, 'to': 2\}\n\{'be': 1, 'it': 1, 'so': 1\}",
    "test_mail.py": r"(?s).*3 passed in .*",
}


def run(folder: Path, name: str) -> str:
    """The example, copied as a reader would; its tests load no plugin but pytest's own."""
    shutil.copy(EXAMPLES / name, folder)
    quiet = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    pytest_first = ["-m", "pytest", "-q", "-p", "no:cacheprovider"]
    ran = subprocess.run(
        [sys.executable, "-W", "error", *(pytest_first if name.startswith("test_") else []), name],
        cwd=folder,
        env={**os.environ, **quiet},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    about_jobs = re.compile(r"(queue \S+ is cooling down|retrying|failed) ")
    assert [line for line in ran.stderr.splitlines() if not about_jobs.match(line)] == []
    return ran.stdout.strip()


@pytest.mark.parametrize("name", sorted(PRINTS))
def test_an_example_runs_and_prints_what_it_should(name: str, tmp_path: Path) -> None:
    printed = run(tmp_path, name)
    assert re.fullmatch(PRINTS[name], printed), printed


def test_every_example_is_run() -> None:
    assert sorted(file.name for file in EXAMPLES.glob("*.py")) == sorted(PRINTS)


@pytest.mark.parametrize("name", sorted(PRINTS))
def test_an_example_fits_on_a_page(name: str) -> None:
    assert len((EXAMPLES / name).read_text(encoding="utf-8").splitlines()) <= 40


def test_the_tests_of_an_example_touch_no_file(tmp_path: Path) -> None:
    run(tmp_path, "test_mail.py")
    assert [file.name for file in tmp_path.iterdir()] == ["test_mail.py"]
