"""A hundred workers killed at random. `make kill-loop` kills any number."""

from __future__ import annotations

import asyncio
import sys

import pytest

from tests.crash.harness.backends import POSTGRES, REDIS, SQLITE
from tests.crash.harness.redis_store import RedisStore
from tests.crash.harness.scene import Scene
from tests.crash.kill_loop import RUNNING, KillLoop, distribution
from windlass._storage.redis import open_redis
from windlass.testing.conformance.steps import a_job

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


def test_the_accounts_of_redis_cover_every_job(redis_prefix: tuple[str, str]) -> None:
    """A page of the backend holds 5,000; a long run stores more."""
    url, prefix = redis_prefix
    jobs = [a_job() for _ in range(5_200)]

    async def store() -> None:
        storage = await open_redis(url, prefix=prefix)
        await storage.jobs.insert(jobs)
        await storage.close()

    asyncio.run(store())
    seen = RedisStore(url, prefix)
    assert [job.id for job in seen.jobs()] == [job.id for job in jobs]
    seen.close()
