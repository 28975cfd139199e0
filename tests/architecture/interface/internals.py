"""Everything that the list of the interface takes from modules that users do not import.

When a module or a class moves, change its line here, and nothing else: the list stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from windlass import Windlass
from windlass._app.parts import parts_of
from windlass._cli import exit_codes as codes
from windlass._cli.bench.measurement import BenchResult
from windlass._cli.worker_process.messages import WorkerBanner
from windlass._core.job.event import Event
from windlass._core.job.state import TRANSITIONS, Shown, State, Verb
from windlass._observe.log import JsonFormatter
from windlass._observe.otel_tracing import server_of
from windlass._storage.postgres.io.url import parse_url
from windlass._storage.redis.io import layout
from windlass._storage.shared.memory_url import MemoryBounds

__all__ = [
    "MEMORY_OPTIONS",
    "TRANSITIONS",
    "BenchResult",
    "Event",
    "JsonFormatter",
    "Shown",
    "State",
    "Verb",
    "codes",
    "layout",
    "parse_url",
    "server_of",
    "started_fields",
]

MEMORY_OPTIONS = MemoryBounds.__struct_fields__


def started_fields() -> Iterable[str]:
    """What a worker's first log line holds beside the fields of all lines."""
    settings = parts_of(Windlass("memory://")).workers.settings()
    start = WorkerBanner(
        target="",
        worker="",
        pid=0,
        storage="",
        settings=settings,
        grace=timedelta(0),
        tasks=(),
        elsewhere={},
        loop="",
    )
    return start.fields()
