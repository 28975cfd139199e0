"""The way of a job stays short: ``make walk`` counts it, and prints it hop by hop."""

from __future__ import annotations

import pytest

from tests.architecture.walk import ROOT, Hop, format_walk, trace

FUNCTIONS, FILES = 89, 26
"""The most that one job may pass. May be lowered, never raised: it was 179 and 51 once."""
_TRIES = 8
"""A machine that is busy with other things may let a background duty into one trace."""


@pytest.fixture(scope="module")
def hops() -> list[Hop]:
    """The shortest of a few walks, or the first that is short enough."""
    walks: list[list[Hop]] = []
    for _ in range(_TRIES):
        walks.append(trace(ROOT / "src"))
        if _is_short(walks[-1]):
            break
    return min(walks, key=len)


def _is_short(hops: list[Hop]) -> bool:
    return len(hops) <= FUNCTIONS and len({file for file, _ in hops}) <= FILES


def test_a_job_passes_few_functions_in_few_files(hops: list[Hop]) -> None:
    assert _is_short(hops), "\n".join(format_walk(hops))


def test_a_walk_passes_claimer_runner_and_finisher_in_this_order(hops: list[Hop]) -> None:
    assert hops[0] == ("_tasks/task.py", "Task.enqueue")
    order = [hops.index(hop) for hop in MILESTONES]
    assert order == sorted(order)


MILESTONES = [
    ("_client/client.py", "Client.enqueue"),
    ("_worker/claim/claimer.py", "Claimer.step"),
    ("_worker/run/runner.py", "Runner.start"),
    ("_worker/finish/finisher.py", "Finisher.add"),
    ("_core/job/transition.py", "decide"),
    ("_worker/finish/finisher.py", "Finisher._settle"),
]
