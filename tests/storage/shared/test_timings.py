"""Every operation of an opened storage is timed, as a read or a write, however it ends."""

from __future__ import annotations

import inspect
from datetime import timedelta
from typing import Any

import pytest

from windlass import Windlass, storage
from windlass._app.parts import parts_of
from windlass._storage import timings as timing
from windlass._storage.protocol.admin import AdminStore
from windlass._storage.protocol.jobs import JobStore
from windlass._storage.protocol.storage import Storage
from windlass._storage.protocol.workers import WorkerStore
from windlass._storage.timings import (
    READ_METHODS,
    TIMED_STORES,
    Timings,
    timings_of,
    without_timings,
)
from windlass.errors import LimitUnknown

WRITES = {
    *("insert", "claim", "apply", "report", "cancel", "register", "beat", "bury", "bury_overdue"),
    "assign",
    *("leave", "lead", "resign", "define", "drain", "reset", "promote", "expire", "prune"),
    *("prune_rollups", "compact_rollups", "prune_audits", "prune_events", "prune_workers", "tidy"),
    *("change", "warm", "write", "declare", "pause", "resume", "order"),
    *("append_logs", "append_events", "restore"),
}


def operations(protocol: type) -> set[str]:
    return {name for name, value in vars(protocol).items() if inspect.iscoroutinefunction(value)}


def stores() -> dict[str, type]:
    hints = {
        name: inspect.get_annotations(getter, eval_str=True, locals=vars(storage))["return"]
        for kind in Storage.__mro__
        for name, value in vars(kind).items()
        if isinstance(value, property) and (getter := value.fget) is not None
    }
    return {name: kind for name, kind in hints.items() if inspect.isclass(kind)}


def test_every_operation_of_the_contract_is_known_to_read_or_to_write() -> None:
    found = {name: operations(kind) for name, kind in stores().items() if operations(kind)}
    assert set(found) == TIMED_STORES
    named = set().union(*found.values()) | operations(Storage) - {"close"}
    assert named == READ_METHODS | WRITES
    assert not READ_METHODS & WRITES
    assert {"claim", "find", "beat"} <= operations(JobStore) | operations(AdminStore) | operations(
        WorkerStore
    )


async def test_reads_writes_and_failures_are_counted_and_drained_at_once() -> None:
    async with Windlass("memory://") as app:

        @app.task(name="job")
        async def job() -> None: ...

        storage = await parts_of(app).storage()
        timings = timings_of(storage)
        assert timings is not None
        timings.drain()
        made = await job.enqueue()
        await storage.admin.get([made.id])
        await storage.now()
        with pytest.raises(LimitUnknown):
            await storage.limits.reset("nobody")
        pulse = storage.workers.pulse()
        await pulse.beat("nobody")
        await pulse.close()

        seen = timings.spread()
        assert (seen["read"].count, seen["write"].count) == (2, 3)
        assert (seen["read"].failed, seen["write"].failed) == (0, 1)
        taken = timings.drain()
        assert (len(taken["read"].seconds), len(taken["write"].seconds)) == (2, 3)
        assert taken["write"].failed == 1
        assert taken["read"].dropped == 0
        assert timings.drain()["write"].seconds == []
        assert timings.spread() == {}
        assert without_timings(storage) is not storage
        assert timings_of(without_timings(storage)) is None


async def test_only_the_last_samples_are_kept_and_the_rest_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timing, "_MOST", 100)
    now = [0.0]
    monkeypatch.setattr(timing, "monotonic", lambda: now[0])

    async def operation(seconds: float) -> None:
        now[0] += seconds

    timings = Timings()
    measured: Any = timings.around(operation, reads=True)
    for number in range(150):
        await measured(number + 1)
    spread = timings.spread()["read"]
    assert (spread.count, spread.max) == (150, timedelta(seconds=150))
    assert (spread.p50, spread.p95, spread.p99) == tuple(
        timedelta(seconds=second) for second in (100, 145, 149)
    )
    taken = timings.drain()["read"]
    assert (taken.dropped, len(taken.seconds), taken.seconds[0]) == (50, 100, 51.0)


async def test_the_admin_tells_them() -> None:
    async with Windlass("memory://") as app:
        report = await app.admin.storage()
        assert report.timings["read"].count >= 2
