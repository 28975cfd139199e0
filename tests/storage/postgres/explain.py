"""A session of a PostgreSQL server that explains each statement its functions run, as it ran."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import asyncpg

EXPLAIN = """
LOAD 'auto_explain';
SET auto_explain.log_min_duration = 0;
SET auto_explain.log_nested_statements = on;
SET auto_explain.log_analyze = on;
SET auto_explain.log_format = json;
SET auto_explain.log_level = notice;
SET client_min_messages = notice;
SET jit = off;
"""

FILL = """
SELECT insert_jobs(NULL, NULL, true,
           array_agg(gen_random_uuid()), array_agg($1::text), array_agg('conform'::text),
           array_agg(i % 3), NULL, array_agg($2::bigint), array_agg(5), array_agg('{}'::bytea),
           p_limits => CASE WHEN $3::text IS NOT NULL
                            THEN array_agg(json_build_array(
                                     json_build_array($3 || ':' || i % 500, 1))::text) END,
           p_expires => CASE WHEN $4::bigint IS NOT NULL THEN array_agg($4) END)
  FROM generate_series(1, $5::integer) AS i
"""


class Session:
    """One session of a server that explains what it does."""

    def __init__(self, connection: asyncpg.Connection[Any]) -> None:
        self._connection = connection
        self._said: list[dict[str, Any]] = []

    async def begin(self, schema: str) -> None:
        self._connection.add_log_listener(self._listen)
        await self._connection.execute(EXPLAIN)
        await self._connection.execute(f'SET search_path = "{schema}"')

    def _listen(self, _: object, message: Any) -> None:
        _, found, text = message.message.partition("plan:\n")
        # The driver asks the catalogue about types; that is its own business.
        if found and "pg_catalog" not in text:
            self._said.append(json.loads(text))

    async def run(self, sql: str, *args: object) -> list[Any]:
        """The rows of a call; what its statements did is to be had from `nodes`."""
        self._said.clear()
        return list(await self._connection.fetch(sql, *args))

    async def fill(self, queue: str, count: int, **asked: Any) -> None:
        values = (asked.get("delay"), asked.get("limit"), asked.get("expires"))
        await self._connection.fetch(FILL, queue, *values, count)

    async def claim(self, limit: int, *, queue: str = "default", solo: bool = False) -> list[Any]:
        sql = "SELECT * FROM claim_jobs(NULL, 'w1', $1, $2, $3, $4, 100) WHERE seq IS NOT NULL"
        return await self.run(sql, [queue], [limit], limit, solo)

    async def apply(self, rows: Sequence[Any], verb: str, delay: int = 0) -> None:
        seqs, numbers = [row["seq"] for row in rows], [row["number"] for row in rows]
        names = [verb] * len(rows)
        await self.run(
            "SELECT * FROM apply_transitions(NULL, true, $1, $2, $3, $4, p_delays => $5)",
            seqs, numbers, names, ["w1"] * len(rows), [delay] * len(rows),
        )  # fmt: skip

    def nodes(self, about: str = "") -> Iterator[dict[str, Any]]:
        """Every step of every plan of the last call whose statement contains ``about``."""
        for said in self._said:
            if about in " ".join(said["Query Text"].split()):
                yield from _flat(said["Plan"])


def _flat(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from _flat(child)


def met(node: dict[str, Any]) -> float:
    """How many rows a step has looked at, in all its turns."""
    removed: float = node.get("Rows Removed by Filter", 0)
    rows: float = node.get("Actual Rows", 0)
    return (rows + removed) * float(node.get("Actual Loops", 1))
