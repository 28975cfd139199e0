"""The simulation can fail: every planted protocol bug is found, and soon."""

from __future__ import annotations

import pytest

import tests.simulation.mutants.events
import tests.simulation.mutants.flows
import tests.simulation.mutants.limits  # noqa: F401
from tests.simulation.framework.history import Violation
from tests.simulation.mutants.jobs import MUTANTS, Mutant, planted
from tests.simulation.world.world import simulate

SEEDS = 40

pytestmark = [pytest.mark.simulation, pytest.mark.timeout(600)]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_found_within_forty_seeds(mutant: Mutant) -> None:
    with planted(mutant):
        seeds = range(mutant.first, mutant.first + SEEDS)
        found = next(filter(None, (broken(seed, mutant) for seed in seeds)), None)

    assert found is not None, f"{mutant.name} lived through {SEEDS} seeds on {mutant.store}"
    print(f"{mutant.name}: {found}")  # noqa: T201 -- shown by -rP
    assert found.startswith(mutant.rule)


def broken(seed: int, mutant: Mutant) -> str | None:
    try:
        simulate(seed, mutant.store, flows=mutant.flows)
    except Violation as violation:
        return f"{violation} (seed {seed})"
    return None


def test_nothing_of_a_mutant_stays_behind() -> None:
    for mutant in MUTANTS:
        with planted(mutant):
            pass
    simulate(1, "memory")
    simulate(1, "sqlite")
