"""Limited jobs in the user's transaction: the limit is there before the job."""

from __future__ import annotations

import psycopg

from tests.transactions.drivers import Open
from windlass import Limit, Rate, Windlass
from windlass._core.job.job import LimitUse


async def test_a_limit_is_defined_before_the_first_job_that_uses_it(
    app: Windlass, driver: Open, postgres_url: str
) -> None:
    @app.task(limits=Limit("api", Rate(100, per=1), key="{tenant}"))
    async def call(tenant: str) -> str:
        return tenant

    async with driver(postgres_url, None) as theirs:
        job = await theirs.enqueue(call.options(connection=theirs.connection), "acme")
        await theirs.commit()
    assert (await job.refresh()).limits == (LimitUse("api", "acme"),)
    async with app.worker():
        assert await job.result(timeout=20) == "acme"


def test_without_an_event_loop_too(postgres_url: str) -> None:
    app = Windlass(postgres_url)

    @app.task(limits=Limit("api", Rate(100, per=1), key="{tenant}"))
    def call(tenant: str) -> str:
        return tenant

    try:
        with psycopg.connect(postgres_url) as theirs:
            job = call.options(connection=theirs).enqueue_sync("acme")
        assert app.blocking.refresh(job).limits == (LimitUse("api", "acme"),)
    finally:
        app.blocking.close()
