"""``windlass db drop``, ``db reset``, ``db migrate --check`` and ``migrate="manual"``."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from pathlib import Path

import apsw
import asyncpg
import pytest
import redis.asyncio

from tests.cli.fixtures import empty_file
from windlass import Windlass
from windlass._app.parts import parts_of
from windlass._cli.main import main
from windlass._storage.open import StorageOpener
from windlass.admin import AuditRecord
from windlass.errors import SchemaTooOld, StorageRefused
from windlass.testing.conformance.steps import enlist


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def own_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A storage that no other test uses, one backend after the other."""
    fixture = {"postgres": "postgres_url", "redis": "redis_url"}.get(request.param)
    return str(request.getfixturevalue(fixture) if fixture else empty_file(tmp_path))


def seed(url: str, *, worker: bool = False) -> None:
    """Store a job, and register a worker."""

    async def stored() -> None:
        async with Windlass(url) as app:
            await app.task(name="send")(_send).enqueue()
            if worker:
                await enlist(await parts_of(app).storage())

    asyncio.run(stored())


async def _send() -> None: ...


def jobs_in(url: str) -> int:
    async def counted() -> int:
        async with Windlass(url) as app:
            return len(await app.admin.jobs.find())

    return asyncio.run(counted())


def audits_in(url: str) -> list[AuditRecord]:
    async def read() -> list[AuditRecord]:
        async with Windlass(url) as app:
            return list(await app.admin.audit.list())

    return asyncio.run(read())


