"""Stores that list jobs in a wrong order, or whose pages do not agree."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from msgspec.structs import replace

from tests.storage.mutants.table import fails
from windlass._core.job.state import State
from windlass._storage.memory.admin.admin import MemoryAdmin
from windlass._storage.memory.io.rows import JobRow
from windlass._storage.protocol.lists.job_list import JobFilter, ListOrder, Page
from windlass._storage.protocol.lists.list_order import is_descending, position_of, sort_field_of
from windlass.testing.conformance import SortConformance


class _Lists(MemoryAdmin):
    """Lists in an order that is not the one asked for."""

    time = ""

    def instead(self, rows: list[JobRow]) -> list[JobRow]:
        raise AssertionError("say which")

    def _in_order(self, wanted: JobFilter, order: ListOrder, now: datetime) -> Iterator[JobRow]:
        rows = [*super()._in_order(wanted, order, now)]
        return iter(self.instead(rows) if sort_field_of(order) == self.time else rows)


def _number(row: JobRow) -> int:
    return row.seq


@fails(SortConformance.test_failed_jobs_are_listed_by_when_they_failed)
class ListsFailuresByNumber(_Lists):
    """The newest job comes first, not the latest failure."""

    time = "finished"

    def instead(self, rows: list[JobRow]) -> list[JobRow]:
        return sorted(rows, key=_number)


@fails(SortConformance.test_ended_jobs_of_every_state_are_listed_by_their_end)
class ListsStateByState(_Lists):
    """Each state by itself is in order."""

    time = "finished"

    def instead(self, rows: list[JobRow]) -> list[JobRow]:
        return sorted(rows, key=lambda row: row.state.value)


@fails(SortConformance.test_scheduled_jobs_are_listed_by_when_they_are_due)
class ListsDueQueueByQueue(_Lists):
    """Each queue by itself is in order."""

    time = "due"

    def instead(self, rows: list[JobRow]) -> list[JobRow]:
        return sorted(rows, key=lambda row: row.asked.queue)


@fails(SortConformance.test_running_jobs_are_listed_by_when_they_started)
class ListsRunsByNumber(_Lists):
    """Running jobs come by number."""

    time = "started"

    def instead(self, rows: list[JobRow]) -> list[JobRow]:
        return sorted(rows, key=_number)


@fails(SortConformance.test_jobs_are_listed_from_the_oldest_on)
class KnowsOnlyTheNewest(MemoryAdmin):
    """The oldest are not asked for first."""

    async def find(self, wanted: JobFilter, *, limit: int) -> Page:
        oldest = wanted.order is ListOrder.OLDEST
        return await super().find(replace(wanted, order=None) if oldest else wanted, limit=limit)


@fails(SortConformance.test_pages_of_one_instant_hold_every_job_once)
class PagesByInstantAlone(MemoryAdmin):
    """A page begins behind the last instant of the page before."""

    def _in_order(self, wanted: JobFilter, order: ListOrder, now: datetime) -> Iterator[JobRow]:
        place = None if isinstance(wanted.before, int) else position_of(wanted)
        if place is not None:
            behind = "0" if is_descending(order) else "9" * 18
            wanted = replace(wanted, before=place._replace(tail=behind).cursor())
        return super()._in_order(wanted, order, now)


@fails(SortConformance.test_a_job_that_changes_between_pages_moves_no_other)
class CountsFailures(MemoryAdmin):
    """The next page is a number of jobs further on, whatever has ended since."""

    async def find(self, wanted: JobFilter, *, limit: int) -> Page:
        if wanted.states != [State.FAILED]:
            return await super().find(wanted, limit=limit)
        skipped = int(wanted.before or 0)
        everything = [*await super().find(replace(wanted, before=None), limit=1000)]
        further = skipped + limit < len(everything)
        return Page(everything[skipped : skipped + limit], skipped + limit if further else None)


@fails(SortConformance.test_an_order_that_no_index_has_is_refused)
class ListsAnythingSomehow(MemoryAdmin):
    """An order that cannot be had is left out."""

    async def find(self, wanted: JobFilter, *, limit: int) -> Page:
        return await super().find(replace(wanted, order=None), limit=limit)


@fails(SortConformance.test_the_cursor_of_another_order_is_refused)
class BeginsAgain(MemoryAdmin):
    """A cursor that is none leads to the first page."""

    async def find(self, wanted: JobFilter, *, limit: int) -> Page:
        by_number = wanted.order in {None, ListOrder.NEWEST, ListOrder.OLDEST}
        fits = isinstance(wanted.before, int) if by_number else "ü" not in str(wanted.before)
        begun = wanted if fits and "." in str(wanted.before) else replace(wanted, before=None)
        return await super().find(begun, limit=limit)
