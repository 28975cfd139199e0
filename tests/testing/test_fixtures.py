"""The fixtures, as a user's own test run sees them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SHOP = """
from windlass import Windlass

app = Windlass("sqlite:///must-not-exist.db")
sent = []


@app.task
async def send_email(to: str) -> None:
    sent.append(to)


def welcome(to: str) -> None:
    send_email.options(delay=60).enqueue_sync(to)
"""
LOOPS = "asyncio_default_fixture_loop_scope = function"


def run_pytest(folder: Path, tests: str, settings: str = "") -> subprocess.CompletedProcess[str]:
    (folder / "shop.py").write_text(SHOP, encoding="utf-8")
    (folder / "test_shop.py").write_text(tests, encoding="utf-8")
    (folder / "pytest.ini").write_text(f"[pytest]\n{LOOPS}\n{settings}\n", encoding="utf-8")
    # Only what is named: whether this environment knows the entry point must not matter.
    alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(folder)}
    plugins = ("-p", "windlass.testing.fixtures", "-p", "pytest_asyncio.plugin")
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", *plugins],
        cwd=folder,
        env=alone,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def passed(run: subprocess.CompletedProcess[str], count: int) -> None:
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{count} passed" in run.stdout


def test_the_app_named_in_the_settings_is_isolated(tmp_path: Path) -> None:
    tests = """
from windlass.testing import drain_sync
import shop

def test_the_mail_waits_a_minute(windlass_app, windlass_clock):
    assert windlass_app is shop.app
    shop.welcome("ada")
    assert drain_sync(windlass_app).ran == 0
    windlass_clock.advance(60)
    assert drain_sync(windlass_app).ran == 1
    assert shop.sent == ["ada"]

def test_the_next_test_starts_empty(windlass_app, windlass_clock):
    windlass_clock.advance(3600)
    assert drain_sync(windlass_app).ran == 0
"""
    passed(run_pytest(tmp_path, tests, "windlass_app = shop:app"), 2)
    assert not (tmp_path / "must-not-exist.db").exists()


def test_any_app_can_be_isolated_by_hand(tmp_path: Path) -> None:
    tests = """
import pytest
import shop
from windlass.testing import drain

@pytest.fixture(autouse=True)
def app(windlass_isolated):
    return windlass_isolated(shop.app)

@pytest.mark.asyncio
async def test_async(app):
    await shop.send_email.enqueue("ada")
    assert (await drain(app)).succeeded == 1
"""
    passed(run_pytest(tmp_path, tests), 1)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ("", 'windlass_app = "module:name"'),
        ("windlass_app = shop", 'windlass_app = "module:name"'),
        ("windlass_app = shop:sent", "names no Windlass app"),
    ],
)
def test_a_setting_that_names_no_app_says_what_to_write(
    tmp_path: Path, settings: str, told: str
) -> None:
    run = run_pytest(tmp_path, "def test_it(windlass_app): ...", settings)
    assert run.returncode == 1
    assert told in run.stdout


def test_pytest_is_not_imported_by_the_package() -> None:
    program = "import sys, windlass.testing; sys.exit('pytest' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
