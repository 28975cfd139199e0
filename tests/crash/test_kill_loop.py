"""A hundred workers killed at random. `make kill-loop` kills any number."""

from __future__ import annotations

import sys

import pytest

from tests.crash.kill_loop import RUNNING, KillLoop, distribution
from tests.crash.places import POSTGRES, REDIS, SQLITE
from tests.crash.scene import Scene

pytestmark = pytest.mark.crash


@pytest.mark.parametrize(
    ("place", "seed", "cycles"),
    [(SQLITE, 1, 50), (POSTGRES, 1, 20), (REDIS, 1, 20)],
    indirect=["place"],
)
def test_workers_are_killed_at_random_and_nothing_is_lost(
    scene: Scene, seed: int, cycles: int, capsys: pytest.CaptureFixture[str]
) -> None:
    loop = KillLoop(scene, seed)
    loop.run(cycles)
    with capsys.disabled():  # to standard error: under xdist the other one leads nowhere
        print(f"\n{cycles} kills: {distribution(loop.hits)}", file=sys.stderr)  # noqa: T201
    assert loop.hits.total() == cycles
    assert loop.hits[RUNNING] >= 0.8 * cycles, distribution(loop.hits)
