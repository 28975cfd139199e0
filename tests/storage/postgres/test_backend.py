"""What only PostgreSQL promises: opening, rights, settings of others, and clean tables."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from pathlib import Path

import asyncpg
import psycopg
import pytest
from psycopg import sql

from tests.servers.fresh import new_name
from tests.servers.postgres import PostgresServer
from windlass import Windlass
from windlass._app.parts import parts_of
from windlass._core.job.transition import succeed
from windlass._storage.postgres import PostgresStorage, open_postgres
from windlass._storage.postgres.health import VacuumHealth
from windlass._storage.postgres.io.errors import translate
from windlass._storage.postgres.io.url import parse_url
from windlass._storage.protocol.jobs import Want
from windlass._storage.shared import migrations
from windlass.errors import (
    ConfigError,
    InvalidArgument,
    SchemaTooNew,
    StorageError,
    StorageRefused,
    StorageReplaced,
    StorageUnavailable,
    StoreBusy,
)
from windlass.testing.conformance.steps import (
    a_job,
    add,
    at_most,
    claim,
    claim_one,
    enlist,
    ids,
    limited,
    look,
    run_now,
    started,
    succeeded,
    total,
)

MIGRATIONS = migrations.find_migrations("windlass._storage.postgres.migrations")
Order = Callable[..., list[tuple[object, ...]]]


@pytest.fixture
def order(postgres_url: str) -> Iterator[Order]:
    """Somebody else's connection to the same database."""
    with psycopg.connect(postgres_url, autocommit=True) as line:

        def ordered(text: str, *names: str) -> list[tuple[object, ...]]:
            statement = sql.SQL(text).format(*(sql.Identifier(name) for name in names))
            cursor = line.execute(statement)
            return cursor.fetchall() if cursor.description else []

        yield ordered


@pytest.fixture
async def storage(postgres_url: str) -> AsyncIterator[PostgresStorage]:
    opened = await open_postgres(postgres_url)
    yield opened
    await opened.close()


@pytest.fixture
def role(order: Order, postgres_url: str) -> Iterator[tuple[str, str]]:
    """A role without any rights, and the URL to come as it."""
    name = new_name()
    order("CREATE ROLE {} LOGIN", name)
    yield name, postgres_url.replace("postgres@", f"{name}@")
    order("DROP OWNED BY {}", name)
    order("DROP ROLE {}", name)


async def refused(url: str, **settings: str) -> StorageError | ConfigError:
    """What opening says."""
    try:
        storage = await open_postgres(url, **settings)  # type: ignore[arg-type]
    except (StorageError, ConfigError) as error:
        return error
    await storage.close()
    pytest.fail("it was opened")


# --- opening ----------------------------------------------------------------------------------


async def test_of_many_that_open_a_new_database_at_once_one_makes_the_schema(
    postgres_url: str, order: Order
) -> None:
    storages = await asyncio.gather(*(open_postgres(postgres_url) for _ in range(12)))
    assert order("SELECT version FROM windlass.schema_versions ORDER BY version") == [
        (migration.version,) for migration in MIGRATIONS
    ]
    await add(storages[0], a_job())
    assert await total(storages[-1]) == 1
    for storage in storages:
        await storage.close()


async def test_two_schemas_of_one_database_do_not_see_each_other(postgres_url: str) -> None:
    one = await open_postgres(postgres_url, schema="one")
    two = await open_postgres(postgres_url, schema="two")
    await add(one, a_job())
    assert (await total(one), await total(two)) == (1, 0)
    await one.close()
    await two.close()


@pytest.mark.parametrize(
    "schema", ["", "Windlass", "a b", 'a"b', "pg_mine", "information_schema", "1a", "x" * 60]
)
async def test_a_schema_that_would_need_quotes_is_refused(postgres_url: str, schema: str) -> None:
    assert isinstance(await refused(postgres_url, schema=schema), ConfigError)


async def test_a_schema_of_a_newer_major_version_is_refused(
    storage: PostgresStorage, postgres_url: str, order: Order
) -> None:
    order("INSERT INTO windlass.schema_versions (version) VALUES (200)")
    error = await refused(postgres_url)
    assert isinstance(error, SchemaTooNew)
    assert "Upgrade windlass" in str(error)


async def test_a_schema_of_a_newer_minor_version_is_used(
    storage: PostgresStorage, postgres_url: str, order: Order
) -> None:
    order("INSERT INTO windlass.schema_versions (version) VALUES (199)")
    other = await open_postgres(postgres_url)
    await add(other, a_job())
    await other.close()


