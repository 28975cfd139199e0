"""One app with its jobs in PostgreSQL, beside a table of the user's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest

from tests.servers.fresh import FreshPostgres
from tests.transactions.drivers import DRIVERS, Open
from windlass import Windlass


@pytest.fixture
def empty_database(fresh_postgres: FreshPostgres) -> Iterator[str]:
    """Where nobody has made our tables."""
    url = fresh_postgres.new_database()
    yield url
    fresh_postgres.drop_database(url)


@pytest.fixture
def postgres_url(clean_database: str) -> str:
    """For everybody else they may stand already."""
    return clean_database


@pytest.fixture
async def app(postgres_url: str) -> AsyncIterator[Windlass]:
    with psycopg.connect(postgres_url, autocommit=True) as line:
        line.execute("CREATE TABLE orders (name text PRIMARY KEY)")
    app = Windlass(postgres_url, poll=0.1)
    async with app:
        yield app


@pytest.fixture(params=list(DRIVERS))
def driver(request: pytest.FixtureRequest) -> Open:
    return DRIVERS[request.param]
