"""Stores that keep ended jobs too long, too short, or in the wrong queue."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from tests.storage.mutants.table import fails
from windlass._core.job.state import State
from windlass._storage.memory.io.database import MemoryDatabase
from windlass._storage.memory.io.rows import JobRow
from windlass._storage.memory.maintenance import MemoryMaintenance
from windlass.errors import JobNotFound
from windlass.testing.conformance import (
    RetentionConformance,
)


class _Pruning(MemoryMaintenance):
    """Another way to prune, by another look at what is set apart."""

    async def prune(
        self,
        *,
        state: State,
        older_than: timedelta,
        limit: int,
        apart: Mapping[str, timedelta] | None = None,
    ) -> int:
        return await super().prune(
            state=state, older_than=older_than, limit=limit, apart=self.seen(apart, older_than)
        )

    def seen(
        self, apart: Mapping[str, timedelta] | None, older_than: timedelta
    ) -> Mapping[str, timedelta] | None:
        raise AssertionError("say how")


@fails(RetentionConformance.test_a_queue_set_apart_may_keep_longer_than_the_others)
class SetsNothingApart(_Pruning):
    """All queues keep what they have for the same time."""

    def seen(
        self, apart: Mapping[str, timedelta] | None, older_than: timedelta
    ) -> Mapping[str, timedelta] | None:
        return None


@fails(RetentionConformance.test_a_queue_set_apart_may_keep_shorter_than_the_others)
class KeepsLonger(_Pruning):
    """A queue set apart keeps at least what the others keep."""

    def seen(
        self, apart: Mapping[str, timedelta] | None, older_than: timedelta
    ) -> Mapping[str, timedelta] | None:
        return apart and {queue: max(age, older_than) for queue, age in apart.items()}


@fails(RetentionConformance.test_the_others_may_keep_nothing)
class KeepsShorter(_Pruning):
    """A queue set apart keeps at most what the others keep."""

    def seen(
        self, apart: Mapping[str, timedelta] | None, older_than: timedelta
    ) -> Mapping[str, timedelta] | None:
        return apart and {queue: min(age, older_than) for queue, age in apart.items()}


@fails(RetentionConformance.test_a_queue_that_keeps_nothing_loses_all_that_ended_before_now)
class ZeroIsTheOthers(_Pruning):
    """To keep nothing is taken for having said nothing."""

    def seen(
        self, apart: Mapping[str, timedelta] | None, older_than: timedelta
    ) -> Mapping[str, timedelta] | None:
        return apart and {queue: age or older_than for queue, age in apart.items()}


@fails(
    RetentionConformance.test_unknown_queues_may_be_set_apart,
    RetentionConformance.test_each_queue_set_apart_has_its_own_age,
)
class KnowsItsQueues(_Pruning):
    """A queue without jobs cannot be set apart."""

    def seen(
        self, apart: Mapping[str, timedelta] | None, older_than: timedelta
    ) -> Mapping[str, timedelta] | None:
        known = {row.asked.queue for row in self._db.rows.values()}
        for queue in apart or ():
            if known and queue not in known:
                raise JobNotFound(queue)
        return apart


@fails(RetentionConformance.test_none_set_apart_is_as_if_nothing_was_said)
class NoneApartIsAll(_Pruning):
    """An empty list of queues is taken for one of all of them."""

    def seen(
        self, apart: Mapping[str, timedelta] | None, older_than: timedelta
    ) -> Mapping[str, timedelta] | None:
        everything = {row.asked.queue: timedelta(days=999) for row in self._db.rows.values()}
        return everything if apart == {} else apart


@fails(RetentionConformance.test_the_limit_counts_all_queues_together)
class BitesByQueue(MemoryMaintenance):
    """Every queue is pruned in bites of its own."""

    async def prune(
        self,
        *,
        state: State,
        older_than: timedelta,
        limit: int,
        apart: Mapping[str, timedelta] | None = None,
    ) -> int:
        base = super().prune
        total = await base(state=state, older_than=older_than, limit=limit, apart=apart)
        for _ in apart or ():
            total += await base(state=state, older_than=older_than, limit=limit, apart=apart)
        return total


@fails(RetentionConformance.test_kept_jobs_never_stop_the_deletion_of_later_ones)
class KeptJobsStop(MemoryMaintenance):
    """Jobs that are kept longer stand in the way of those behind them."""

    async def prune(
        self,
        *,
        state: State,
        older_than: timedelta,
        limit: int,
        apart: Mapping[str, timedelta] | None = None,
    ) -> int:
        ended = [row for row in self._db.rows.values() if row.state is state][:limit]
        hidden = {s: r for s, r in self._db.rows.items() if not any(r is row for row in ended)}
        self._db.rows = {row.seq: row for row in ended}
        pruned = await super().prune(state=state, older_than=older_than, limit=limit, apart=apart)
        self._db.rows = dict(sorted({**self._db.rows, **hidden}.items()))
        return pruned


@fails(RetentionConformance.test_only_the_state_that_was_asked_for_is_pruned)
class PrunesWhateverEnded(MemoryMaintenance):
    """The state is not looked at."""

    async def prune(
        self,
        *,
        state: State,
        older_than: timedelta,
        limit: int,
        apart: Mapping[str, timedelta] | None = None,
    ) -> int:
        base = super().prune
        ends = [State.SUCCEEDED, State.FAILED, State.CANCELLED, State.DISCARDED]
        return sum(
            [await base(state=end, older_than=older_than, limit=limit, apart=apart) for end in ends]
        )


@fails(RetentionConformance.test_waiting_and_running_jobs_are_always_kept)
class PrunesWhatWaits(MemoryMaintenance):
    """Old waiting jobs are pruned, too."""

    async def prune(
        self,
        *,
        state: State,
        older_than: timedelta,
        limit: int,
        apart: Mapping[str, timedelta] | None = None,
    ) -> int:
        if state is State.WAITING:
            for row in self._db.rows.values():
                row.finished_at = row.finished_at or row.created_at
        return await super().prune(state=state, older_than=older_than, limit=limit, apart=apart)


@fails(RetentionConformance.test_history_and_key_go_with_the_job)
class PrunedJobsHoldKeys(MemoryDatabase):
    """A job that was deleted still holds its key."""

    def free_key(self, row: JobRow) -> None:
        pass
