"""Schedules on a backend and on the readable reference: every answer and every row agree."""

from __future__ import annotations

import pytest
from redis import Redis

from tests.servers.fresh import FreshPostgres, new_name
from tests.storage.comparison.schedule_machine import ScheduleMachine
from tests.storage.comparison.test_backends import compare
from tests.storage.redis.key_checker import disorder
from windlass._storage.postgres import open_postgres
from windlass._storage.protocol.storage import Storage
from windlass._storage.redis import open_redis


def test_sqlite_and_the_reference_agree_on_schedules() -> None:
    compare(ScheduleMachine, examples=20, steps=40)


@pytest.mark.slow
def test_postgres_and_the_reference_agree_on_schedules(fresh_postgres: FreshPostgres) -> None:
    class OnPostgres(ScheduleMachine):
        histories_at_every_step = False
        promotions_are_counted = False

        async def opened(self) -> Storage:
            self.schema = fresh_postgres.take_schema()
            return await open_postgres(fresh_postgres.home, clock=self.clock, schema=self.schema)

        def teardown(self) -> None:
            super().teardown()
            fresh_postgres.give_back_schema(self.schema)

    compare(OnPostgres, examples=12, steps=40)


@pytest.mark.slow
def test_redis_and_the_reference_agree_on_schedules(redis_url: str) -> None:
    class OnRedis(ScheduleMachine):
        histories_at_every_step = False

        async def opened(self) -> Storage:
            self.prefix = new_name()
            return await open_redis(redis_url, clock=self.clock, prefix=self.prefix)

        def teardown(self) -> None:
            super().teardown()
            if self.stores:
                assert disorder(server, f"{{{self.prefix}}}:") == []

    with Redis.from_url(redis_url) as server:
        compare(OnRedis, examples=15, steps=40)
