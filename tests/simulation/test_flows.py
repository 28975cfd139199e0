"""Worlds with flows: random graphs under faults, with an operator who cancels and retries them."""

from __future__ import annotations

import pytest

from tests.simulation.seeds import BITE, STORES, reproduce, run_flows
from tests.simulation.world.world import StoreName, simulate

pytestmark = [pytest.mark.simulation, pytest.mark.timeout(600)]


@pytest.mark.parametrize("store", STORES)
def test_worlds_with_flows_keep_every_promise_and_end_flows_in_every_way(store: StoreName) -> None:
    bite = run_flows(store, 30, 30 + BITE)

    told = [
        f"{failure}\n  again: {reproduce(seed, store, flows=True)}"
        for seed, failure in bite.failures
    ]
    assert not told, "\n".join(told)
    happened = {"flow succeeded", "flow failed", "flow cancelled", "flow deleted"}
    happened |= {"added to a flow", "killed", "answer lost"}
    assert not {what for what in happened if not bite.counts[what]}, bite.counts


@pytest.mark.parametrize("store", STORES)
def test_a_seed_with_flows_tells_the_same_story_twice(store: StoreName) -> None:
    assert simulate(7, store, flows=True).digest == simulate(7, store, flows=True).digest
