"""Workflows of a hosted CI name only commands, files and versions that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.architecture.source import ROOT

GITHUB = ROOT / ".github"
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
WORKFLOWS = sorted(GITHUB.glob("workflows/*.yml"))
TARGETS = frozenset(re.findall(r"^([\w-]+):", MAKEFILE, re.MULTILINE))

pytestmark = pytest.mark.skipif(not GITHUB.is_dir(), reason="a source archive has no .github")


def jobs(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))["jobs"]
    return found


def commands(file: Path) -> Iterator[str]:
    for job in jobs(file).values():
        yield from (step["run"] for step in job["steps"] if "run" in step)


def unknown_names(command: str) -> list[str]:
    """Targets of make, options of make and files that a command names and that do not exist."""
    made = re.findall(r"\bmake ([\w-]+)", command)
    given = re.findall(r"\b([A-Z]+)=", " ".join(re.findall(r"\bmake [^\n]*", command)))
    files = re.findall(r"(?<![\w/])(?:scripts|tests)/[\w./-]+", command)
    return [
        *(target for target in made if target not in TARGETS),
        *(name for name in given if not re.search(rf"^{name} \?=", MAKEFILE, re.MULTILINE)),
        *(file for file in files if not (ROOT / file).exists()),
    ]


def test_every_file_for_the_hosting_site_is_yaml() -> None:
    files = [*GITHUB.rglob("*.yml"), ROOT / ".pre-commit-config.yaml"]
    assert len(files) >= 6
    for file in files:
        assert isinstance(yaml.safe_load(file.read_text(encoding="utf-8")), dict), file


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_workflows_run_commands_that_exist(file: Path) -> None:
    assert [name for command in commands(file) for name in unknown_names(command)] == []


def test_a_command_that_does_not_exist_is_found() -> None:
    assert unknown_names("make tests LOCK=1 ARGS='tests/gone -k x'\npython scripts/gone.py") == [
        *("tests", "LOCK", "tests/gone", "scripts/gone.py")
    ]


@pytest.mark.parametrize("file", WORKFLOWS, ids=lambda file: file.name)
def test_workflows_have_limits_and_few_rights(file: Path) -> None:
    workflow = yaml.safe_load(file.read_text(encoding="utf-8"))
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in jobs(file).items():
        assert job["timeout-minutes"] <= 60, name
        for step in job["steps"]:
            # Text of a pull request in a shell line could run there: it comes by environment.
            assert "${{ github." not in step.get("run", ""), name
            if step.get("uses", "").startswith("actions/checkout"):
                assert step["with"]["persist-credentials"] is False, name


def test_the_matrix_has_every_supported_python() -> None:
    matrix = jobs(GITHUB / "workflows/ci.yml")["test"]["strategy"]["matrix"]
    script = (ROOT / "scripts/test-all-pythons").read_text(encoding="utf-8")
    supported = re.search(r"PYTHONS:-([\d. ]+)\}", script)
    assert supported
    assert matrix["python"] == supported[1].split()


def test_servers_are_as_old_as_the_pages_allow() -> None:
    ci = jobs(GITHUB / "workflows/ci.yml")
    postgresql = (ROOT / "docs/operating/postgresql.md").read_text(encoding="utf-8")
    redis = (ROOT / "docs/operating/redis.md").read_text(encoding="utf-8")
    named = re.search(r"PostgreSQL (\d+) or newer", postgresql)
    assert named
    tested = [int(one["version"]) for one in ci["postgresql"]["strategy"]["matrix"]["include"]]
    assert min(tested) >= int(named[1])
    image = ci["redis"]["strategy"]["matrix"]["image"][0]
    assert f"Redis {image.partition(':')[2]} or newer" in redis
