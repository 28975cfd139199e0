"""The settings of PostgreSQL functions: one loop sets them, on ours and on no others."""

from __future__ import annotations

import re
from importlib import resources

import psycopg

from windlass._storage.postgres import open_postgres

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
