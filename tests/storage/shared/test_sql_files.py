from __future__ import annotations

from datetime import UTC, datetime

import apsw
import pytest

from windlass._storage.shared.migrations import (
    Migration,
    apply_sqlite,
    check_known,
    find_migrations,
    major_of,
    sort_migrations,
)
from windlass._storage.shared.sql_files import load_sql, parse_sql
from windlass.errors import SchemaTooNew, StorageError

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
FIRST = Migration(1, "initial", "CREATE TABLE jobs (id INTEGER); CREATE INDEX i ON jobs (id);")
SECOND = Migration(2, "notes", "ALTER TABLE jobs ADD COLUMN note TEXT; SELECT 1;")


def test_a_resource_is_split_at_its_names_and_keeps_its_comments() -> None:
    queries = parse_sql(
        "-- about jobs\n-- name: one\nSELECT 1;\n\n-- name: two\n-- why\nSELECT 2;\n"
    )
    assert dict(queries) == {"one": "SELECT 1;", "two": "-- why\nSELECT 2;"}


def test_shared_parts_of_statements_are_no_queries_themselves() -> None:
    queries = parse_sql("-- part: all\nSELECT *\n-- name: one\n-- include: all\nFROM one")
    assert dict(queries) == {"one": "SELECT *\nFROM one"}


def test_an_unknown_query_names_the_known_ones() -> None:
    with pytest.raises(LookupError, match="has no query 'thre', only one, two"):
        parse_sql("-- name: one\nSELECT 1\n-- name: two\nSELECT 2")["thre"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("-- name: a\nSELECT 1\n-- name: a\nSELECT 2", "two queries named 'a'"),
        ("SELECT 0\n-- name: a\nSELECT 1", "before its first"),
        ("-- name: a\n\n-- name: b\nSELECT 1", "nothing under the name 'a'"),
        ("-- name: a b\nSELECT 1", "before its first"),
        ("-- name: a-b\nSELECT 1", "a name is one word"),
        ("-- name: a\n-- include: b\n-- part: b\nSELECT 1", "no '-- part: b' is above it"),
        ("-- part: a\nSELECT\n-- name: a\nSELECT 1", "two queries named 'a'"),
    ],
)
def test_a_resource_that_was_written_carelessly_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse_sql(text)


def test_a_missing_resource_is_an_error_at_load() -> None:
    with pytest.raises(FileNotFoundError):
        load_sql("windlass._storage", "no-such.sql")


# --- migrations -----------------------------------------------------------------------------


def test_migrations_are_ordered_by_number() -> None:
    assert sort_migrations([SECOND, FIRST]) == (FIRST, SECOND)


@pytest.mark.parametrize("versions", [[], [2], [1, 3], [1, 1], [1, 2, 200]])
def test_a_gap_or_a_number_used_twice_is_refused(versions: list[int]) -> None:
    with pytest.raises(ValueError, match=r"start with 0001|does not follow"):
        sort_migrations([Migration(version, "x", "") for version in versions])


def test_a_breaking_change_starts_the_next_hundred() -> None:
    versions = [1, 2, 100, 101, 200]
    assert [
        m.version for m in sort_migrations([Migration(v, "x", "") for v in versions])
    ] == versions
    assert [major_of(v) for v in versions] == [0, 0, 1, 1, 2]


def test_a_folder_with_a_misnamed_file_is_refused() -> None:
    with pytest.raises(ValueError, match="migrations start with 0001"):
        find_migrations("windlass._core")  # it has no .sql file at all


@pytest.fixture
def database() -> apsw.Connection:
    return apsw.Connection(":memory:")


def test_migrations_are_applied_once_and_recorded(database: apsw.Connection) -> None:
    assert apply_sqlite(database, [FIRST], NOON) == [FIRST]
    assert apply_sqlite(database, [FIRST, SECOND], NOON) == [SECOND]
    assert apply_sqlite(database, [FIRST, SECOND], NOON) == []
    rows = database.execute("SELECT version, applied_at FROM windlass_schema").fetchall()
    assert rows == [(1, 1767268800000000), (2, 1767268800000000)]
    assert database.pragma("user_version") == 2
    assert [name for _, name, *_ in database.execute("PRAGMA table_info(jobs)")] == ["id", "note"]


def test_a_newer_minor_version_is_worked_with(database: apsw.Connection) -> None:
    apply_sqlite(database, [FIRST, SECOND], NOON)
    assert apply_sqlite(database, [FIRST], NOON) == []


def test_a_newer_major_version_is_refused_with_both_versions_and_the_way_out(
    database: apsw.Connection,
) -> None:
    apply_sqlite(database, [FIRST], NOON)
    database.pragma("user_version", 999)
    with pytest.raises(SchemaTooNew, match=r"version 999.*up to 1\..*Upgrade windlass"):
        apply_sqlite(database, [FIRST], NOON)
    with pytest.raises(SchemaTooNew):
        check_known(100, [FIRST, SECOND], "the database")


def test_the_database_of_another_application_is_left_alone(database: apsw.Connection) -> None:
    database.execute("CREATE TABLE customers (id INTEGER)")
    with pytest.raises(StorageError, match=r"customers.*Use a separate file"):
        apply_sqlite(database, [FIRST], NOON)
