"""The lists of a snapshot: their windows, and a store that does not answer."""

from __future__ import annotations

from datetime import timedelta

from tests.admin.fixtures import admin_of
from windlass._admin.overview import Snapshot
from windlass._core.job.outcome import GaveUp
from windlass._observe.bus import Bus
from windlass._settings.settings import load_settings
from windlass._storage.protocol.storage import Storage
from windlass._system.seams import Seams
from windlass.admin import Admin
from windlass.errors import StorageUnavailable
from windlass.testing import VirtualClock
from windlass.testing.conformance.steps import INSTANT, OOPS, happened, started, succeeded


async def test_a_job_is_listed_up_to_the_end_of_its_window(
    storage: Storage, clock: VirtualClock
) -> None:
    done, lost = await started(storage), await started(storage)
    await succeeded(storage, done)
    await happened(storage, lost, GaveUp(OOPS))

    async def listed(after: timedelta) -> tuple[int, int]:
        clock.advance(after)
        snapshot = await admin_of(storage).snapshot()
        return snapshot.completed.total, snapshot.failed.total

    assert await listed(timedelta(hours=24)) == (1, 1)
    assert await listed(INSTANT) == (0, 1)
    assert await listed(timedelta(days=6) - INSTANT) == (0, 1)
    assert await listed(INSTANT) == (0, 0)


async def test_a_store_that_cannot_be_read_gives_an_empty_snapshot() -> None:
    async def away() -> Storage:
        raise StorageUnavailable("The database does not answer.")

    admin = Admin(away, Bus(), load_settings("memory://", {}), Seams().new_job_ids)
    assert await admin.snapshot() == Snapshot()
    assert await admin.snapshot(page_size=3) == Snapshot(page_size=3)
