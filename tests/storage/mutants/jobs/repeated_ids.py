"""Stores that go wrong with an id that is stored already."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from tests.storage.mutants.table import fails
from windlass._core.job.job import NewJob
from windlass._storage.memory.admin.actions import MemoryActions
from windlass._storage.memory.jobs.jobs import MemoryJobs
from windlass._storage.protocol.actions import AuditNote
from windlass._storage.protocol.jobs import Inserted
from windlass._system.seams import new_job_id
from windlass.errors import IdConflict
from windlass.testing.conformance import RepeatedIdConformance


@fails(RepeatedIdConformance.test_the_same_call_again_is_answered_as_the_first_one)
class SaysNotCreated(MemoryJobs):
    """A repeated call is answered as if somebody else held its key."""

    def insert_all(self, jobs: Sequence[NewJob], now: datetime) -> list[Inserted]:
        known = {job.id for job in jobs if job.id in self._db.by_id}
        answers = super().insert_all(jobs, now)
        return [replace(answer, created=answer.id not in known) for answer in answers]


@fails(RepeatedIdConformance.test_the_answers_tell_what_is_new_from_what_was_stored_before)
class LooksBeforeTheBatch(MemoryJobs):
    """An id that comes twice in a batch is new both times."""

    def insert_all(self, jobs: Sequence[NewJob], now: datetime) -> list[Inserted]:
        known = {job.id for job in jobs if job.id in self._db.by_id}
        answers = super().insert_all(jobs, now)
        return [replace(answer, repeated=answer.id in known) for answer in answers]


@fails(RepeatedIdConformance.test_of_callers_who_say_one_id_at_once_one_has_stored_it)
class LooksBeforeItsTurn(MemoryJobs):
    """Whether an id is stored is asked before the call has its turn."""

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        known = {job.id for job in jobs if job.id in self._db.by_id}
        await asyncio.sleep(0)
        answers = await super().insert(jobs)
        return [replace(answer, repeated=answer.id in known) for answer in answers]


@fails(RepeatedIdConformance.test_an_id_that_names_another_call_is_refused_with_its_whole_batch)
class TakesAnyRepeat(MemoryJobs):
    """An id that is stored is a repeated call, whatever is asked for."""

    def _require_ids(self, jobs: Sequence[NewJob]) -> None:
        """Ask nothing."""


@fails(RepeatedIdConformance.test_an_audited_insert_with_the_id_of_another_call_is_refused)
class OrdersAnything(MemoryActions):
    """An order is not asked what its id names."""

    async def insert(self, jobs: Sequence[NewJob], audit: AuditNote) -> Sequence[Inserted]:
        fresh = [replace(job, id=new_job_id()) for job in jobs]
        return await super().insert(fresh, audit)


@fails(RepeatedIdConformance.test_an_id_that_comes_twice_in_a_batch_names_one_call)
class LooksAtTheStoreAlone(MemoryJobs):
    """Two calls of one batch may have one id."""

    def _require_ids(self, jobs: Sequence[NewJob]) -> None:
        for job in jobs:
            super()._require_ids([job])


@fails(RepeatedIdConformance.test_a_job_whose_arguments_were_replaced_is_still_its_own_call)
class ComparesWhatWasReplaced(MemoryJobs):
    """A job is compared with the arguments that another call has given it since."""

    def _require_ids(self, jobs: Sequence[NewJob]) -> None:
        for job in jobs:
            row = self._db.by_id.get(job.id)
            if row is not None and row.asked.payload != job.payload:
                raise IdConflict(job.id)


@fails(RepeatedIdConformance.test_a_job_that_has_ended_keeps_its_id)
class ForgetsIdsAtTheEnd(MemoryJobs):
    """What has ended is stored again."""

    def insert_all(self, jobs: Sequence[NewJob], now: datetime) -> list[Inserted]:
        for job in jobs:
            row = self._db.by_id.get(job.id)
            if row is not None and row.is_terminal():
                del self._db.by_id[job.id]
        return super().insert_all(jobs, now)
