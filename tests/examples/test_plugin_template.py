"""The package that authors of plugins copy: it works as it stands, and as an installed package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from tests.architecture.source import ROOT
from windlass import Grants, Windlass
from windlass._plugins.entry_points import GROUP

TEMPLATE = ROOT / "examples" / "plugin_template"


def test_its_own_tests_pass_in_a_copy_of_it(tmp_path: Path) -> None:
    copy = tmp_path / "mine"
    shutil.copytree(TEMPLATE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=copy,
        env={
            **os.environ,
            "PYTHONPATH": str(copy / "src"),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "3 passed" in ran.stdout


def test_its_entry_point_leads_to_the_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    project = tomllib.loads((TEMPLATE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    ((name, where),) = project["entry-points"][GROUP].items()
    monkeypatch.syspath_prepend(str(TEMPLATE / "src"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    made = EntryPoint(name, where, GROUP).load()()
    app = Windlass("memory://")
    grants = Grants(tasks=True, schedules=True, queues=["default"], services=["notifier"])
    assert app.install(made, grants=grants).name == name
    assert app.tasks.names == ["reminders.morning", "reminders.remind"]
    for module in [name for name in sys.modules if name.startswith("windlass_reminders")]:
        monkeypatch.delitem(sys.modules, module)


def test_its_page_grants_what_it_needs() -> None:
    page = (TEMPLATE / "README.md").read_text(encoding="utf-8")
    told = tomllib.loads(page.partition("```toml\n")[2].partition("```")[0])
    settings = Windlass("memory://", plugins=told["windlass"]["plugins"]).settings
    assert settings.plugins["reminders"].services == ("notifier",)
