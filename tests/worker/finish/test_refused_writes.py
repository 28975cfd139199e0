"""A trigger in the user's database refuses one result: the outcomes of other jobs are stored."""

from __future__ import annotations

from pathlib import Path

import apsw
import psycopg
import pytest

from windlass import Windlass
from windlass._core.job.state import State

SQLITE = """
CREATE TRIGGER refuse BEFORE UPDATE ON jobs
WHEN NEW.task = 'refused' AND NEW.result IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'refused by a trigger'); END
"""
POSTGRES = """
CREATE FUNCTION windlass.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.task = 'refused' AND NEW.result IS NOT NULL THEN
        RAISE EXCEPTION 'refused by a trigger';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER refuse BEFORE UPDATE ON windlass.jobs
FOR EACH ROW EXECUTE FUNCTION windlass.refuse();
"""


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/jobs.db"
    return str(request.getfixturevalue("postgres_url"))


def add_trigger(url: str) -> None:
    if url.startswith("sqlite"):
        apsw.Connection(url.removeprefix("sqlite:///")).execute(SQLITE)
    else:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(POSTGRES)


async def test_a_result_that_a_trigger_refuses_fails_its_job_alone(url: str) -> None:
    app = Windlass(url)

    @app.task(name="refused")
    async def refused() -> str:
        return "result"

    @app.task(name="plain")
    async def plain(number: int) -> int:
        return number

    async with app:
        bad = await refused.enqueue()
        good = await app.enqueue_many(plain.call(number) for number in range(10))
        add_trigger(url)
        async with app.worker(until_empty=True) as worker:
            await worker.wait()
        assert [await job.result(timeout=0) for job in good] == list(range(10))
        record = await bad.refresh()
        assert record.state is State.FAILED
        assert record.error is not None
        assert record.error.kind == "OutcomeNotStorable"
        assert "refused by a trigger" in record.error.message
