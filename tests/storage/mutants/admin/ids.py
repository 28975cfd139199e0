"""Stores that take one id for another."""

from __future__ import annotations

from collections.abc import Sequence

from tests.storage.mutants.table import fails
from windlass._core.job.job import JobId
from windlass._storage.memory.admin.actions import MemoryActions
from windlass._storage.memory.admin.admin import MemoryAdmin
from windlass._storage.protocol.actions import ActionResult, AuditNote, JobAction
from windlass.testing.conformance import ShortIdConformance


@fails(ShortIdConformance.test_an_id_of_any_maker_and_time_is_found_by_both_its_ends)
class LooksWhereItWasMade(MemoryAdmin):
    """Only ids that begin with the time of their job are found."""

    def _range(self, first: str, after: str | None) -> list[JobId]:
        rows = self._db.by_id
        return [
            job
            for job in super()._range(first, after)
            if f"{int(rows[job].created_at.timestamp() * 1000):012x}"[:8] == job[:8]
        ]


@fails(ShortIdConformance.test_an_id_that_fits_at_one_end_is_not_meant)
class ForgetsTheEnd(MemoryAdmin):
    """The first digits are enough."""

    def _ends(self, job: JobId, last: str) -> bool:
        return True


@fails(ShortIdConformance.test_by_its_end_alone_the_newest_comes_first)
class GoesById(MemoryAdmin):
    """What comes first has the lowest id."""

    def _newest(self, after: str | None) -> list[JobId]:
        return sorted(super()._newest(after))


@fails(ShortIdConformance.test_a_job_that_is_gone_is_not_found_by_its_ends)
class KeepsWhatIsDeleted(MemoryActions):
    """Deletes nothing, and says it had."""

    async def order(
        self, order: JobAction, ids: Sequence[JobId], note: AuditNote
    ) -> Sequence[ActionResult]:
        return [ActionResult.DONE for _ in ids]
