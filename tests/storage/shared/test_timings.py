"""Every backend times its operations, as reads or writes, however they end."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from windlass import Windlass
from windlass._storage import timings as timing
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._storage.protocol.storage import Storage
from windlass._storage.redis import RedisStorage
from windlass._storage.timings import Durations, Timings, timings_of
from windlass.errors import LimitUnknown
from windlass.testing.conformance.steps import a_job, enlist, started, succeeded

Operation = Callable[[Storage], Awaitable[object]]


def counts(storage: Storage) -> tuple[int, int, int]:
    """Reads, writes and failures so far."""
    timings = timings_of(storage)
    assert timings is not None
    spread = timings.spread()
    return (
        spread["read"].count if "read" in spread else 0,
        spread["write"].count if "write" in spread else 0,
        sum(kind.failed for kind in spread.values()),
    )


READS: dict[str, Operation] = {
    "jobs.outlook": lambda storage: storage.jobs.outlook(["default"]),
    "jobs.active": lambda storage: storage.jobs.active(["default"]),
    "workers.live": lambda storage: storage.workers.live(),
    "workers.cancel_requests": lambda storage: storage.workers.cancel_requests("w1"),
    "limits.specs": lambda storage: storage.limits.specs(),
    "queues.queues": lambda storage: storage.queues.queues(),
    "schedules.rows": lambda storage: storage.schedules.rows(),
    "admin.find": lambda storage: storage.admin.find(JobFilter(), limit=1),
    "admin.counts": lambda storage: storage.admin.counts(),
    "orders.audits": lambda storage: storage.orders.audits(limit=1),
    "health": lambda storage: storage.health(),
}


async def _beat(storage: Storage) -> None:
    pulse = storage.workers.pulse()
    await pulse.beat("w1")
    await pulse.close()


WRITES: dict[str, Operation] = {
    "jobs.insert": lambda storage: storage.jobs.insert([a_job()]),
    "jobs.claim": lambda storage: storage.jobs.claim("w1", [], total=0),
    "workers.beat": _beat,
    "leader.lead": lambda storage: storage.leader.lead("leader", "w1", timedelta(seconds=1)),
    "admin.pause": lambda storage: storage.admin.pause("default"),
    "admin.secret": lambda storage: storage.admin.secret("new"),
}


@pytest.mark.parametrize("operation", READS)
async def test_an_operation_that_changes_nothing_is_a_read(
    storage: Storage, operation: str
) -> None:
    await enlist(storage, "w1")
    reads, writes, _ = counts(storage)
    await READS[operation](storage)
    assert counts(storage)[0] > reads
    assert counts(storage)[1:] == (writes, 0)


@pytest.mark.parametrize("operation", WRITES)
async def test_an_operation_that_may_change_something_is_a_write(
    storage: Storage, operation: str
) -> None:
    await enlist(storage, "w1")
    _, writes, _ = counts(storage)
    await WRITES[operation](storage)
    assert counts(storage)[1] > writes


async def test_finishing_a_job_is_a_write(storage: Storage) -> None:
    await enlist(storage, "w1")
    job = await started(storage)
    _, writes, _ = counts(storage)
    await succeeded(storage, job)
    assert counts(storage)[1] == writes + 1


async def test_a_failure_is_timed_too(storage: Storage) -> None:
    if isinstance(storage, RedisStorage):
        pytest.skip("the server answers, and the answer is a refusal")
    _, writes, _ = counts(storage)
    with pytest.raises(LimitUnknown):
        await storage.limits.reset("nobody")
    assert counts(storage)[1:] == (writes + 1, 1)


async def test_only_the_last_durations_are_kept_and_all_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timing, "_MOST", 100)
    durations = Durations()
    assert durations.spread() is None
    for number in range(150):
        durations.add(number + 1, failed=number == 0)
    spread = durations.spread()
    assert spread is not None
    assert (spread.count, spread.failed, spread.max) == (150, 1, timedelta(seconds=150))
    assert (spread.p50, spread.p95, spread.p99) == tuple(
        timedelta(seconds=second) for second in (100, 145, 149)
    )


async def test_async_calls_are_measured_from_start_to_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(timing, "monotonic", lambda: now[0])

    async def operation(seconds: float) -> float:
        if math.isinf(seconds):
            raise ValueError("planted")
        now[0] += seconds
        return seconds

    timings = Timings()
    assert await timings.measure(operation(3.0), reads=True) == 3.0
    assert timings.spread()["read"].max == timedelta(seconds=3)
    assert "write" not in timings.spread()
    with pytest.raises(ValueError, match="planted"):
        await timings.measure(operation(math.inf), reads=False)
    assert timings.spread()["write"].failed == 1


async def test_all_storages_of_an_app_share_their_timings_and_the_admin_shows_them() -> None:
    async with Windlass("memory://") as app:
        assert (await app.admin.storage.report()).timings["read"].count >= 1
        await app.close()
        assert (await app.admin.storage.report()).timings["read"].count >= 2
