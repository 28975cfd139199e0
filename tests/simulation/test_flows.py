"""Worlds with flows: random graphs under faults, with an operator who cancels and retries them."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.seeds import BITE, WITH_FLOWS, reproduce, run_flows
from tests.simulation.world.world import StoreName, simulate

SEEDS = 20

pytestmark = [pytest.mark.simulation, pytest.mark.timeout(600)]


@pytest.mark.parametrize("first", range(0, SEEDS, BITE))
@pytest.mark.parametrize("store", WITH_FLOWS)
def test_a_world_with_flows_keeps_every_promise(store: StoreName, first: int) -> None:
    bite = run_flows(store, first, first + BITE)

    told = [
        f"{failure}\n  again: {reproduce(seed, store, flows=True)}"
        for seed, failure in bite.failures
    ]
    assert not told, "\n".join(told)


@pytest.mark.parametrize("store", WITH_FLOWS)
def test_flows_end_in_every_way_somewhere(store: StoreName) -> None:
    counts: Counter[str] = Counter()
    for first in range(100, 100 + SEEDS, BITE):
        bite = run_flows(store, first, first + BITE)
        assert not bite.failures
        counts += bite.counts

    happened = {"flow succeeded", "flow failed", "flow cancelled", "flow deleted"}
    happened |= {"added to a flow", "killed", "answer lost"}
    assert not {what for what in happened if not counts[what]}, counts


@pytest.mark.parametrize("store", WITH_FLOWS)
def test_a_seed_with_flows_tells_the_same_story_twice(store: StoreName) -> None:
    assert simulate(7, store, flows=True).digest == simulate(7, store, flows=True).digest
