"""What every statement costs: which index it walks, and that it never sorts or scans.

The plans do not depend on what is stored: no statistics are gathered, and bound values are not
looked at. So what is asserted on an empty database holds for one with millions of jobs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path

import apsw
import pytest

from tests.architecture import exceptions
from windlass._storage.shared import migrations as migrate
from windlass._storage.shared.sql_files import load_sql
from windlass._storage.sqlite import open_sqlite

PACKAGE = "windlass._storage.sqlite.sql"
FILES = sorted(file.name for file in resources.files(PACKAGE).iterdir() if file.name[-4:] == ".sql")
STATEMENTS = {(file, name): sql for file in FILES for name, sql in load_sql(PACKAGE, file).items()}

PRIMARY = "INTEGER PRIMARY KEY"
FIRST_JOBS = [
    f"head: {PRIMARY}",
    "jobs: jobs_in_lane",
    f"following: {PRIMARY}",
    "jobs: jobs_in_lane",
]

OF_FLOW = ["flows: sqlite_autoindex_flows_1", "parts: sqlite_autoindex_parts_1"]

# The statements on the path of every job, of every claim and of every heartbeat, and those by which
# people look at millions, with each index they use, in the order of the plan.
HOT = {
    ("claim.sql", "is_live"): [
        "workers: sqlite_autoindex_workers_1",
        "parts: parts_due",
        "flows: flows_sweeping",
        "flows: flows_expiring",
    ],
    ("claim.sql", "look"): [
        *["queues: PRIMARY KEY"] * 3,
        "jobs: jobs_scheduled",
        "bays: sqlite_autoindex_bays_1",
        "jobs: jobs_solo",
    ],
    ("claim.sql", "best"): ["jobs: jobs_ready"],
    ("claim.sql", "chosen"): [f"jobs: {PRIMARY}"],
    ("claim.sql", "extras"): [f"jobs: {PRIMARY}"],
    ("claim.sql", "start"): [f"jobs: {PRIMARY}"],
    ("claim.sql", "due"): ["jobs: jobs_scheduled"],
    ("claim.sql", "next_due"): ["jobs: jobs_scheduled"],
    ("claim.sql", "due_anywhere"): ["jobs: jobs_due"],
    ("claim.sql", "make_ready"): [f"jobs: {PRIMARY}"],
    ("claim.sql", "make_ready_in_lanes"): [f"jobs: {PRIMARY}"],
    ("claim.sql", "ready_after"): ["jobs: jobs_ready"],
    ("claim.sql", "solo_after"): ["jobs: jobs_solo"],
    ("claim.sql", "expired"): ["jobs: jobs_expiring"],
    ("flows.sql", "counts"): [
        *["flows: flows_ended"] * 3,
        "parts: parts_blocked",
        "flows: flows_running",
    ],
    ("find.sql", "of_flow"): [*OF_FLOW, "jobs: jobs_of_part"],
    ("find.sql", "of_flow_oldest"): [*OF_FLOW, "jobs: jobs_of_part"],
    ("lanes.sql", "open_bays"): [
        "bays: bays_open",
        f"head: {PRIMARY}",
        f"following: {PRIMARY}",
        "jobs: jobs_in_lane",
        "lanes: lanes_in_bay",
    ],
    ("lanes.sql", "open_timed"): [f"bays: {PRIMARY}", "bays: bays_timed"],
    ("lanes.sql", "next_timed"): ["bays: bays_timed"],
    ("lanes.sql", "bay_lanes"): ["lanes: lanes_in_bay", *FIRST_JOBS],
    ("lanes.sql", "bay_heads"): [f"lanes: {PRIMARY}", "lanes: lanes_in_bay"],
    ("lanes.sql", "named_lanes"): [f"lanes: {PRIMARY}", *FIRST_JOBS],
    ("lanes.sql", "lane_jobs"): ["jobs: jobs_in_lane"],
    ("lanes.sql", "lanes"): [
        f"lanes: {PRIMARY}",
        f"bays: {PRIMARY}",
        f"jobs: {PRIMARY}",
        "jobs: jobs_in_lane",
    ],
    ("lanes.sql", "move_lanes"): [f"lanes: {PRIMARY}"],
    ("lanes.sql", "head_bays"): [f"bays: {PRIMARY}"],
    ("lanes.sql", "close_bays"): [f"bays: {PRIMARY}"],
    ("lanes.sql", "let_go"): ["holds: PRIMARY KEY"],
    ("lanes.sql", "lanes_of"): ["lanes: sqlite_autoindex_lanes_1"],
    ("lanes.sql", "add_lanes"): ["bays: sqlite_autoindex_bays_1"],
    ("lanes.sql", "expired_heads"): ["jobs: jobs_expiring_in_lane", f"lanes: {PRIMARY}"],
    ("lanes.sql", "open_gates"): ["bays: bays_of_gate"],
    ("lanes.sql", "timed_bays"): [f"bays: {PRIMARY}", "bays: bays_of_gate"],
    ("lanes.sql", "usage"): ["holds: PRIMARY KEY", f"jobs: {PRIMARY}"],
    ("lanes.sql", "usages"): ["holds: PRIMARY KEY", f"jobs: {PRIMARY}", "gates: PRIMARY KEY"],
    ("lanes.sql", "gates"): ["gates: PRIMARY KEY"],
    ("apply.sql", "claims"): [f"jobs: {PRIMARY}"],
    ("apply.sql", "details"): [f"jobs: {PRIMARY}"],
    ("apply.sql", "succeed"): [f"jobs: {PRIMARY}"],
    ("apply.sql", "succeed_one"): [f"jobs: {PRIMARY}"],
    ("apply.sql", "end"): [f"jobs: {PRIMARY}"],
    ("apply.sql", "end_with_error"): [f"jobs: {PRIMARY}"],
    ("rollups.sql", "rollup"): ["rollups: PRIMARY KEY"],
    ("jobs.sql", "claimable"): [
        "queues: PRIMARY KEY",
        "jobs: jobs_ready",
        "jobs: jobs_scheduled",
        "bays: bays_open",
        "bays: bays_timed",
        "jobs: jobs_expiring_in_lane",
        f"lanes: {PRIMARY}",
        "jobs: jobs_solo",
    ],
    ("jobs.sql", "outlook"): [
        *["queues: PRIMARY KEY"] * 3,
        "jobs: jobs_scheduled",
        "bays: bays_timed",
    ],
    ("jobs.sql", "settled"): ["jobs: sqlite_autoindex_jobs_1"],
    ("jobs.sql", "key_holder"): ["keys: PRIMARY KEY", f"jobs: {PRIMARY}"],
    ("workers.sql", "beat"): ["workers: sqlite_autoindex_workers_1"],
    ("workers.sql", "holding"): ["jobs: jobs_running"],
    ("workers.sql", "cancel_requests"): ["jobs: jobs_running"],
    ("workers.sql", "next_running_worker"): ["jobs: jobs_running"],
    ("admin.sql", "prunable"): ["jobs: jobs_finished"] * 3,
    ("find.sql", "walk"): [f"jobs: {PRIMARY}", *OF_FLOW],
    ("find.sql", "among"): [f"jobs: {PRIMARY}", *OF_FLOW],
    ("find.sql", "named"): ["jobs: sqlite_autoindex_jobs_1"],
    ("find.sql", "newest"): [f"jobs: {PRIMARY}"],
    ("find.sql", "ready"): ["jobs: jobs_ready"],
    ("find.sql", "solo"): ["jobs: jobs_solo"],
    ("find.sql", "later"): ["jobs: jobs_scheduled"],
    ("find.sql", "overdue"): ["jobs: jobs_due"],
    ("find.sql", "in_lanes"): ["lanes: sqlite_autoindex_lanes_1", "jobs: jobs_in_lane"],
    ("find.sql", "retrying"): ["jobs: jobs_retrying"],
    ("find.sql", "running"): ["jobs: jobs_running"],
    ("find.sql", "ended"): ["jobs: jobs_finished"] * 3,
    ("find.sql", "failed"): ["jobs: jobs_failed"],
    ("sort.sql", "due"): ["jobs: jobs_due"],
    ("sort.sql", "due_last"): ["jobs: jobs_due"],
    ("sort.sql", "due_of"): ["jobs: jobs_scheduled"],
    ("sort.sql", "due_of_last"): ["jobs: jobs_scheduled"],
    ("sort.sql", "failed"): ["jobs: jobs_failed"],
    ("sort.sql", "failed_last"): ["jobs: jobs_failed"],
    ("sort.sql", "ended"): ["jobs: jobs_finished"],
    ("sort.sql", "ended_last"): ["jobs: jobs_finished"],
    ("sort.sql", "heads"): ["jobs: jobs_finished"] * 3,
    ("sort.sql", "heads_last"): ["jobs: jobs_finished"] * 3,
    ("counts.sql", "queues"): [
        *["jobs: jobs_ready"] * 2,
        *["jobs: jobs_scheduled"] * 2,
        *["jobs: jobs_solo"] * 2,
        *["lanes: sqlite_autoindex_lanes_1"] * 2,
        *["jobs: jobs_finished"] * 2,
    ],
    ("counts.sql", "count"): [
        "jobs: jobs_ready",
        *["lanes: sqlite_autoindex_lanes_1", "jobs: jobs_in_lane"],
        "jobs: jobs_solo",
        *["jobs: jobs_scheduled"] * 2,
        "jobs: jobs_retrying",
        *["jobs: jobs_finished"] * 4,
        *["jobs: jobs_ready"] * 3,
        "lanes: sqlite_autoindex_lanes_1",
        *["jobs: jobs_in_lane"] * 2,
        *["jobs: jobs_solo"] * 3,
        "jobs: jobs_scheduled",
    ],
    ("actions.sql", "asked"): ["jobs: sqlite_autoindex_jobs_1"],
    ("actions.sql", "audits_of"): ["audits: audits_of_subject"],
    ("actions.sql", "prune_audits"): [f"audits: {PRIMARY}", "audits: audits_by_time"],
    ("journal.sql", "logs"): ["logs: sqlite_autoindex_logs_1"],
    ("journal.sql", "events"): ["events: events_by_time", f"jobs: {PRIMARY}"],
    ("journal.sql", "events_of"): ["jobs: sqlite_autoindex_jobs_1", "events: events_of_job"],
    ("journal.sql", "delete_logs"): ["logs: sqlite_autoindex_logs_1"],
    ("journal.sql", "delete_events"): ["events: events_of_job"],
    ("rollups.sql", "unmerged"): ["rollups: rollups_by_minute"],
    ("whole_jobs.sql", "dump"): [
        f"jobs: {PRIMARY}",
        "flows: flows_going",
        "parts: sqlite_autoindex_parts_1",
        "keys: PRIMARY KEY",
        f"parts: {PRIMARY}",
        f"flows: {PRIMARY}",
        "keys: PRIMARY KEY",
    ],
    ("flows.sql", "settleable"): ["jobs: jobs_settled"],
    ("flows.sql", "sweepable"): ["jobs: jobs_of_part"],
    ("flows.sql", "due_part"): ["parts: parts_due"],
    ("flows.sql", "unsettled"): [
        "parts: parts_due",
        "flows: flows_sweeping",
        "flows: flows_expiring",
    ],
    ("flows.sql", "parts"): [f"parts: {PRIMARY}", f"flows: {PRIMARY}"],
    ("flows.sql", "followers"): [
        f"flows: {PRIMARY}",
        "edges: edges_after",
        "parts: sqlite_autoindex_parts_1",
    ],
    ("flows.sql", "place"): [f"jobs: {PRIMARY}", "jobs: jobs_settled"],
    ("flows.sql", "places"): [f"parts: {PRIMARY}", f"flows: {PRIMARY}"],
    ("queues.sql", "rest"): ["queues: PRIMARY KEY"],
    ("queues.sql", "forgivable"): ["queues: queues_cooled"],
    ("schedules.sql", "due"): ["schedules: schedules_due"],
    ("schedules.sql", "next_due"): ["schedules: schedules_due"],
    ("schedules.sql", "fence"): ["schedules: sqlite_autoindex_schedules_1"],
    ("schedules.sql", "active"): ["jobs: sqlite_autoindex_jobs_1"],
    ("schedules.sql", "declare"): ["schedules: sqlite_autoindex_schedules_1"],
}

# What reads a whole table or sorts, and why that is right.
ALLOWED = {
    "find.sql of_flow": "the best of each part, from its index: as many as one look takes",
    "find.sql of_flow_oldest": "the best of each part, from its index: as many as one look takes",
    "flows.sql counts": "the parts with blocked jobs, as many as are counted, from their index",
    "admin.sql prunable": "the queues with ended jobs, each found by the index",
    "claim.sql is_live": "the first row of an index of due parts alone",
    "claim.sql next_due_anywhere": "the first row of its index",
    "counts.sql count": "its priorities, each found by the index, and so many of its lanes",
    "counts.sql queues": "the queues, each found by the index; what runs; settings: a handful",
    "counts.sql tasks": "a bounded number of each line by its index, and what runs; grouped",
    "counts.sql running": "what runs: the slots of all workers",
    "flows.sql due_part": "the first row of an index of due parts alone",
    "flows.sql is_unsettled": "the same",
    "flows.sql unsettled": "the same",
    "flows.sql members": "one row: the flow, or where it was added",
    "find.sql ended": "the queues with ended jobs, each found by the index",
    "sort.sql heads": "the queues with ended jobs, each found by the index",
    "sort.sql heads_last": "the queues with ended jobs, each found by the index",
    "jobs.sql active": "what runs: the slots of all workers",
    "jobs.sql claimable": "the same, where a queue may run only so many; expired heads",
    "journal.sql any": "one row of each",
    "jobs.sql limit_names": "limits are defined in code: a handful",
    "lanes.sql specs": "the same",
    "lanes.sql open_all": "once after the clock was set back",
    "lanes.sql set_gates_back": "the same",
    "lanes.sql expired_heads": "what its own index and limit let through",
    "lanes.sql gates_of_limit": "the budgets of one limit, for people",
    "queues.sql paused": "queues that somebody has said something about: a handful",
    "queues.sql queues": "the same",
    "queues.sql running": "what runs: the slots of all workers",
    "schedules.sql rows": "all schedules, for people",
    "workers.sql live": "workers, once in a while",
    "workers.sql live_starts": "workers, once in a second",
    "workers.sql overdue": "workers, once in five seconds",
    "workers.sql workers": "the same, for people",
    "workers.sql claims_of": "what one dead worker held: its slots",
    "workers.sql prune_workers": "workers, once in a while",
    "workers.sql resign": "roles: a handful",
}


@pytest.fixture(scope="module")
def connection() -> Iterator[apsw.Connection]:
    connection = apsw.Connection(":memory:")
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    migrations = migrate.find_migrations("windlass._storage.sqlite.migrations")
    migrate.apply_sqlite(connection, migrations, datetime(2030, 1, 1, tzinfo=UTC))
    yield connection
    connection.close()


def plan(connection: apsw.Connection, sql: str) -> list[str]:
    numbered = [int(number) for number in re.findall(r"\?(\d+)", sql)]
    named = dict.fromkeys(re.findall(r":([a-z_]+)", sql))
    values = named or [None] * (max(numbered) if numbered else sql.count("?"))
    return [str(row[3]) for row in connection.execute("EXPLAIN QUERY PLAN " + sql, values)]


def indexes(steps: list[str]) -> list[str]:
    used = re.compile(
        r"(?:SEARCH|SCAN(?= parts )) (\w+) USING (?:COVERING )?(?:INDEX )?"
        r"(INTEGER PRIMARY KEY|PRIMARY KEY|\w+)"
    )
    return [f"{found[1]}: {found[2]}" for step in steps if (found := used.match(step))]


@pytest.mark.parametrize(("file", "name"), HOT, ids=lambda part: part)
def test_a_hot_statement_uses_its_index(connection: apsw.Connection, file: str, name: str) -> None:
    assert indexes(plan(connection, STATEMENTS[file, name])) == HOT[file, name]


def test_no_statement_scans_a_table_or_sorts(connection: apsw.Connection) -> None:
    costly = {}
    for (file, name), sql in STATEMENTS.items():
        for step in plan(connection, sql):
            # Values that were bound, and a row of constants, are no tables.
            bound = any(word in step for word in ("json_each", "given", "CONSTANT"))
            scan = step.startswith("SCAN") and not bound
            if scan or "TEMP B-TREE" in step:
                costly[f"{file} {name}"] = step
    exceptions.check(costly, ALLOWED)


def test_a_state_that_is_bound_cannot_use_the_partial_index(connection: apsw.Connection) -> None:
    """Why `prunable` repeats what its index says."""
    sql = "SELECT seq FROM jobs WHERE state = ?1 AND finished_at < ?2"
    assert plan(connection, sql) == ["SCAN jobs"]


async def test_upkeep_gathers_no_statistics_that_could_change_a_plan(tmp_path: Path) -> None:
    storage = await open_sqlite(tmp_path / "jobs.db")
    await storage.maintenance.tidy()
    await storage.close()
    connection = apsw.Connection(str(tmp_path / "jobs.db"), flags=apsw.SQLITE_OPEN_READONLY)
    tables = connection.execute("SELECT name FROM sqlite_schema").fetchall()
    connection.close()
    assert not [name for (name,) in tables if str(name).startswith("sqlite_stat")]
