"""The cost of a member's end: it meets few rows, however large its flow is."""

from __future__ import annotations

import asyncpg

from tests.storage.postgres.explain import Session, met
from windlass._storage.postgres import open_postgres
from windlass.testing.conformance.flows.steps import Plan, start

LINKS = 300
FEW = 10


async def test_an_end_in_a_long_chain_meets_few_rows(postgres_schema: tuple[str, str]) -> None:
    url, schema = postgres_schema
    storage = await open_postgres(url, schema=schema)
    connection = await asyncpg.connect(url)
    session = Session(connection)
    await session.begin(schema)
    await connection.execute("ANALYZE")  # of empty tables
    plan = Plan()
    for number in range(LINKS):
        plan.part(f"p{number}", after=[f"p{number - 1}"] if number else ())
    await start(storage, plan)
    for _ in range(3):  # plans are kept: the first ones are not measured
        (row,) = await session.claim(1)
        await session.run(
            "SELECT * FROM apply_successes(NULL, true, $1, 1, 'w1', NULL)", [row["seq"]]
        )
    walked = [
        (node["Relation Name"], met(node)) for node in session.nodes() if "Index Name" in node
    ]
    assert {"parts", "part_counts", "jobs"} <= {name for name, _ in walked}
    assert [one for one in walked if one[1] > FEW] == []
    await connection.close()
    await storage.close()
