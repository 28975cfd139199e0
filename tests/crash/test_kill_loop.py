"""A hundred workers killed at random. `make kill-loop` kills any number."""

from __future__ import annotations

import sys

import pytest

from tests.crash.kill_loop import RUNNING, KillLoop, distribution
from tests.crash.scene import Scene

pytestmark = pytest.mark.crash

CYCLES = 50


@pytest.mark.parametrize("seed", [1, 2])
def test_workers_are_killed_at_random_and_nothing_is_lost(
    scene: Scene, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    loop = KillLoop(scene, seed)
    loop.run(CYCLES)
    with capsys.disabled():  # to standard error: under xdist the other one leads nowhere
        print(f"\n{CYCLES} kills: {distribution(loop.hits)}", file=sys.stderr)  # noqa: T201
    assert loop.hits.total() == CYCLES
    assert loop.hits[RUNNING] >= 0.8 * CYCLES, distribution(loop.hits)
