"""Stores that keep log lines and events wrongly, and that shorten the past wrongly."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from tests.storage.mutants.table import fails
from windlass._core.job.job import JobId
from windlass._storage.memory.io.database import JournalRows, MemoryDatabase
from windlass._storage.memory.io.rollups import RollupRows
from windlass._storage.memory.io.rows import JobRow
from windlass._storage.memory.journal import MemoryJournal
from windlass._storage.memory.maintenance import MemoryMaintenance
from windlass._storage.protocol.journal import EventRecord, LogChunk
from windlass.testing.conformance import (
    CompactionConformance,
    EventConformance,
    LogConformance,
)

# --- logs -------------------------------------------------------------------------------------


@fails(LogConformance.test_lines_come_back_as_they_were_said)
class KeepsFirstLinesOnly(MemoryJournal):
    """Of a line of several the first is kept."""

    def _append_log(self, chunk: LogChunk) -> None:
        lines = tuple(replace(line, text=line.text.partition("\n")[0]) for line in chunk.lines)
        super()._append_log(replace(chunk, lines=lines))


@fails(LogConformance.test_chunks_come_by_claim_and_number_whenever_they_were_stored)
class ChunksAsTheyCame(JournalRows):
    """Chunks come in the order in which they were stored."""

    def chunks(self, seq: int) -> list[tuple[tuple[int, int], LogChunk]]:
        return [*self._chunks[seq].items()]


@fails(LogConformance.test_reading_continues_after_the_last_chunk)
class GoesOnByNumber(MemoryJournal):
    """Whoever reads on misses the first chunks of the next claim."""

    def _chunks(self, seq: int, after: tuple[int, int]) -> list[LogChunk]:
        return [chunk for chunk in super()._chunks(seq, after) if chunk.number > after[1]]


@fails(LogConformance.test_a_repeated_chunk_is_stored_once)
class KeepsRepeats(JournalRows):
    """A chunk that comes again is kept twice."""

    def keep_chunk(self, seq: int, chunk: LogChunk) -> None:
        known = {number for (_, number), _ in self.chunks(seq)}
        while chunk.number in known:
            chunk = replace(chunk, number=chunk.number + 100)
        super().keep_chunk(seq, chunk)


@fails(LogConformance.test_lines_may_come_after_their_run_has_ended)
class KeepsLinesOfRunsOnly(MemoryJournal):
    """Lines of a claim that is not held any more are left out."""

    def _append_log(self, chunk: LogChunk) -> None:
        if self._db.held(chunk.claim) is not None:
            super()._append_log(chunk)


@fails(LogConformance.test_lines_of_a_job_that_is_not_stored_are_left_out)
class RefusesStrangers(MemoryJournal):
    """A chunk whose job is not stored spoils the call."""

    async def append_logs(self, chunks: Sequence[LogChunk]) -> None:
        if all(chunk.claim.job in self._db.by_id for chunk in chunks):
            await super().append_logs(chunks)


@fails(LogConformance.test_late_lines_of_a_deleted_job_are_not_those_of_the_next_with_its_id)
class GoesByTheId(MemoryJournal):
    """Lines belong to whoever has the id now."""

    def _append_log(self, chunk: LogChunk) -> None:
        row = self._db.by_id.get(chunk.claim.job)
        if row is not None:
            self._db.diary.keep_chunk(row.seq, chunk)


@fails(
    LogConformance.test_lines_go_with_a_job_that_is_pruned_or_not_kept,
    EventConformance.test_events_go_with_a_job_that_is_pruned_or_not_kept,
)
class LinesOutliveTheirJob(MemoryDatabase):
    """What was written about a deleted job is told of the next with its id."""

    def remove(self, row: JobRow) -> None:
        diary, self.diary = self.diary, JournalRows()
        super().remove(row)
        self.diary = diary
        self.ghosts = {**getattr(self, "ghosts", {}), row.asked.id: row.seq}

    def keep(self, row: JobRow) -> None:
        super().keep(row)
        ghost = getattr(self, "ghosts", {}).get(row.asked.id)
        for _, chunk in self.diary.chunks(ghost or 0):
            self.diary.keep_chunk(row.seq, chunk)


# --- events -----------------------------------------------------------------------------------


@fails(EventConformance.test_events_come_back_as_they_were_recorded)
class ForgetsTheAttempt(MemoryJournal):
    """Events do not say which attempt it was."""

    def _append_event(self, event: EventRecord) -> bool:
        return super()._append_event(replace(event, attempt=0))


@fails(EventConformance.test_events_of_jobs_that_are_not_stored_are_left_out)
class CountsStrangers(MemoryJournal):
    """Events that were left out are counted."""

    async def append_events(self, events: Sequence[EventRecord]) -> int:
        await super().append_events(events)
        return len(events)


@fails(EventConformance.test_events_of_one_instant_come_as_they_were_kept)
class EventsByJob(JournalRows):
    """Events of one instant come job by job."""

    def events(self) -> list[EventRecord]:
        return sorted(super().events(), key=lambda event: (event.at, event.job))


class _Reads(MemoryJournal):
    """Another way to read events."""

    async def events(
        self,
        since: datetime,
        until: datetime,
        *,
        limit: int,
        job: JobId | None = None,
        newest_first: bool = False,
    ) -> Sequence[EventRecord]:
        found = [
            *await super().events(since, until, limit=1000, job=job, newest_first=newest_first)
        ]
        return self.chosen(found, limit)

    def chosen(self, found: list[EventRecord], limit: int) -> list[EventRecord]:
        raise AssertionError("say which")


@fails(EventConformance.test_a_range_of_events_is_half_open_and_begins_with_the_oldest)
class NewestEvents(_Reads):
    """Of many events the newest are told."""

    def chosen(self, found: list[EventRecord], limit: int) -> list[EventRecord]:
        return found[-limit:]


@fails(EventConformance.test_the_newest_events_come_first_if_asked_for)
class ReversesTheOldest(MemoryJournal):
    """Of many events the oldest are told in the opposite order."""

    async def events(
        self,
        since: datetime,
        until: datetime,
        *,
        limit: int,
        job: JobId | None = None,
        newest_first: bool = False,
    ) -> Sequence[EventRecord]:
        found = await super().events(since, until, limit=limit, job=job)
        return found[::-1] if newest_first else found


@fails(EventConformance.test_events_of_one_job)
class LimitsBeforeItLooks(MemoryJournal):
    """The limit counts events of other jobs."""

    async def events(
        self,
        since: datetime,
        until: datetime,
        *,
        limit: int,
        job: JobId | None = None,
        newest_first: bool = False,
    ) -> Sequence[EventRecord]:
        found = await super().events(since, until, limit=limit, newest_first=newest_first)
        return [event for event in found if job is None or event.job == job]


@fails(EventConformance.test_old_events_are_pruned_in_chunks)
class PrunesEventsAllAtOnce(JournalRows):
    """Pruning knows no bounds."""

    def prune_events(self, before: datetime, limit: int) -> int:
        return super().prune_events(before, 1000)


# --- compaction -------------------------------------------------------------------------------


@fails(CompactionConformance.test_the_minutes_of_an_old_hour_become_one)
class LosesAMinute(MemoryMaintenance):
    """One minute of each hour is forgotten."""

    def _compact(self, tallies: RollupRows, before: datetime, limit: int) -> int:
        saved = super()._compact(tallies, before, limit)
        if saved:
            next(iter(tallies.values())).counts.clear()
        return saved


@fails(CompactionConformance.test_recent_rollups_keep_their_minutes)
class CompactsEverything(MemoryMaintenance):
    """Young minutes are merged, too."""

    def _compact(self, tallies: RollupRows, before: datetime, limit: int) -> int:
        return super()._compact(tallies, before + timedelta(days=9), limit)


@fails(CompactionConformance.test_it_is_done_in_chunks)
class CompactsAllAtOnce(MemoryMaintenance):
    """A bite is everything."""

    def _compact(self, tallies: RollupRows, before: datetime, limit: int) -> int:
        return super()._compact(tallies, before, 1000)


@fails(CompactionConformance.test_compacted_rollups_are_pruned_like_all_others)
class KeepsHours(MemoryMaintenance):
    """Whole hours are never pruned."""

    async def prune_rollups(self, *, older_than: timedelta, limit: int) -> int:
        hours = {key: one for key, one in self._db.tallies.items() if not key[0].minute}
        await super().prune_rollups(older_than=older_than, limit=limit)
        self._db.tallies.update(hours)
        return 0