async def test_a_role_that_may_not_create_the_schema_gets_advice(
    role: tuple[str, str],
) -> None:
    name, url = role
    error = await refused(url)
    assert isinstance(error, StorageUnavailable)
    assert f"CREATE SCHEMA windlass AUTHORIZATION {name}" in str(error)


async def test_a_role_without_any_right_to_create_uses_what_is_there(
    storage: PostgresStorage, role: tuple[str, str], order: Order
) -> None:
    name, url = role
    order("GRANT USAGE ON SCHEMA windlass TO {}", name)
    order("GRANT ALL ON ALL TABLES IN SCHEMA windlass TO {}", name)
    modest = await open_postgres(url)
    await succeeded(modest, await started(modest))
    await modest.maintenance.tidy()
    await modest.close()


async def test_a_role_without_rights_on_the_tables_gets_an_error(
    storage: PostgresStorage, role: tuple[str, str], order: Order
) -> None:
    name, url = role
    order("GRANT USAGE ON SCHEMA windlass TO {}", name)
    assert "USAGE on the schema, and ALL on its tables" in str(await refused(url))


async def test_a_database_that_takes_no_writes_is_refused_with_the_reason(
    storage: PostgresStorage, postgres_url: str, order: Order
) -> None:
    name = postgres_url.rpartition("/")[2]
    order("ALTER DATABASE {} SET default_transaction_read_only = on", name)
    error = await refused(postgres_url)
    assert isinstance(error, StorageUnavailable)
    assert "takes no writes" in str(error)


async def test_a_database_that_is_missing_is_named(postgres_url: str) -> None:
    error = await refused(postgres_url + "_not")
    assert isinstance(error, StorageUnavailable)
    assert "no such database" in str(error)


async def test_a_url_as_libpq_takes_it_opens(postgres_url: str) -> None:
    options = "sslmode=prefer&channel_binding=prefer&gssencmode=disable&sslsni=1&keepalives_idle=9"
    storage = await open_postgres(f"{postgres_url}?{options}&load_balance_hosts=disable")
    assert await total(storage) == 0
    await storage.close()


async def test_url_options_that_the_driver_cannot_keep_are_refused(postgres_url: str) -> None:
    told = str(await refused(f"{postgres_url}?sslmode=require&channel_binding=require"))
    assert "channel_binding=require" in told
    assert "sslmode=verify-full" in told


