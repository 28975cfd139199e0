"""Files in `deploy` use commands, options, settings and metrics that exist."""

from __future__ import annotations

import configparser
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.architecture.repository.commands import problems_of
from tests.architecture.repository.test_monitoring import problems as metric_problems
from tests.architecture.source import ROOT
from windlass._settings.load import load_settings
from windlass._settings.settings import Settings

DEPLOY = ROOT / "deploy"
FILES = sorted(file for file in DEPLOY.rglob("*") if file.is_file())
UNITS = sorted(DEPLOY.glob("systemd/*.service"))
COMPOSE = yaml.safe_load((DEPLOY / "docker/compose.yml").read_text(encoding="utf-8"))
DOCKERFILE = (DEPLOY / "docker/Dockerfile").read_text(encoding="utf-8")
TO_END = 30
"""Seconds that a worker may take after its grace, before it kills itself."""


def unit(file: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(file)
    return parser


def manifests() -> Iterator[dict[str, Any]]:
    for file in sorted(DEPLOY.glob("kubernetes/*.yaml")):
        yield from yaml.safe_load_all(file.read_text(encoding="utf-8"))


def pods() -> Iterator[dict[str, Any]]:
    for manifest in manifests():
        if "template" in manifest["spec"]:
            yield manifest["spec"]["template"]["spec"]


def commands() -> Iterator[str]:
    """Every command line of ours in `deploy`."""
    for file in UNITS:
        yield re.sub(r"^\S*/", "", unit(file)["Service"]["ExecStart"])
    for service in COMPOSE["services"].values():
        if "command" in service:
            yield " ".join(["windlass", *service["command"]])
    entry = re.search(r"^ENTRYPOINT (.*)$", DOCKERFILE, re.MULTILINE)
    default = re.search(r"^CMD (.*)$", DOCKERFILE, re.MULTILINE)
    assert entry
    assert default
    yield " ".join([*json.loads(entry[1]), *json.loads(default[1])])
    for pod in pods():
        yield from (" ".join(["windlass", *one["args"]]) for one in pod["containers"])
    for line in (DEPLOY / "procfile/Procfile").read_text(encoding="utf-8").splitlines():
        yield line.partition(": ")[2]
    supervisor = unit(DEPLOY / "supervisor/windlass.conf")
    yield re.sub(r"^\S*/", "", supervisor["program:windlass-worker"]["command"])


def test_every_command_and_option_exists() -> None:
    lines = list(commands())
    assert len(lines) == 13
    assert [problem for line in lines for problem in problems_of(line)] == []


@pytest.mark.parametrize(
    "line", ["windlass work shop:app", "windlass worker shop:app --helth-port 1", "windlass db up"]
)
def test_a_command_that_does_not_exist_is_found(line: str) -> None:
    assert len(problems_of(line)) == 1


def test_workers_have_time_to_end() -> None:
    grace = load_settings("memory://", {}, environment={}).grace.total_seconds()
    waits = [
        float(unit(DEPLOY / "systemd/windlass-worker.service")["Service"]["TimeoutStopSec"]),
        float(COMPOSE["services"]["worker"]["stop_grace_period"].rstrip("s")),
        float(unit(DEPLOY / "supervisor/windlass.conf")["program:windlass-worker"]["stopwaitsecs"]),
        *(float(one["terminationGracePeriodSeconds"]) for one in pods() if "volumes" in one),
    ]
    assert len(waits) == 4
    assert all(wait > grace + TO_END for wait in waits)


def test_environment_variables_are_settings() -> None:
    known = {f"WINDLASS_{name.upper()}" for name in Settings.__struct_fields__}
    named = {
        (file.name, name)
        for file in FILES
        for name in re.findall(r"\bWINDLASS_[A-Z_]+", file.read_text(encoding="utf-8"))
    }
    assert {name for _, name in named} >= {"WINDLASS_URL", "WINDLASS_MIGRATE"}
    assert [pair for pair in sorted(named) if pair[1] not in known] == []


def test_probes_ask_for_pages_that_the_worker_serves() -> None:
    source = (ROOT / "src/windlass/_cli/worker_process/health.py").read_text("utf-8")
    (container,) = next(pod for pod in pods() if "volumes" in pod)["containers"]
    paths = [container[f"{probe}Probe"]["httpGet"]["path"] for probe in ("startup", "liveness")]
    assert paths == ["/livez", "/livez"], "a worker that waits for its storage must not be killed"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert all(f'"{path}"' in source or f"'{path}'" in source for path in ("/livez", "/readyz"))
    ports = {arg for arg in container["args"] if arg.startswith(("--health-port", "--metrics"))}
    assert ports == {"--health-port=8080", "--metrics-port=8080"}


def test_containers_need_no_rights() -> None:
    for pod in pods():
        assert pod["securityContext"]["runAsNonRoot"] is True
        for container in pod["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    for name, service in COMPOSE["services"].items():
        assert name == "postgres" or service["read_only"] is True


def test_autoscaling_asks_for_metrics_that_exist() -> None:
    scaled = next(one for one in manifests() if one["kind"] == "ScaledObject")
    queries = [trigger["metadata"]["query"] for trigger in scaled["spec"]["triggers"]]
    text = (DEPLOY / "kubernetes/autoscale-hpa.yaml").read_text(encoding="utf-8")
    queries += re.findall(r"(?:name: |Query: ')(windlass_\w+)", text)
    assert len(queries) == 4
    assert [problem for query in queries for problem in metric_problems(query)] == []


def test_the_production_checklist_names_checks_of_the_doctor() -> None:
    production = (ROOT / "docs/operating/production.md").read_text(encoding="utf-8")
    doctor = (ROOT / "docs/operating/doctor.md").read_text(encoding="utf-8")
    table = production.partition("| Do |")[2].partition("\n\n")[0]
    listed = set(re.findall(r"`(\w+)`", table))
    known = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| `[^|]*\|", doctor, re.MULTILINE))))
    quoted = "".join(
        file.read_text(encoding="utf-8")
        for file in (ROOT / "src/windlass").rglob("*.py")
        if "doctor" in file.parts or "check_health" in file.read_text(encoding="utf-8")
    )
    assert len(listed) > 25
    assert listed <= known
    assert [name for name in sorted(listed) if f'"{name}"' not in quoted] == []


def test_every_file_is_named_on_a_page() -> None:
    pages = "\n".join(
        page.read_text(encoding="utf-8") for page in (ROOT / "docs/operating").glob("*.md")
    )
    hidden = {"README.md"}
    assert [f.name for f in FILES if f.name not in hidden and f.name not in pages] == []
