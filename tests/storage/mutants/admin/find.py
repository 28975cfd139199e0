"""Stores that find, count and group jobs wrongly."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from tests.storage.mutants.table import fails
from windlass._core.job.state import Shown, State
from windlass._storage.memory.admin.admin import MemoryAdmin
from windlass._storage.memory.io.rows import JobRow
from windlass._storage.protocol.admin import ErrorGroup, ErrorLook, QueueCounts
from windlass._storage.protocol.lists.job_list import JobFilter, Page
from windlass.testing.conformance import (
    ErrorGroupConformance,
    FilterConformance,
    PageConformance,
    QueueCountConformance,
    TextConformance,
)

INSTANT = timedelta(microseconds=1)

# --- filters ----------------------------------------------------------------------------------


class _Matches(MemoryAdmin):
    """Another idea of what a filter means."""

    def matches(self, row: JobRow, wanted: JobFilter) -> bool:
        raise AssertionError("say which")

    def _matches(self, row: JobRow, wanted: JobFilter) -> bool:
        return self.matches(row, wanted)

    def really(self, row: JobRow, wanted: JobFilter) -> bool:
        return super()._matches(row, wanted)


@fails(FilterConformance.test_every_field_narrows_alone_and_together_with_the_state)
class IgnoresTheParent(_Matches):
    """Who enqueued a job does not narrow."""

    def matches(self, row: JobRow, wanted: JobFilter) -> bool:
        return self.really(row, replace(wanted, parent=None))


@fails(FilterConformance.test_all_fields_narrow_together)
class TakesTheFirstField(_Matches):
    """A tenant is enough."""

    def matches(self, row: JobRow, wanted: JobFilter) -> bool:
        if wanted.tenant is not None:
            return row.asked.tenant == wanted.tenant
        return self.really(row, wanted)


@fails(FilterConformance.test_a_tag_is_one_whole_tag)
class TakesPartsOfTags(_Matches):
    """A tag is found by its beginning."""

    def matches(self, row: JobRow, wanted: JobFilter) -> bool:
        found = any(tag.startswith(wanted.tag or "") for tag in row.asked.tags)
        return (wanted.tag is None or found) and self.really(row, replace(wanted, tag=None))


@fails(FilterConformance.test_a_key_is_found_while_it_is_held_and_afterwards)
class FindsHeldKeysOnly(MemoryAdmin):
    """A key that is not held any more is not found."""

    def _is_candidate(self, row: JobRow, wanted: JobFilter, now: datetime) -> bool:
        held = wanted.key is None or self._db.holds_key(row, now)
        return held and super()._is_candidate(row, wanted, now)


@fails(FilterConformance.test_a_worker_is_who_runs_a_job_or_ran_it_last)
class FindsWhatRunsOnly(MemoryAdmin):
    """Only running jobs have a worker."""

    def _is_candidate(self, row: JobRow, wanted: JobFilter, now: datetime) -> bool:
        runs = wanted.worker is None or row.state is State.RUNNING
        return runs and super()._is_candidate(row, wanted, now)


@fails(FilterConformance.test_an_error_that_was_overcome_is_not_found)
class FindsOldErrors(_Matches):
    """An error in the history is found."""

    def matches(self, row: JobRow, wanted: JobFilter) -> bool:
        kinds = [one.error.kind for one in row.history if one.error is not None]
        if wanted.error in kinds:
            wanted = replace(wanted, error=None)
        return self.really(row, wanted)


@fails(FilterConformance.test_an_error_without_a_place_is_found_by_that)
class TakesNoPlaceForAnyPlace(_Matches):
    """An empty place does not narrow."""

    def matches(self, row: JobRow, wanted: JobFilter) -> bool:
        return self.really(row, replace(wanted, frame=wanted.frame or None))


@fails(FilterConformance.test_the_time_of_making_is_a_half_open_range)
class IncludesTheEnd(_Matches):
    """A range of creation includes its end."""

    def matches(self, row: JobRow, wanted: JobFilter) -> bool:
        until = wanted.created_until
        return self.really(row, replace(wanted, created_until=until and until + INSTANT))


@fails(FilterConformance.test_the_time_of_the_end_is_a_half_open_range_of_ended_jobs)
class TakesNoEndForAnEarlyOne(_Matches):
    """A job that has not ended is found by any end."""

    def matches(self, row: JobRow, wanted: JobFilter) -> bool:
        if row.finished_at is None:
            wanted = replace(wanted, finished_from=None, finished_until=None)
        return self.really(row, wanted)


@fails(FilterConformance.test_states_are_found_as_people_see_them)
class ShowsRetriesAsReady(MemoryAdmin):
    """Whoever asks for ready jobs gets those that are retried."""

    def _is_candidate(self, row: JobRow, wanted: JobFilter, now: datetime) -> bool:
        if wanted.shown is not None and Shown.READY in wanted.shown:
            wanted = replace(wanted, shown=[*wanted.shown, Shown.RETRYING])
        return super()._is_candidate(row, wanted, now)


# --- text -------------------------------------------------------------------------------------


@fails(TextConformance.test_text_is_looked_for_in_the_payload_and_the_last_error)
class ReadsTracebacks(_Matches):
    """Text in a traceback is found."""

    def matches(self, row: JobRow, wanted: JobFilter) -> bool:
        if wanted.text and row.error is not None and wanted.text in row.error.traceback:
            return True
        return self.really(row, wanted)


def _words(row: JobRow) -> str:
    told = "" if row.error is None else f"{row.error.kind}\n{row.error.message}"
    return f"{row.asked.payload.decode(errors='replace')}\n{told}"


@fails(TextConformance.test_only_the_letters_a_to_z_are_the_same_in_both_cases)
class FoldsEveryLetter(_Matches):
    """All letters are the same in both cases."""

    def matches(self, row: JobRow, wanted: JobFilter) -> bool:
        return (wanted.text or "").casefold() in _words(row).casefold()


@fails(
    TextConformance.test_no_character_is_a_wildcard,
    TextConformance.test_the_same_words_are_found_in_errors,
)
class TakesUnderscoresForAnything(_Matches):
    """An underscore stands for any character."""

    def matches(self, row: JobRow, wanted: JobFilter) -> bool:
        text, words = (wanted.text or "").lower(), _words(row).lower()
        return any(
            len(words) - start >= len(text)
            and all(a in {"_", b} for a, b in zip(text, words[start:], strict=False))
            for start in range(len(words))
        )


@fails(TextConformance.test_bytes_that_are_no_text_are_in_nobodys_way)
class ReadsTextOnly(_Matches):
    """Bytes that are no text are an error."""

    def matches(self, row: JobRow, wanted: JobFilter) -> bool:
        return (wanted.text or "") in row.asked.payload.decode()


@fails(TextConformance.test_hidden_text_is_not_found_and_ends_no_page)
class SearchesWhatIsHidden(_Matches):
    """A secret argument is found."""

    def matches(self, row: JobRow, wanted: JobFilter) -> bool:
        hidden = (wanted.text or "").lower() in _words(row).lower()
        return hidden or self.really(row, wanted)


@fails(TextConformance.test_a_name_made_of_a_secret_finds_nothing_for_people)
class FindsByHiddenNames(_Matches):
    """Names that a job hides are found by whoever guesses them."""

    def matches(self, row: JobRow, wanted: JobFilter) -> bool:
        return self.really(row, replace(wanted, as_shown=False))


# --- pages ------------------------------------------------------------------------------------


class _Pages(MemoryAdmin):
    """Pages with something wrong."""

    def spoiled(self, page: Page) -> Page:
        raise AssertionError("say what")

    async def find(self, wanted: JobFilter, *, limit: int) -> Page:
        return self.spoiled(await super().find(wanted, limit=limit))


@fails(PageConformance.test_pages_hold_every_matching_job_once)
class SkipsAJob(_Pages):
    """The next page begins one too late."""

    def spoiled(self, page: Page) -> Page:
        return Page(page, page.next and int(page.next) - 1)


@fails(PageConformance.test_a_page_holds_no_more_than_it_is_asked_for)
class GivesMoreThanAsked(MemoryAdmin):
    """A page holds one job more."""

    async def find(self, wanted: JobFilter, *, limit: int) -> Page:
        return await super().find(wanted, limit=limit + 1)


@fails(PageConformance.test_jobs_that_come_and_go_between_pages_move_no_other)
class CountsFromTheNewest(MemoryAdmin):
    """The next page is a number of jobs further on, whatever has come since."""

    async def find(self, wanted: JobFilter, *, limit: int) -> Page:
        skipped = 0 if wanted.before is None else -int(wanted.before)
        everything = [*await super().find(replace(wanted, before=None), limit=1000)]
        page = everything[skipped : skipped + limit]
        further = skipped + limit < len(everything)
        return Page(page, -(skipped + limit) if further else None)


@fails(PageConformance.test_the_last_page_says_that_it_is_the_last)
class PromisesAnotherPage(_Pages):
    """There is always another page."""

    def spoiled(self, page: Page) -> Page:
        return Page(page, page.next or 1)


@fails(PageConformance.test_a_page_that_ends_at_the_holder_of_a_key_has_a_cursor_or_is_the_last)
class BeginsBehindAllNumbers(MemoryAdmin):
    """A page that ends at the holder of a key does not say where the next one begins."""

    async def find(self, wanted: JobFilter, *, limit: int) -> Page:
        page = await super().find(wanted, limit=limit)
        ends = len(page) == limit and any(job.key_held for job in page)
        return Page(page, 2**63 - 1) if ends and wanted.before is None else page


# --- counts -----------------------------------------------------------------------------------


class _Counts(MemoryAdmin):
    """Counts with something wrong."""

    def spoiled(self, counts: QueueCounts) -> QueueCounts | None:
        raise AssertionError("say what")

    async def counts(self, *, cap: int | None = None) -> Sequence[QueueCounts]:
        spoiled = [self.spoiled(one) for one in await super().counts(cap=cap)]
        return [one for one in spoiled if one is not None]


@fails(
    QueueCountConformance.test_jobs_that_are_retried_are_counted_among_the_ready_and_scheduled_ones
)
class CountsRetriesApart(_Counts):
    """Jobs that are retried are not counted as scheduled."""

    def spoiled(self, counts: QueueCounts) -> QueueCounts:
        return replace(counts, scheduled=counts.scheduled - counts.retrying)


@fails(
    QueueCountConformance.test_a_requeued_job_is_retried_only_when_it_has_spent_an_attempt_again,
    QueueCountConformance.test_a_job_that_got_its_attempt_back_is_not_retried,
)
class CountsClaimsAsRetries(MemoryAdmin):
    """Whatever was claimed before is retried."""

    async def counts(self, *, cap: int | None = None) -> Sequence[QueueCounts]:
        claimed = [row for row in self._db.rows.values() if row.claim_number]
        waiting = sum(row.state is State.WAITING for row in claimed)
        return [replace(one, retrying=waiting) for one in await super().counts(cap=cap)]


@fails(QueueCountConformance.test_the_oldest_due_job_is_the_one_that_has_been_ready_for_longest)
class TakesTheFirstInLine(MemoryAdmin):
    """The oldest job is the one that is claimed next."""

    async def counts(self, *, cap: int | None = None) -> Sequence[QueueCounts]:
        with self._db.moment() as now:
            ready = [row for row in self._db.rows.values() if row.due <= now]
            first = min(ready, key=lambda row: row.asked.priority, default=None)
        due = None if first is None else first.due
        return [replace(one, oldest_due=due) for one in await super().counts(cap=cap)]


@fails(
    QueueCountConformance.test_jobs_in_lanes_and_suspects_are_ready_too,
    QueueCountConformance.test_a_cap_applies_to_every_kind_of_waiting,
)
class CountsTheCommonLineOnly(MemoryAdmin):
    """Jobs in lanes do not count as ready."""

    def _counted_as(self, row: JobRow, now: datetime) -> str:
        counted = super()._counted_as(row, now)
        return "discarded" if counted == "ready" and any(row.lane) else counted


@fails(QueueCountConformance.test_a_queue_with_settings_is_listed_without_jobs)
class ListsPausedQueuesOnly(_Counts):
    """A queue with settings and without jobs is not listed."""

    def spoiled(self, counts: QueueCounts) -> QueueCounts | None:
        return counts if counts.paused or counts.ready else None


@fails(
    QueueCountConformance.test_no_number_is_counted_further_than_the_cap,
    QueueCountConformance.test_queues_are_capped_each_on_its_own,
)
class CountsPastTheCap(MemoryAdmin):
    """A cap is noted and not kept."""

    async def counts(self, *, cap: int | None = None) -> Sequence[QueueCounts]:
        return [replace(one, cap=cap) for one in await super().counts()]


# --- errors -----------------------------------------------------------------------------------


class _Groups(MemoryAdmin):
    """Groups with something wrong."""

    def spoiled(self, group: ErrorGroup) -> ErrorGroup:
        raise AssertionError("say what")

    async def errors(
        self,
        *,
        queue: str | None = None,
        task: str | None = None,
        since: datetime | None = None,
        look: int = 10_000,
    ) -> ErrorLook:
        found = await super().errors(queue=queue, task=task, since=since, look=look)
        return replace(found, groups=[self.spoiled(group) for group in found.groups])


@fails(ErrorGroupConformance.test_the_same_exception_at_the_same_place_is_one_group)
class ShowsTheFirstJob(_Groups):
    """A group began when it was seen last."""

    def spoiled(self, group: ErrorGroup) -> ErrorGroup:
        return replace(group, first=group.last)


@fails(ErrorGroupConformance.test_a_long_text_is_cut)
class CutsTexts(_Groups):
    """Texts are cut too short."""

    def spoiled(self, group: ErrorGroup) -> ErrorGroup:
        return replace(group, text=group.text[:499])


@fails(
    ErrorGroupConformance.test_another_exception_or_another_place_is_another_group,
    ErrorGroupConformance.test_a_group_leads_to_its_jobs,
)
class GroupsByKind(MemoryAdmin):
    """The place does not matter."""

    def _failed(self, since: datetime | None) -> list[JobRow]:
        return [replace(row, frame="jobs/mail.py send") for row in super()._failed(since)]


@fails(ErrorGroupConformance.test_an_error_without_a_traceback_has_no_place)
class InventsPlaces(MemoryAdmin):
    """Where there is no place, the traceback is one."""

    def _failed(self, since: datetime | None) -> list[JobRow]:
        return [
            replace(row, frame=row.frame or (row.error.traceback if row.error else ""))
            for row in super()._failed(since)
        ]


@fails(ErrorGroupConformance.test_only_failed_jobs_are_counted)
class CountsEveryError(MemoryAdmin):
    """Every job with an error is counted."""

    def _failed(self, since: datetime | None) -> list[JobRow]:
        return [row for row in self._db.rows.values() if row.error is not None]


@fails(ErrorGroupConformance.test_the_last_error_of_a_job_is_the_one_that_counts)
class CountsFirstErrors(MemoryAdmin):
    """The first error of a job counts."""

    def _failed(self, since: datetime | None) -> list[JobRow]:
        return [replace(row, error=row.history[0].error) for row in super()._failed(since)]


@fails(ErrorGroupConformance.test_errors_since_then_begin_with_that_instant)
class BeginsLater(MemoryAdmin):
    """The instant itself is left out."""

    def _failed(self, since: datetime | None) -> list[JobRow]:
        return super()._failed(since and since + INSTANT)


@fails(ErrorGroupConformance.test_errors_of_one_queue_or_task)
class IgnoresTheTaskOfErrors(MemoryAdmin):
    """The task does not narrow."""

    async def errors(
        self,
        *,
        queue: str | None = None,
        task: str | None = None,
        since: datetime | None = None,
        look: int = 10_000,
    ) -> ErrorLook:
        return await super().errors(queue=queue, since=since, look=look)


@fails(ErrorGroupConformance.test_a_look_that_is_too_short_says_so_and_sees_the_last_failures)
class LooksAtTheOldest(MemoryAdmin):
    """A short look sees the oldest failures."""

    def _failed(self, since: datetime | None) -> list[JobRow]:
        return super()._failed(since)[::-1]
