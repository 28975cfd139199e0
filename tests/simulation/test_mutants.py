"""The simulation can fail: every planted protocol bug is found, and soon."""

from __future__ import annotations

import pytest

from tests.simulation import mutants_of_gates
from tests.simulation.mutants import MUTANTS, Mutant, planted
from windlass.testing.simulation.history import Violation
from windlass.testing.simulation.world import simulate

SEEDS = 100
assert mutants_of_gates  # planting them is all it is imported for

pytestmark = [pytest.mark.simulation, pytest.mark.timeout(600)]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_found_within_a_hundred_seeds(mutant: Mutant) -> None:
    with planted(mutant):
        for seed in range(1, SEEDS + 1):
            try:
                simulate(seed, mutant.store)
            except Violation as violation:
                print(f"{mutant.name}: seed {seed}: {violation}")  # noqa: T201 -- shown by -rP
                return
    pytest.fail(f"{mutant.name} lived through {SEEDS} seeds on {mutant.store}")


def test_nothing_of_a_mutant_stays_behind() -> None:
    for mutant in MUTANTS:
        with planted(mutant):
            pass
    simulate(1, "memory")
    simulate(1, "sqlite")
