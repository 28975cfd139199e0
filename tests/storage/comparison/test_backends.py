"""The same steps on a backend and on the readable reference: every answer and every row agree."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from redis import Redis

from tests.servers.fresh import FreshPostgres, new_name
from tests.storage.comparison.action_machine import OrderMachine
from tests.storage.comparison.machine import Machine
from tests.storage.redis.key_checker import disorder
from windlass._storage.postgres import open_postgres
from windlass._storage.protocol.storage import Storage
from windlass._storage.redis import open_redis

RANDOM = "WINDLASS_TEST_RANDOM"
"""Set to a number, as `make soak` does, it takes so many times as many histories, other ones each
time. Without it they are always the same, so that a change is judged by what it changed."""


def compare(machine: type[Machine], *, examples: int, steps: int) -> None:
    times = int(os.environ.get(RANDOM, "0"))
    run_state_machine_as_test(
        machine,
        settings=settings(
            derandomize=not times,
            # Making a failure smaller takes minutes: only where somebody looks for failures.
            phases=tuple(Phase) if times else (Phase.explicit, Phase.generate),
            max_examples=examples * max(times, 1),
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_sqlite_and_the_reference_agree_step_by_step() -> None:
    compare(OrderMachine, examples=25, steps=50)


@pytest.mark.slow
def test_postgres_and_the_reference_agree_step_by_step(fresh_postgres: FreshPostgres) -> None:
    class OnPostgres(OrderMachine):
        histories_at_every_step = False
        promotions_are_counted = False
        expired_are_met_alike = False

        async def opened(self) -> Storage:
            self.schema = fresh_postgres.take_schema()
            return await open_postgres(fresh_postgres.home, clock=self.clock, schema=self.schema)

        def teardown(self) -> None:
            super().teardown()
            fresh_postgres.give_back_schema(self.schema)

    compare(OnPostgres, examples=15, steps=50)


@pytest.mark.slow
def test_redis_and_the_reference_agree_step_by_step(redis_url: str) -> None:
    class OnRedis(OrderMachine):
        histories_at_every_step = False

        async def opened(self) -> Storage:
            self.prefix = new_name()
            return await open_redis(redis_url, clock=self.clock, prefix=self.prefix)

        def teardown(self) -> None:
            super().teardown()
            if self.stores:
                assert disorder(server, f"{{{self.prefix}}}:") == []

    with Redis.from_url(redis_url) as server:
        compare(OnRedis, examples=25, steps=50)
