"""Stores that lose or mix up what handlers noted."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from tests.storage.mutants.table import fails
from windlass._core.job.state import Verb
from windlass._core.job.transition import Transition
from windlass._storage.memory.copy.copy import MemoryCopy
from windlass._storage.memory.io.rows import JobRow
from windlass._storage.memory.jobs.apply import ApplyRules
from windlass._storage.memory.workers import MemoryWorkers
from windlass._storage.protocol.copy import CopiedRecord, StoredJob
from windlass._storage.protocol.jobs import Applied, TransitionAnswer, Verdict
from windlass.testing.conformance import MetadataConformance


@fails(
    MetadataConformance.test_a_success_stores_what_was_noted,
    MetadataConformance.test_a_batch_stores_what_each_has_noted,
)
class NotesFailuresAlone(ApplyRules):
    """A success stores nothing that was noted."""

    def accept(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        kept = None if verb is Verb.SUCCEED else transition.metadata
        super().accept(row, replace(transition, metadata=kept), verb, now)


@fails(MetadataConformance.test_jobs_with_keys_or_limits_or_follow_ups_store_it_too)
class NotesPlainJobsAlone(ApplyRules):
    """A job with a key, a limit or a follow-up loses what was noted."""

    def accept(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        if row.asked.unique or row.asked.limits or transition.then:
            transition = replace(transition, metadata=None)
        super().accept(row, transition, verb, now)


@fails(MetadataConformance.test_a_run_that_did_not_succeed_keeps_it_in_the_history)
class HistoryWithoutMetadata(ApplyRules):
    """The history knows nothing of what was noted."""

    def remember(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        super().remember(row, replace(transition, metadata=None), verb, now)


@fails(MetadataConformance.test_a_run_that_gives_its_job_back_stores_it)
class NotesTheEndAlone(ApplyRules):
    """A job that waits again loses what was noted."""

    def accept(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        kept = transition.metadata if verb in {Verb.SUCCEED, Verb.FAIL, Verb.CANCEL} else None
        super().accept(row, replace(transition, metadata=kept), verb, now)


@fails(MetadataConformance.test_a_worker_that_leaves_stores_it)
class LeavesWithoutMetadata(MemoryWorkers):
    """A worker that leaves forgets what its runs have noted."""

    async def leave(self, worker: str, releases: Sequence[Transition]) -> Applied:
        return await super().leave(worker, [replace(one, metadata=None) for one in releases])


@fails(MetadataConformance.test_the_run_that_ended_last_counts_also_if_it_noted_nothing)
class KeepsOldMetadata(ApplyRules):
    """A run that noted nothing leaves what an earlier one has noted."""

    def accept(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        before = row.metadata
        super().accept(row, transition, verb, now)
        if not transition.metadata:
            row.note(before)


@fails(MetadataConformance.test_a_claim_that_was_lost_notes_nothing)
class NotesWithoutAClaim(ApplyRules):
    """A refused transition stores what was noted."""

    def end(self, transition: Transition, now: datetime) -> TransitionAnswer:
        answer = super().end(transition, now)
        if answer.verdict is Verdict.REFUSED:
            self._db.rows[transition.claim.seq].note(transition.metadata)
        return answer


@fails(MetadataConformance.test_a_copy_has_it)
class CopiesNoMetadata(MemoryCopy):
    """A copy comes without what was noted."""

    async def restore(self, things: Sequence[CopiedRecord]) -> int:
        return await super().restore(
            [
                replace(one, job=replace(one.job, metadata=None))
                if isinstance(one, StoredJob)
                else one
                for one in things
            ]
        )
