"""Stores that old code may use as if nothing had changed, or not even to finish."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from tests.storage.mutants.table import fails
from windlass._core.job.transition import Transition
from windlass._storage.memory.io.database import VERSION
from windlass._storage.memory.jobs.jobs import MemoryJobs
from windlass._storage.protocol.jobs import Applied, ClaimReply, Outlook, Want
from windlass.errors import SchemaTooNew
from windlass.testing.conformance import NewerSchemaConformance


@fails(NewerSchemaConformance.test_a_store_of_a_newer_major_version_gives_nothing)
class IgnoresTheVersion(MemoryJobs):
    """Any code may claim, however old."""

    async def claim(
        self,
        worker: str,
        wants: Sequence[Want],
        *,
        total: int,
        solo: bool = False,
        head_start: timedelta = timedelta(0),
    ) -> ClaimReply:
        self._db.version = VERSION
        return await super().claim(worker, wants, total=total, solo=solo)


@fails(NewerSchemaConformance.test_an_idle_worker_is_sent_to_the_claim_that_refuses_it)
class LetsTheIdleSleep(MemoryJobs):
    """A worker that finds nothing to do never learns of the new version."""

    async def outlook(self, queues: Sequence[str]) -> Outlook:
        self._db.version = VERSION
        return await super().outlook(queues)


@fails(NewerSchemaConformance.test_claims_made_before_can_still_be_ended)
class RefusesOutcomes(MemoryJobs):
    """What ran when the version changed cannot be stored."""

    async def apply(self, transitions: Sequence[Transition]) -> Applied:
        if self._db.version > VERSION:
            raise SchemaTooNew("upgrade first")
        return await super().apply(transitions)
