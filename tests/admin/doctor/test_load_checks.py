"""``windlass doctor`` tells when a storage is full: by its waits and the sizes of batches."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from windlass import Windlass
from windlass._admin.doctor.finding import Finding
from windlass._admin.doctor.load_checks import check_load
from windlass._admin.doctor.work_checks import LiveWorkers
from windlass._app.parts import parts_of
from windlass._core.stats.gauges import STORAGE, GaugeRow, first_gauges
from windlass._storage.protocol.workers import WorkerRecord, WorkerState
from windlass._worker.liveness.gauges import StorageMeter
from windlass._worker.liveness.leader import Leader
from windlass.testing._clock import START
from windlass.testing.conformance.steps import a_worker


def found(*minutes: Mapping[str, float], slots: int = 10) -> dict[str, Finding]:
    """Check the load, by name, with one live worker."""
    rows = [GaugeRow(START, STORAGE, first_gauges(values)) for values in minutes]
    start = msgspec.structs.replace(a_worker(), slots=slots)
    record = WorkerRecord(start=start, state=WorkerState.LIVE, started_at=START, beat_at=START)
    return {one.name: one for one in check_load(rows, LiveWorkers([record], []))}


def test_short_waits_are_told_and_are_in_order() -> None:
    told = found(
        {"write_p95": 0.004, "read_p95": 0.001, "jobs_per_claim": 1.5, "jobs_per_finish": 1.0},
        {"write_p95": 0.008, "read_p95": 0.001, "jobs_per_claim": 2.5, "jobs_per_finish": 2.0},
    )
    assert {one.level for one in told.values()} == {"ok"}
    assert "writes within 6 ms, in the worst minute within 8 ms" in told["waits"].text
    assert "A claim took 2.0 jobs and a write ended 1.5 jobs on average" in told["batches"].text
    assert "10 slots" in told["batches"].text


@pytest.mark.parametrize(("seconds", "level"), [(0.24, "ok"), (0.25, "warn"), (2.0, "bad")])
def test_long_waits_are_a_warning_and_very_long_ones_bad(seconds: float, level: str) -> None:
    assert found({"write_p95": seconds})["waits"].level == level


def test_long_waits_with_large_batches_mean_a_full_storage() -> None:
    assert "is full" in found({"write_p95": 1.0, "jobs_per_claim": 8.0})["waits"].fix
    assert "not full" in found({"write_p95": 1.0, "jobs_per_claim": 1.2})["waits"].fix
    assert "mean that it is full" in found({"write_p95": 1.0})["waits"].fix


@pytest.mark.parametrize(
    ("seconds", "jobs", "meaning"),
    [
        (0.01, 1.2, "has room"),
        (0.01, 9.0, "workers are the limit, not the storage"),
        (1.0, 1.2, "slow, not full"),
        (1.0, 9.0, "is full: more workers bring little"),
    ],
)
def test_waits_and_batches_together_say_what_is_the_limit(
    seconds: float, jobs: float, meaning: str
) -> None:
    assert meaning in found({"write_p95": seconds, "jobs_per_claim": jobs})["batches"].text


@pytest.mark.parametrize(("slots", "beside"), [(1, "1 slot for"), (2, "2 slots"), (9, "9 slots")])
def test_with_few_slots_no_batch_means_a_full_storage(slots: int, beside: str) -> None:
    told = found({"write_p95": 0.4, "jobs_per_claim": float(slots)}, slots=slots)
    assert told["waits"].level == "warn"
    assert "do not tell whether the storage is full" in told["waits"].fix
    assert f"with {beside}" in told["batches"].text
    assert "do not tell whether the storage is full" in told["batches"].text


def test_without_measurements_nothing_is_told() -> None:
    assert found() == {}
    assert found({"size": 4096.0}) == {}


class Leads(Leader):
    """A leader that leads."""

    def __init__(self) -> None:
        self.leading = True


def shop(url: str) -> Windlass:
    """Return an app with a task that does nothing."""
    app = Windlass(url)

    @app.task(name="add")
    async def add() -> None: ...

    return app


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def url(request: pytest.FixtureRequest) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{request.getfixturevalue('tmp_path')}/jobs.db"
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found


async def test_the_doctor_tells_what_the_leading_worker_has_measured(url: str) -> None:
    app = shop(url)
    async with app:
        async with app.worker(slots=4):
            for job in await app.enqueue_many([app.call("add") for _ in range(8)]):
                await job.result(timeout=30)
        storage = await parts_of(app).storage()
        meter = StorageMeter(storage, Leads())
        await meter.step()
        assert 1 <= meter.values["jobs_per_claim"] <= 4
        assert 1 <= meter.values["jobs_per_finish"] <= 8
        await storage.workers.register(a_worker("leader"))
        await storage.workers.beat("leader", readings={STORAGE: meter.values})
        told = {one.name: one for one in await app.admin.doctor.check()}
        assert told["waits"].level == "ok"
        assert "A claim took" in told["batches"].text
        await meter.step()
        assert "jobs_per_claim" not in meter.values  # no claim since the last look
