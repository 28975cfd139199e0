"""The Grafana dashboard and the Prometheus alerts ask only for metrics and labels that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client import CollectorRegistry

from tests.architecture.repository.commands import problems_of
from tests.architecture.source import ROOT
from windlass import Windlass

DASHBOARD = json.loads((ROOT / "deploy/grafana/dashboard.json").read_text(encoding="utf-8"))
RULES = yaml.safe_load((ROOT / "deploy/prometheus/rules.yml").read_text(encoding="utf-8"))
ALERTS: list[dict[str, Any]] = [rule for group in RULES["groups"] for rule in group["rules"]]
SELECTOR = re.compile(r"(windlass_\w+)(?:\{([^}]*)\})?")


def dashboard_queries() -> Iterator[str]:
    for panel in DASHBOARD["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))


def variable_queries() -> Iterator[tuple[str, str]]:
    """The metric and the label of each variable."""
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            found = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"])
            assert found, variable["name"]
            yield found[1], found[2]


QUERIES = sorted({*dashboard_queries(), *(alert["expr"] for alert in ALERTS)})


def exposed() -> Mapping[str, set[str]]:
    """Every series that an app shows to Prometheus, and its labels."""
    app, registry = Windlass("memory://"), CollectorRegistry()

    @app.task(name="greet")
    async def greet() -> None: ...

    app.metrics(registry)
    found: dict[str, set[str]] = {}
    for collector in tuple(registry._collector_to_names):
        labels = set(getattr(collector, "_labelnames", ()))
        for name in registry._collector_to_names[collector]:
            found[name] = labels | ({"le"} if name.endswith("_bucket") else set())
        for family in getattr(collector, "describe", tuple)():
            found[family.name] = set(getattr(family, "_labelnames", ()))
    return found


EXPOSED = exposed()


def problems(query: str) -> list[str]:
    """What a query asks for that no app has."""
    found = []
    for name, matchers in SELECTOR.findall(query):
        if name not in EXPOSED:
            found.append(f"{name} does not exist")
            continue
        labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
        found += [f"{name} has no label {label}" for label in sorted(labels - EXPOSED[name])]
    return found


def plain(query: str) -> str:
    """The query as Prometheus gets it: without the variables of Grafana."""
    return query.replace("$__rate_interval", "5m").replace("$queue", ".*").replace("$task", ".*")


@pytest.mark.parametrize("query", QUERIES)
def test_queries_are_promql_and_ask_for_what_exists(query: str) -> None:
    promql_parser.parse(plain(query))
    assert problems(query) == []


def test_a_query_for_something_else_is_found() -> None:
    assert problems('rate(windlass_gone_total[5m]) + windlass_jobs{task="a"}') == [
        *("windlass_gone_total does not exist", "windlass_jobs has no label task")
    ]
    with pytest.raises(ValueError, match=r"\S"):
        promql_parser.parse("sum(windlass_jobs")


def test_every_variable_of_the_dashboard_has_values() -> None:
    assert [pair for pair in variable_queries() if pair[1] not in EXPOSED[pair[0]]] == []


def test_the_dashboard_shows_every_metric() -> None:
    shown = {name for query in dashboard_queries() for name, _ in SELECTOR.findall(query)}
    families = {re.sub(r"_(bucket|sum|count|created|total)$", "", name) for name in EXPOSED}
    unseen = families - {re.sub(r"_(bucket|total)$", "", name) for name in shown}
    assert unseen == {"windlass_jobs_ordered", "windlass_queue_max_running"}


def test_panels_have_their_own_ids_and_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_each_alert_says_what_to_run(alert: dict[str, Any]) -> None:
    notes = alert["annotations"]
    assert notes.keys() == {"summary", "description", "command"}
    assert problems_of(notes["command"]) == []
    assert "MODULE:APP" in notes["command"]
