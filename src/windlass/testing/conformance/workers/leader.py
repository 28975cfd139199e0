"""`LeaderStore`: who does the chores."""

from __future__ import annotations

from windlass._storage.protocol.storage import Storage
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    HOUR,
    INSTANT,
    MINUTE,
)

__all__ = ["LeaderConformance"]


class LeaderConformance:
    """Leases on roles. Forge cron_lease_grants_one_holder_and_renews."""

    async def test_one_worker_leads_and_may_renew(self, storage: Storage) -> None:
        assert await storage.leader.lead("reaper", "w1", MINUTE)
        assert not await storage.leader.lead("reaper", "w2", MINUTE)
        assert await storage.leader.lead("reaper", "w1", MINUTE)

    async def test_a_renewed_lease_counts_from_the_renewal(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await storage.leader.lead("reaper", "w1", MINUTE)
        clock.advance(MINUTE - INSTANT)
        await storage.leader.lead("reaper", "w1", MINUTE)
        clock.advance(MINUTE / 2)
        assert not await storage.leader.lead("reaper", "w2", MINUTE)

    async def test_a_lease_that_ran_out_is_taken_by_the_next(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await storage.leader.lead("reaper", "w1", MINUTE)
        clock.advance(HOUR)
        assert await storage.leader.lead("reaper", "w2", MINUTE)
        assert not await storage.leader.lead("reaper", "w1", MINUTE)

    async def test_roles_are_led_apart(self, storage: Storage) -> None:
        await storage.leader.lead("reaper", "w1", MINUTE)
        assert await storage.leader.lead("pruner", "w2", MINUTE)

    async def test_a_worker_that_resigns_leads_no_role(self, storage: Storage) -> None:
        await storage.leader.lead("reaper", "w1", MINUTE)
        await storage.leader.lead("pruner", "w1", MINUTE)
        await storage.leader.lead("other", "w2", MINUTE)
        await storage.leader.resign("w1")
        assert await storage.leader.lead("reaper", "w3", MINUTE)
        assert await storage.leader.lead("pruner", "w3", MINUTE)
        assert not await storage.leader.lead("other", "w3", MINUTE)
