"""PostgreSQL functions: their settings, and how workers of the version before call them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from importlib import resources
from typing import Any

import asyncpg
import psycopg
import pytest

from windlass._core.job.state import State
from windlass._core.job.transition import succeed
from windlass._storage.postgres import PostgresStorage, open_postgres
from windlass._storage.postgres.jobs import jobs as postgres_jobs
from windlass._storage.postgres.jobs.apply import cooldown_args
from windlass._storage.postgres.transactions import transactions
from windlass.testing.conformance.steps import a_job, at_most, claim, ids, limited, look, started

_FOLDER = resources.files("windlass._storage.postgres.functions")
_LIST = re.compile(r"v_(\w+) constant text\[\] := '\{(.*?)\}'", re.DOTALL)
_LISTS = {
    name: set(re.findall(r"\w+", names))
    for name, names in _LIST.findall((_FOLDER / "99_settings.sql").read_text(encoding="utf-8"))
}
_SETTINGS = """
SELECT p.proname, coalesce(p.proconfig, '{}') FROM pg_proc p
 WHERE p.pronamespace = 'windlass'::regnamespace
"""


async def test_every_function_has_the_search_path_and_the_plans_it_needs(
    postgres_url: str,
) -> None:
    await (await open_postgres(postgres_url)).close()
    with psycopg.connect(postgres_url, autocommit=True) as line:
        found = line.execute(_SETTINGS).fetchall()
    for name, settings in found:
        wanted = set[str]()
        if name not in _LISTS["bare"]:
            wanted.add('search_path="windlass", pg_temp')
        if name not in _LISTS["bare"] | _LISTS["path_only"]:
            wanted.add("enable_seqscan=off")
        assert wanted <= set(settings), name
    # A name in a list is the name of a function: one that was renamed would lose its settings.
    assert set[str]().union(*_LISTS.values()) <= {name for name, _ in found}


async def test_functions_of_others_in_our_schema_keep_their_settings(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as line:
        line.execute("CREATE SCHEMA windlass")
        line.execute("CREATE FUNCTION windlass.beat() RETURNS int LANGUAGE sql AS 'SELECT 1'")
        await (await open_postgres(postgres_url)).close()
        found = line.execute(
            "SELECT proconfig FROM pg_proc WHERE oid = 'windlass.beat()'::regprocedure"
        ).fetchall()
    assert found == [(None,)]


def test_functions_without_settings_are_called_by_functions_only() -> None:
    sources = (_FOLDER / ".." / "sql").iterdir()
    texts = [file.read_text(encoding="utf-8") for file in sources if file.name.endswith(".sql")]
    called = {name for text in texts for name in re.findall(r"windlass\.(\w+)\(", text)}
    assert called
    assert not called & _LISTS["bare"]


# --- the jobs of a success ---


@pytest.fixture
async def storage(postgres_schema: tuple[str, str]) -> AsyncIterator[PostgresStorage]:
    url, schema = postgres_schema
    opened = await open_postgres(url, schema=schema)
    yield opened
    await opened.close()


async def test_a_worker_of_the_version_before_says_one_job_without_a_list(
    storage: PostgresStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def as_before(*given: Any) -> tuple[Any, ...]:
        cools, drains, thens, turns = cooldown_args(*given)
        return cools, drains, [one and one[1:-1] for one in thens], turns

    monkeypatch.setattr(postgres_jobs, "cooldown_args", as_before)
    await at_most(storage, db=1)
    running, then = [await started(storage) for _ in range(2)], [a_job(), limited("db")]
    await storage.jobs.apply(
        [
            succeed(job, by="w1", result=None, then=(new,))
            for job, new in zip(running, then, strict=True)
        ]
    )
    assert [(await look(storage, job)).state for job in running] == [State.SUCCEEDED] * 2
    assert sorted(ids(await claim(storage, 10))) == sorted(job.id for job in then)


async def test_so_does_its_finish_in_a_transaction_of_the_user(
    storage: PostgresStorage,
    postgres_schema: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encode = transactions._encode

    def as_before(order: Any) -> bytes:
        return encode(order).replace(b'"then":[', b'"then":').replace(b'}],"flows"', b'},"flows"')

    monkeypatch.setattr(transactions, "_encode", as_before)
    running, then = await started(storage), a_job()
    theirs = await asyncpg.connect(postgres_schema[0])
    try:
        async with theirs.transaction():
            success = succeed(running, by="w1", result=None, then=(then,))
            await storage.transactions.finish(theirs, success)
    finally:
        await theirs.close()
    assert (await look(storage, running)).state is State.SUCCEEDED
    assert ids(await claim(storage, 10)) == [then.id]


async def test_ten_thousand_jobs_are_one_write(storage: PostgresStorage) -> None:
    running, then = await started(storage), tuple(a_job() for _ in range(10_000))
    await storage.jobs.apply([succeed(running, by="w1", result=None, then=then)])
    assert len(await claim(storage, 10_000)) == 10_000