@pytest.mark.parametrize("option", ["sslrootcert", "sslcrl", "sslcert", "sslkey"])
async def test_a_file_for_tls_that_cannot_be_used_is_not_waited_for(
    option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(tmp_path, "empty.pem").touch()
    nowhere = "postgresql://postgres@127.0.0.1:1/x?sslmode=verify-full"
    for name in ["none.pem", "empty.pem"] if option in {"sslrootcert", "sslcrl"} else ["none.pem"]:
        error = await refused(f"{nowhere}&{option}={tmp_path}/{name}")
        assert isinstance(error, ConfigError)
        assert f"The file that {option} names in the PostgreSQL URL cannot be used" in str(error)
        assert "Name a PEM file" in str(error)
    monkeypatch.setenv(f"PG{option.upper()}", f"{tmp_path}/none.pem")
    assert f"PG{option.upper()} names in the environment" in str(await refused(nowhere))


async def test_a_file_for_tls_that_is_not_used_need_not_be_there(postgres_url: str) -> None:
    storage = await open_postgres(f"{postgres_url}?sslmode=prefer&sslrootcert=/none.pem")
    await storage.close()
    storage = await open_postgres(f"{postgres_url}?sslmode=disable&sslcert=/none.pem")
    await storage.close()


async def test_a_server_without_tls_is_named_where_the_url_demands_it(postgres_url: str) -> None:
    error = await refused(f"{postgres_url}?sslmode=require")
    assert isinstance(error, StorageRefused)
    assert "offers no TLS" in str(error)
    assert "sslmode=prefer" in str(error)


async def test_an_unknown_option_of_the_url_is_named(postgres_url: str) -> None:
    assert "nonsense" in str(await refused(f"{postgres_url}?nonsense=1"))


async def test_of_several_hosts_the_one_that_takes_writes_is_used(
    own_postgres: Callable[..., PostgresServer], postgres_url: str
) -> None:
    standby = own_postgres(default_transaction_read_only="on")
    host = postgres_url.rpartition("@")[2]
    name = host.rpartition("/")[2]
    with psycopg.connect(standby.url, autocommit=True) as line:
        line.execute("SET default_transaction_read_only = off")
        line.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    url = f"postgresql://postgres@127.0.0.1:{standby.port},{host}"
    storage = await open_postgres(url)
    await add(storage, a_job())
    await storage.close()


# --- secrets ----------------------------------------------------------------------------------


async def test_the_password_is_never_shown(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass._storage.postgres.io.connection.RETRY_SECONDS", 0.2)
    secret = "s3cret%23word"
    url = postgres_url.replace("postgres@", f"postgres:{secret}@")
    storage = await open_postgres(url)
    shown = [storage.describe(), repr(parse_url(url)), repr(storage)]
    await storage.close()
    shown.append(str(await refused(url + "_not")))
    for broken in ("x:y", "h:1@h", "#", "?a", "?sslmode=no", "?pgbouncer=maybe", "?port=p"):
        wrong = f"postgresql://postgres:{secret}@127.0.0.1:1{broken}"
        error = await refused(wrong)
        shown += [str(error), repr(error), str(error.__cause__), str(error.__context__)]
    assert not [text for text in shown if "s3cret" in text]


# --- settings of others -----------------------------------------------------------------------


async def test_commits_are_durable_though_the_role_says_otherwise(
    postgres_url: str, order: Order
) -> None:
    name = postgres_url.rpartition("/")[2]
    order("ALTER DATABASE {} SET synchronous_commit = off", name)
    storage = await open_postgres(postgres_url)
    order("CREATE TABLE seen (setting text)")
    order(
        "CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "INSERT INTO public.seen VALUES (current_setting('synchronous_commit')); RETURN NULL; "
        "END $$"
    )
    order("CREATE TRIGGER see AFTER INSERT OR UPDATE ON windlass.jobs EXECUTE FUNCTION see()")
    running = await started(storage)
    await succeeded(storage, running)
    await storage.jobs.cancel(await add(storage, a_job()))
    await run_now(storage, *await add(storage, a_job(delay=timedelta(hours=1))))
    assert set(order("SELECT setting FROM seen")) == {("on",)}
    await storage.close()


async def test_limits_hold_though_the_role_asks_for_serializable(
    postgres_url: str, order: Order
) -> None:
    name = postgres_url.rpartition("/")[2]
    order("ALTER DATABASE {} SET default_transaction_isolation = 'serializable'", name)
    storage = await open_postgres(postgres_url)
    await at_most(storage, api=1)
    await add(storage, limited("api"), limited("api"))
    await claim_one(storage)
    assert not (await storage.jobs.claim("w1", [], total=1)).jobs
    await storage.close()


async def test_behind_a_pooler_limits_say_what_isolation_the_role_needs(
    order: Order, role: tuple[str, str], storage: PostgresStorage
) -> None:
    name, url = role
    order("GRANT ALL ON SCHEMA windlass TO {}", name)
    order("GRANT ALL ON ALL TABLES IN SCHEMA windlass TO {}", name)
    order("ALTER ROLE {} SET default_transaction_isolation = 'serializable'", name)
    await at_most(storage, mail=1)
    through = await open_postgres(f"{url}?pgbouncer=true")
    with pytest.raises(StorageError, match=f"ALTER ROLE {name} SET default_transaction_isolation"):
        await through.jobs.insert([limited("mail")])
    await through.close()


async def test_a_statement_timeout_that_is_too_short_is_named(
    postgres_url: str, order: Order
) -> None:
    name = postgres_url.rpartition("/")[2]
    await (await open_postgres(postgres_url)).close()
    order("ALTER DATABASE {} SET statement_timeout = '100ms'", name)
    storage = await open_postgres(postgres_url)
    with psycopg.connect(postgres_url) as stranger:
        stranger.execute("LOCK TABLE windlass.jobs")
        with pytest.raises(StoreBusy, match="statement_timeout"):
            await storage.admin.counts()
    assert await storage.admin.counts() == []
    await storage.close()


async def test_a_claim_passes_over_a_job_that_another_transaction_has_locked(
    postgres_url: str, storage: PostgresStorage
) -> None:
    await enlist(storage)
    locked, free = await add(storage, a_job(), a_job())
    with psycopg.connect(postgres_url) as other:
        other.execute("SELECT 1 FROM windlass.jobs WHERE id = %s FOR UPDATE", (locked,))
        async with asyncio.timeout(30):
            assert ids(await claim(storage, 2)) == [free]
    assert ids(await claim(storage, 2)) == [locked]


async def test_an_action_does_not_wait_for_ever_for_an_open_transaction(
    postgres_url: str, storage: PostgresStorage, order: Order
) -> None:
    (job,) = await add(storage, a_job(delay=timedelta(hours=1)))
    order("ALTER FUNCTION windlass.order_jobs SET lock_timeout = '50ms'")
    with psycopg.connect(postgres_url) as stranger:
        stranger.execute("SELECT 1 FROM windlass.jobs FOR UPDATE")
        with pytest.raises(StoreBusy, match="open"):
            await run_now(storage, job)
    assert await run_now(storage, job) == [True]


async def test_a_schema_that_is_dropped_is_noticed(storage: PostgresStorage, order: Order) -> None:
    order("DROP SCHEMA windlass CASCADE")
    with pytest.raises(StorageReplaced):
        await storage.admin.counts()


async def test_text_that_postgres_cannot_store_raises_for_the_caller(
    storage: PostgresStorage,
) -> None:
    with pytest.raises(InvalidArgument):
        await storage.admin.pause("nul\0")


# --- clean tables -----------------------------------------------------------------------------


async def test_payloads_that_are_too_large_together_are_stored_apart(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass._storage.postgres.jobs.insert._MOST_BYTES", 1000)
    app = Windlass(postgres_url)

    @app.task(name="keep")
    async def keep(text: str) -> None: ...

    async with app:
        jobs = await asyncio.gather(*(keep.enqueue("x" * 600) for _ in range(5)))
        assert await total(await parts_of(app).storage()) == len(jobs)
        with pytest.raises(InvalidArgument, match="in slices"):
            await app.enqueue_many([keep.call("x" * 600), keep.call("y" * 600)])


def test_a_broken_connection_is_not_explained_by_the_state_of_the_driver() -> None:
    told = translate(asyncpg.InternalClientError("cannot switch to state 11"), "db:5432/shop")
    assert isinstance(told, StorageUnavailable)
    assert "db:5432/shop cannot be reached: the connection broke" in str(told)


async def test_a_snapshot_that_holds_dead_rows_is_reported_once_with_its_owner(
    storage: PostgresStorage, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    health = VacuumHealth(storage._db, old_after=timedelta())
    with psycopg.connect(postgres_url) as stranger, caplog.at_level(logging.WARNING):
        stranger.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        stranger.execute("SELECT 1")
        await health.check()
        await health.check()
        told = [record.getMessage() for record in caplog.records]
        assert len(told) == 1
        assert f"connection {stranger.info.backend_pid} " in told[0]


async def test_a_snapshot_of_another_role_is_seen_without_special_rights(
    storage: PostgresStorage,
    role: tuple[str, str],
    postgres_url: str,
    order: Order,
    caplog: pytest.LogCaptureFixture,
) -> None:
    name, url = role
    order("GRANT ALL ON SCHEMA windlass TO {}", name)
    order("GRANT ALL ON ALL TABLES IN SCHEMA windlass TO {}", name)
    modest = await open_postgres(url)
    health = VacuumHealth(modest._db, old_after=timedelta())
    with psycopg.connect(postgres_url) as stranger, caplog.at_level(logging.WARNING):
        stranger.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        stranger.execute("SELECT 1")
        await health.check()
        assert f"connection {stranger.info.backend_pid} " in caplog.text
    await modest.close()


async def test_dead_rows_are_vacuumed_when_there_are_enough(
    storage: PostgresStorage, order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass._storage.postgres.health._DEAD_AT_LEAST", 100)
    await enlist(storage)
    await storage.jobs.insert([a_job() for _ in range(500)])
    order("DELETE FROM windlass.jobs")
    order("SELECT pg_stat_force_next_flush()")
    await storage.maintenance.tidy()
    vacuumed = order(
        "SELECT last_vacuum IS NOT NULL FROM pg_stat_user_tables WHERE relname = 'jobs'"
    )
    assert vacuumed == [(True,)]
    (job,) = await add(storage, a_job())
    assert (await look(storage, job)).id == job


async def test_a_busy_worker_has_dead_rows_vacuumed_without_waiting_for_a_chore(
    storage: PostgresStorage, order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass._storage.postgres.health._DEAD_AT_LEAST", 100)
    monkeypatch.setattr("windlass._storage.postgres.health._LOOK_AFTER", 2)
    worker = "w1"
    await enlist(storage, worker)
    await storage.jobs.insert([a_job() for _ in range(502)])
    claimed = await storage.jobs.claim(worker, [Want("default", 2)], total=2)
    order("DELETE FROM windlass.jobs WHERE state = 0")
    order("SELECT pg_stat_force_next_flush()")
    first, second = claimed.jobs
    await storage.jobs.apply([succeed(first, by=worker, result=None)])
    before = storage.maintenance._health._sweeping
    await storage.jobs.apply([succeed(second, by=worker, result=None)])
    sweeping = storage.maintenance._health._sweeping
    assert before is None
    assert sweeping is not None
    await sweeping
    vacuumed = order(
        "SELECT last_vacuum IS NOT NULL FROM pg_stat_user_tables WHERE relname = 'jobs'"
    )
    assert vacuumed == [(True,)]
