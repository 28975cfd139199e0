"""Stores that are wrong about whether there is anything to do."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from tests.storage.mutants.table import fails
from windlass._storage.memory.io.rows import Lane
from windlass._storage.memory.jobs.jobs import MemoryJobs
from windlass.testing.conformance import ActivityConformance


@fails(ActivityConformance.test_a_paused_queue_is_not_claimable)
class PausedIsClaimable(MemoryJobs):
    """A paused queue is asked like any other."""

    def _claimable(self, queue: str, now: datetime) -> bool:
        return self._has_due(queue, now)


@fails(ActivityConformance.test_a_job_to_run_alone_is_claimable_only_if_its_limits_admit_it)
class RefusedIsClaimable(MemoryJobs):
    """What its limits refuse is asked for all the same."""

    def _claimable(self, queue: str, now: datetime) -> bool:
        return not self._db.queues[queue].paused and self._has_due(queue, now)


@fails(ActivityConformance.test_a_due_job_is_activity_in_its_own_queue)
class AnyQueueIsActive(MemoryJobs):
    """What is due in one queue is activity in all."""

    async def active(self, queues: Sequence[str]) -> bool:
        return bool(queues) and await super().active([*self._db.ready])


@fails(ActivityConformance.test_a_running_job_is_activity_until_it_ends)
class RunningIsIdle(MemoryJobs):
    """What runs is no activity."""

    async def active(self, queues: Sequence[str]) -> bool:
        with self._db.moment() as now:
            return any(self._has_due(queue, now) for queue in queues)


@fails(ActivityConformance.test_a_later_job_is_activity_from_when_it_is_due)
class ActiveWhenPromoted(MemoryJobs):
    """Jobs that fell due are no activity before somebody promotes them."""

    def _has_due(self, queue: str, now: datetime) -> bool:
        return any(self._db.head(lane) for lane in self._db.ready[queue].values())


@fails(ActivityConformance.test_a_job_that_waits_for_its_limit_is_activity)
class LimitedJobsAreIdle(MemoryJobs):
    """A job with limits is no activity."""

    def _has_due(self, queue: str, now: datetime) -> bool:
        lanes = self._db.ready[queue]
        plain = {lane: heap for lane, heap in lanes.items() if lane == Lane(solo=False, limits="")}
        return any(self._db.head(heap) for heap in plain.values())


@fails(ActivityConformance.test_a_paused_queue_is_active_only_while_something_runs)
class PausedIsActive(MemoryJobs):
    """Jobs of a paused queue are activity."""

    async def active(self, queues: Sequence[str]) -> bool:
        with self._db.moment() as now:
            due = any(self._has_due(queue, now) for queue in queues)
        return due or await super().active(queues)
