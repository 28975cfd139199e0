"""The parts of the interface, each a function that reads its entries from the program."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence

from tests.architecture.interface import chosen, served, stored, typed, watched
from tests.architecture.source import ROOT

MEANT = "Meant? Then write the list anew: python -m tests.architecture.interface"
LIST = ROOT / "tests" / "architecture" / "interface.json"

PARTS: Mapping[str, Callable[[], Iterable[str]]] = {
    "API addresses": served.addresses,
    "API names": served.openapi_names,
    "API requests": served.openapi_requests,
    "API responses": served.openapi_responses,
    "JSON answers": typed.json_answers,
    "JSON log fields": watched.log_fields,
    "OpenTelemetry metrics": watched.otel_metrics,
    "OpenTelemetry spans": watched.otel_spans,
    "PostgreSQL": stored.postgres,
    "Prometheus metrics": watched.prometheus,
    "Redis": stored.redis,
    "SQLite": stored.sqlite,
    "URLs": chosen.urls,
    "audit records": stored.audit,
    "codes in answers": typed.answer_codes,
    "commands": typed.command_line,
    "dashboard pages": served.pages,
    "entry points": chosen.entry_points,
    "errors": served.error_codes,
    "events": watched.events,
    "exit codes": typed.exit_codes,
    "loggers": watched.loggers,
    "plugins": stored.plugins,
    "settings": chosen.settings,
    "states and verbs": stored.states,
}


@functools.cache
def entries(part: str) -> Sequence[str]:
    """The entries of one part as the program has them now."""
    return sorted(set(PARTS[part]()))


def listed() -> Mapping[str, Sequence[str]]:
    """The entries of all parts as the list has them."""
    found: Mapping[str, Sequence[str]] = json.loads(LIST.read_text(encoding="utf-8"))
    return found


def differences(before: Iterable[str], now: Iterable[str]) -> Sequence[str]:
    """One line for each entry that was removed or added; a renamed one is both."""
    old, new = set(before), set(now)
    marked = [(entry, "removed") for entry in old - new] + [(entry, "added") for entry in new - old]
    return [f"{what:<8} {entry}" for entry, what in sorted(marked)]


def check(part: str, before: Iterable[str]) -> None:
    """Fail if the program has more or less of this part than ``before``."""
    found = differences(before, entries(part))
    assert not found, "\n".join([f"{part}: users see these changes.", *found, MEANT])


def write() -> None:
    """Make the list say what the program has now."""
    text = json.dumps({part: entries(part) for part in PARTS}, indent=0, ensure_ascii=False)
    LIST.write_text(f"{text}\n", encoding="utf-8")
