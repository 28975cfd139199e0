"""Whole clusters under faults: workers, producers and an operator on one store, seed by seed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest

from tests.simulation.seeds import BITE, STORES, reproduce, run_bite
from tests.simulation.world.world import StoreName, simulate

SEEDS = 20
"""For each store, and as many again below; `make simulate` runs any number."""

# On a busy machine ten worlds may take their time.
pytestmark = [pytest.mark.simulation, pytest.mark.timeout(600)]


@pytest.mark.parametrize("first", range(0, SEEDS, BITE))
@pytest.mark.parametrize("store", STORES)
def test_a_world_that_was_healed_has_kept_every_promise(store: StoreName, first: int) -> None:
    bite = run_bite(store, first, first + BITE)

    told = [f"{failure}\n  again: {reproduce(seed, store)}" for seed, failure in bite.failures]
    assert not told, "\n".join(told)


@pytest.mark.parametrize("seed", [287, 1254, 1469])
def test_what_an_old_release_reaps_from_a_new_one_comes_back_soon(seed: int) -> None:
    """The worker that buries another lacks the task of the job it gives back."""
    simulate(seed, "sqlite")


@pytest.mark.parametrize(("store", "seed"), [("memory", 99), ("memory", 100), ("sqlite", 77)])
def test_a_claim_that_is_given_back_is_told_of_once(store: StoreName, seed: int) -> None:
    """The answer to giving it back was lost, so it was given back again."""
    simulate(seed, store)


@pytest.mark.parametrize("seed", [249, 404, 505])
def test_an_id_that_looks_like_a_schedules_costs_no_run_its_end(seed: int) -> None:
    """The worker lacks the task, and asks whether a schedule made the job."""
    simulate(seed, "sqlite" if seed == 404 else "memory")


@pytest.mark.parametrize("seed", [456, 507])
def test_breakers_open_in_time_after_the_clock_was_set_back(seed: int) -> None:
    simulate(seed, "sqlite")


def test_a_job_whose_caller_was_cancelled_is_told_of() -> None:
    simulate(596, "sqlite")


def test_a_job_that_a_late_run_enqueues_has_time_to_end() -> None:
    simulate(2946, "memory")


def test_a_job_given_back_more_often_than_its_history_holds_keeps_its_errors() -> None:
    simulate(737, "memory")


def test_a_beat_of_the_dead_that_arrives_late_puts_its_recovery_off() -> None:
    simulate(1988, "memory")


def test_a_call_that_stalls_beyond_the_last_job_is_waited_for() -> None:
    simulate(777, "sqlite")


def test_a_holder_that_expires_at_an_insert_is_told_of_once() -> None:
    simulate(92, "memory")


def test_a_job_that_a_worker_could_not_run_waits_for_the_others_first() -> None:
    """In its head start other jobs pass it on that worker."""
    simulate(118, "sqlite")


@pytest.mark.parametrize("store", STORES)
def test_a_seed_tells_the_same_story_twice(store: StoreName) -> None:
    for seed in range(3):
        assert simulate(seed, store).digest == simulate(seed, store).digest


@pytest.mark.parametrize(
    ("store", "seed", "flows"), [("memory", 11, False), ("sqlite", 11, False), ("sqlite", 3, True)]
)
def test_another_interpreter_with_other_hashes_tells_the_same_story(
    store: StoreName, seed: int, *, flows: bool
) -> None:
    """In the world with flows one operation ends two of them."""
    program = (
        "from tests.simulation.world.world import simulate\n"
        f"print(simulate({seed}, {store!r}, flows={flows}).digest)"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hashes},
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        for hashes in ("1", "2")
    }

    assert digests == {simulate(seed, store, flows=flows).digest}


@pytest.mark.parametrize("store", STORES)
def test_everything_that_can_go_wrong_does_go_wrong_somewhere(store: StoreName) -> None:
    counts: Counter[str] = Counter()
    for first in range(100, 100 + SEEDS, BITE):
        bite = run_bite(store, first, first + BITE)
        assert not bite.failures
        counts += bite.counts

    happened = {"killed", "paused", "replaced", "buried", "answer lost", "refused"}
    happened |= {"body well", "body interrupted", "body raised Snooze", "body raised GiveUp"}
    happened |= {"failed to start", "body raised Throttled", "cooled", "opened", "trial"}
    happened |= {"replaced arguments", "replaced due", "followed up"}
    happened |= {"timed out", "no connection"} if store == "memory" else {"no disk"}
    assert not {what for what in happened if not counts[what]}, counts


def test_a_beat_that_stalls_before_and_after_an_outage_is_a_reason_to_be_buried() -> None:
    simulate(71076, "memory")
