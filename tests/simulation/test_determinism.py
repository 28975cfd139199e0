"""One seed, one log."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from tests.simulation.fixtures import busy_world, simulate
from tests.simulation.framework.loop import (
    SimLoop,
)

# --- determinism -----------------------------------------------------------------------------


ELSEWHERE = """
import sys
from tests.simulation.fixtures import busy_world, simulate
print(simulate(busy_world, seed=int(sys.argv[1])).digest)
"""


def digest_elsewhere(seed: int, hash_seed: str) -> str:
    environment = os.environ | {
        "PYTHONHASHSEED": hash_seed,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    root = Path(__file__).parents[2]
    command = [sys.executable, "-W", "error", "-c", ELSEWHERE, str(seed)]
    ended = subprocess.run(
        command, env=environment, cwd=root, capture_output=True, text=True, check=True
    )
    assert ended.stderr == ""
    return ended.stdout.strip()


def test_a_seed_gives_one_log_in_every_process() -> None:
    here = simulate(busy_world, seed=42)
    assert len(here.log) > 500
    assert {digest_elsewhere(42, "1"), digest_elsewhere(42, "2")} == {here.digest}


def test_another_seed_gives_another_log() -> None:
    digests = {simulate(busy_world, seed=seed).digest for seed in range(10)}
    assert len(digests) == 10


def test_what_ran_before_does_not_show_in_the_log() -> None:
    first = simulate(busy_world, seed=3)
    ballast = [[object()] for _ in range(10_000)]
    assert simulate(busy_world, seed=3) == first
    assert ballast


def test_the_digest_depends_on_the_line_the_process_and_the_time() -> None:
    def digest(seconds: float, name: str, line: str) -> str:
        async def main(loop: SimLoop) -> str:
            async def work() -> None:
                loop.trace(line)

            await asyncio.sleep(seconds)
            await loop.spawn_process(name, work).join()
            return loop.digest()

        result = simulate(main)
        assert result.value == result.digest
        return result.digest

    assert digest(1, "a", "x") == digest(1, "a", "x")
    assert len({digest(1, "a", "x"), digest(2, "a", "x"), digest(1, "b", "x")}) == 3
    assert digest(1, "a", "x") != digest(1, "a", "y")


def test_the_log_ends_with_main() -> None:
    async def main(loop: SimLoop) -> str:
        async def work() -> None:
            try:
                await asyncio.sleep(100)
            finally:
                loop.trace("too late")

        tasks = [asyncio.create_task(work())]
        loop.spawn_process("living", work)
        loop.spawn_process("killed", work).kill()
        await asyncio.sleep(1)
        assert not tasks[0].done()
        return loop.digest()

    result = simulate(main)
    assert result.value == result.digest
    assert [entry.line for entry in result.log] == ["spawn living", "spawn killed", "kill killed"]
