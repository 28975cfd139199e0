"""Stores that count the jobs of tasks wrongly."""

from __future__ import annotations

from msgspec.structs import replace

from tests.storage.mutants.table import fails
from windlass._core.job.state import State
from windlass._storage.memory.admin.admin import MemoryAdmin
from windlass._storage.protocol.admin import TaskCounts, TaskLook
from windlass.testing.conformance import TaskCountConformance


@fails(TaskCountConformance.test_jobs_are_counted_by_task_wherever_they_wait)
class LeavesOutScheduledJobs(MemoryAdmin):
    """A job that is due later does not count as waiting."""

    async def tasks(self, *, look: int = 5_000) -> TaskLook:
        found = await super().tasks(look=look)
        return replace(found, counts=[one for one in found.counts if one.task != "later"])


@fails(TaskCountConformance.test_tasks_whose_jobs_have_all_ended_are_left_out)
class ListsEndedJobs(MemoryAdmin):
    """Tasks of ended jobs are listed, too."""

    async def tasks(self, *, look: int = 5_000) -> TaskLook:
        rows = self._db.rows.values()
        ended = {row.asked.task for row in rows if row.state is State.SUCCEEDED}
        found = await super().tasks(look=look)
        return replace(found, counts=[*found.counts, *(TaskCounts(task=task) for task in ended)])


@fails(TaskCountConformance.test_a_look_that_misses_waiting_jobs_says_so)
class AlwaysComplete(MemoryAdmin):
    """A look that missed jobs says that it saw all."""

    async def tasks(self, *, look: int = 5_000) -> TaskLook:
        return replace(await super().tasks(look=look), complete=True)
