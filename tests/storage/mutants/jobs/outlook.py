"""Stores that tell the wrong instant to those who sleep until then."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec

from tests.storage.mutants.table import fails
from windlass._storage.memory.jobs.jobs import MemoryJobs
from windlass._storage.memory.limits.budgets import Usage
from windlass._storage.protocol.jobs import Outlook
from windlass.testing.conformance import OutlookConformance


@fails(OutlookConformance.test_an_empty_queue_has_no_outlook)
class AlwaysWorthIt(MemoryJobs):
    """Every claim is worth it."""

    def _claimable(self, queue: str, now: datetime) -> bool:
        return True


@fails(
    OutlookConformance.test_a_look_tells_when_a_rate_has_its_next_token,
    OutlookConformance.test_a_look_tells_which_key_has_its_next_token_first,
    OutlookConformance.test_a_look_tells_when_a_breaker_lets_one_through,
    OutlookConformance.test_a_look_tells_when_a_queue_has_cooled_down,
)
class DueTimesAlone(MemoryJobs):
    """Nothing is known to come but what falls due."""

    def _openings(self, queue: str, usage: Usage, now: datetime) -> Iterator[datetime]:
        due = self._db.next_due(queue)
        return iter(() if due is None else (due,))


@fails(
    OutlookConformance.test_a_look_tells_when_a_job_falls_due,
    OutlookConformance.test_a_look_forgets_what_is_not_there_any_more,
)
class LimitsAlone(MemoryJobs):
    """What falls due is not known to come."""

    async def outlook(self, queues: Sequence[str]) -> Outlook:
        return msgspec.structs.replace(await super().outlook(queues), next_at=None)


@fails(OutlookConformance.test_an_overdue_job_in_a_paused_queue_hides_no_other)
class LooksIntoPausedQueues(MemoryJobs):
    """A paused queue has an outlook, too."""

    def _openings(self, queue: str, usage: Usage, now: datetime) -> Iterator[datetime]:
        yield from (self._db.rows[place[-1]].due for place in self._db.later[queue])


@fails(OutlookConformance.test_an_overdue_job_in_a_full_queue_hides_no_other)
class TheFirstOfAll(MemoryJobs):
    """Only the first due time of all queues is looked at, and it has passed."""

    async def outlook(self, queues: Sequence[str]) -> Outlook:
        outlook = await super().outlook(queues)
        due = [at for queue in queues if (at := self._db.next_due(queue)) is not None]
        passed = bool(due) and min(due) <= outlook.at
        return msgspec.structs.replace(outlook, next_at=None) if passed else outlook