def answer(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{text}\n"))


def test_a_storage_is_dropped_and_created_again(
    own_url: str, capsys: pytest.CaptureFixture[str]
) -> None:  # API-8
    seed(own_url)
    assert main(["db", "drop", "--url", own_url, "--yes"]) == 0
    assert capsys.readouterr().out.startswith("Deleted everything in ")
    assert main(["db", "migrate", "--url", own_url, "--check"]) == 2
    assert main(["db", "migrate", "--url", own_url]) == 0
    assert main(["db", "migrate", "--url", own_url, "--check"]) == 0
    assert jobs_in(own_url) == 0


def test_a_storage_is_reset_and_the_audit_log_says_by_whom(own_url: str) -> None:  # API-8
    seed(own_url)
    assert main(["db", "reset", "--url", own_url, "--yes"]) == 0
    assert jobs_in(own_url) == 0
    (record,) = audits_in(own_url)
    assert record.note.what == "storage.reset"
    assert record.note.who.startswith("cli:")


def test_nothing_is_deleted_while_a_worker_is_live_unless_forced(
    own_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    seed(own_url, worker=True)
    for command in ("drop", "reset"):
        assert main(["db", command, "--url", own_url, "--yes"]) == 1
        assert "1 worker live on " in capsys.readouterr().err
    assert jobs_in(own_url) == 1
    assert main(["db", "reset", "--url", own_url, "--yes", "--force"]) == 0
    assert jobs_in(own_url) == 0


def test_the_name_of_the_storage_confirms(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = empty_file(tmp_path)
    seed(url)
    answer(monkeypatch, "other.db")
    assert main(["db", "drop", "--url", url]) == 1
    said = capsys.readouterr()
    assert "Delete 1 job and everything else in SQLite" in said.out
    assert "nothing was deleted" in said.err
    assert jobs_in(url) == 1
    answer(monkeypatch, "jobs.db")
    assert main(["db", "drop", "--url", url]) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_another_program_is_not_deleted(tmp_path: Path) -> None:
    notes = tmp_path / "notes.db"
    notes.write_text("not a database, but 100 bytes or more of something else. " * 3)
    other = tmp_path / "other.db"
    connection = apsw.Connection(str(other))
    connection.execute("CREATE TABLE users (name TEXT)")
    connection.close()
    for path in (notes, other):
        assert main(["db", "drop", "--url", f"sqlite:///{path}", "--yes", "--force"]) == 1
        with pytest.raises(StorageRefused, match="not a database of Windlass"):
            asyncio.run(StorageOpener(Windlass(f"sqlite:///{path}").settings).drop())
        assert path.exists()


def test_tables_of_another_program_in_the_schema_are_not_deleted(
    postgres_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    seed(postgres_url)

    async def add_table() -> None:
        connection = await asyncpg.connect(postgres_url)
        await connection.execute("CREATE TABLE windlass.invoices (number int)")
        await connection.close()

    asyncio.run(add_table())
    assert main(["db", "drop", "--url", postgres_url, "--yes"]) == 1
    said = capsys.readouterr().err
    assert "Other programs use the schema windlass" in said
    assert "(it has invoices)" in said
    assert jobs_in(postgres_url) == 1


def test_keys_of_another_prefix_are_not_deleted(redis_url: str) -> None:
    seed(redis_url)

    async def add_other() -> None:
        async with Windlass(redis_url, prefix="windlass2") as app:
            await app.task(name="send")(_send).enqueue()

    async def count_other() -> int:
        async with Windlass(redis_url, prefix="windlass2") as app:
            return len(await app.admin.jobs.find())

    asyncio.run(add_other())
    assert main(["db", "drop", "--url", redis_url, "--yes"]) == 0
    assert asyncio.run(count_other()) == 1


def test_with_manual_migration_an_app_refuses_and_names_the_command(
    own_url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:  # BACK-9
    assert main(["db", "drop", "--url", own_url, "--yes"]) == 0
    monkeypatch.setenv("WINDLASS_MIGRATE", "manual")

    async def enqueue() -> None:
        async with Windlass(own_url) as app:
            await app.task(name="send")(_send).enqueue()

    with pytest.raises(SchemaTooOld, match="Run `windlass db migrate` first"):
        asyncio.run(enqueue())
    capsys.readouterr()
    assert main(["db", "migrate", "--url", own_url, "--check", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["pending"]
    assert main(["db", "migrate", "--url", own_url]) == 0
    asyncio.run(enqueue())
    capsys.readouterr()
    assert main(["db", "migrate", "--url", own_url, "--check", "--json"]) == 0
    assert not json.loads(capsys.readouterr().out)["pending"]
    assert jobs_in(own_url) == 1


def test_with_manual_migration_a_file_is_not_created(tmp_path: Path) -> None:
    async def open_it() -> None:
        async with Windlass(f"sqlite:///{tmp_path}/jobs.db", migrate="manual") as app:
            await app.admin.jobs.find()

    with pytest.raises(SchemaTooOld, match="has no Windlass tables"):
        asyncio.run(open_it())
    assert list(tmp_path.iterdir()) == []


def age_sqlite(url: str) -> None:
    connection = apsw.Connection(url.removeprefix("sqlite:///"))
    newest = connection.pragma("user_version")
    connection.execute("DELETE FROM windlass_schema WHERE version = ?", (newest,))
    connection.pragma("user_version", newest - 1)
    connection.close()


async def age_postgres(url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(
        "DELETE FROM windlass.schema_versions"
        " WHERE version = (SELECT max(version) FROM windlass.schema_versions)"
    )
    await connection.close()


async def age_redis(url: str) -> None:
    async with redis.asyncio.from_url(url) as server:
        await server.set("{windlass}:epoch", "2-older")


def test_with_manual_migration_an_older_schema_is_left_as_it_is(own_url: str) -> None:  # BACK-9
    seed(own_url)
    if own_url.startswith("sqlite"):
        age_sqlite(own_url)
    else:
        asyncio.run((age_postgres if own_url.startswith("postgres") else age_redis)(own_url))

    async def open_it() -> None:
        async with Windlass(own_url, migrate="manual") as app:
            await app.admin.jobs.find()

    for _ in range(2):
        with pytest.raises(SchemaTooOld, match=r"schema version|layout"):
            asyncio.run(open_it())
