"""A newer Windlass has changed the store while workers of this one run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from windlass._core.job.outcome import Succeeded
from windlass._core.job.state import State
from windlass._storage.protocol.jobs import Verdict
from windlass._storage.protocol.storage import Storage
from windlass.errors import SchemaTooNew
from windlass.testing.conformance.steps import a_job, add, ask, claim_one, enlist, happened, look

__all__ = ["NewerSchemaConformance"]

Upgrade = Callable[[], Awaitable[None]]


class NewerSchemaConformance:
    """Claims are for code that knows the stored major version."""

    async def test_a_store_of_a_newer_major_version_gives_nothing(
        self, storage: Storage, upgrade: Upgrade
    ) -> None:
        await enlist(storage)
        (job,) = await add(storage, a_job())
        await upgrade()
        for solo in (False, True):
            with pytest.raises(SchemaTooNew, match=r"[Uu]pgrade windlass"):
                await ask(storage, 10, solo=solo)
        with pytest.raises(SchemaTooNew):
            await ask(storage, 0)
        assert (await look(storage, job)).state is State.WAITING

    async def test_an_idle_worker_is_sent_to_the_claim_that_refuses_it(
        self, storage: Storage, upgrade: Upgrade
    ) -> None:
        await enlist(storage)
        assert not (await storage.jobs.outlook(["default"])).claimable
        await upgrade()
        assert (await storage.jobs.outlook(["default"])).claimable

    async def test_claims_made_before_can_still_be_ended(
        self, storage: Storage, upgrade: Upgrade
    ) -> None:
        await enlist(storage)
        await add(storage, a_job(), a_job())
        first, second = await claim_one(storage), await claim_one(storage)
        await upgrade()
        answer = await happened(storage, first, Succeeded(b"1"))
        assert answer.verdict is Verdict.APPLIED
        assert (await storage.workers.beat("w1")).live
        await storage.workers.leave("w1", [])
        assert (await look(storage, first.claim.job)).state is State.SUCCEEDED
        assert (await look(storage, second.claim.job)).state is State.WAITING
