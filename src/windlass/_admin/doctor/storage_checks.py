"""Checks of the values that a backend reports: see `Storage.health` for the names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from windlass._admin.doctor.finding import Finding, bad, format_bytes, ok, warn

__all__ = ["check_health"]

HealthFacts = Mapping[str, float | str]

_MIB, _GIB = 2**20, 2**30
_SQLITE = (3, 51, 3)
_WAL = (256 * _MIB, 2 * _GIB)
_DISK = (_GIB, 128 * _MIB)
_DEAD = (100_000, 2_000_000)
"""Claims read past dead rows at about a quarter of a millisecond per thousand."""
_SNAPSHOT = (300.0, 3600.0)
_FULL = (0.8, 0.95)


def check_health(facts: HealthFacts) -> Iterator[Finding]:
    """Yield findings in the order in which they matter; values that the backend does not report are
    left out.
    """
    if "wal" in facts or "filesystem" in facts:
        yield from _file(facts)
    elif "appendonly" in facts or "eviction" in facts:
        yield from _keeps(facts)
        yield from _memory(facts)
    elif "autovacuum" in facts or "synchronous_commit" in facts:
        yield from _settings(facts)
        yield from _rows(facts)
        yield from _connections(facts)


def _number(facts: HealthFacts, name: str) -> float | None:
    value = facts.get(name)
    return float(value) if isinstance(value, int | float) else None


# --- SQLite ---------------------------------------------------------------------------------------


def _file(facts: HealthFacts) -> Iterator[Finding]:
    version = str(facts.get("version", ""))
    numbers = tuple(map(int, re.findall(r"\d+", version)[:3]))
    if numbers and numbers < _SQLITE:
        yield bad(
            "sqlite_version",
            f"SQLite {version} can lose commits when several processes write one WAL file.",
            "Upgrade apsw, which includes SQLite 3.51.3 or later: pip install --upgrade apsw",
        )
    elif numbers:
        yield ok("sqlite_version", f"SQLite {version}.")
    where = facts.get("filesystem")
    if facts.get("network_filesystem") == "yes":
        yield bad(
            "filesystem",
            f"The file is on a network file system ({where}), where SQLite's locks do not hold.",
            "Put it on a local disk, or move to a server: windlass db copy FROM TO",
        )
    elif where:
        yield ok("filesystem", f"The file is on a local file system ({where}).")
    yield from _wal(_number(facts, "wal"))
    yield from _disk(_number(facts, "free_disk"))


def _wal(size: float | None) -> Iterator[Finding]:
    if size is None:
        return
    text = f"The write-ahead log is {format_bytes(size)}"
    fix = (
        "Look for a process that keeps a read transaction open, such as a backup or a shell: until "
        "it ends, the log keeps growing and every read gets slower"
    )
    if size >= _WAL[1]:
        yield bad("wal", f"{text}.", fix)
    elif size >= _WAL[0]:
        yield warn("wal", f"{text}.", fix)
    else:
        yield ok("wal", f"{text}.")


def _disk(free: float | None) -> Iterator[Finding]:
    if free is None:
        return
    text = f"{format_bytes(free)} are free on the disk of the file."
    fix = "Free some space: on a full disk jobs can neither be enqueued nor finished"
    if free < _DISK[1]:
        yield bad("disk", text, fix)
    elif free < _DISK[0]:
        yield warn("disk", text, fix)
    else:
        yield ok("disk", text)


# --- PostgreSQL -----------------------------------------------------------------------------------


def _settings(facts: HealthFacts) -> Iterator[Finding]:
    for name in ("fsync", "full_page_writes"):
        if facts.get(name) == "off":
            yield bad(
                name,
                f"{name} is off: after a power cut the whole database may be damaged.",
                f"ALTER SYSTEM SET {name} = on; then SELECT pg_reload_conf()",
            )
    commit, asked = facts.get("synchronous_commit"), facts.get("durability", "full")
    if commit in {"off", "local"} and asked == "full":
        yield warn(
            "synchronous_commit",
            f"synchronous_commit is {commit} for this role. Windlass raises it for its own "
            f"transactions. Jobs enqueued or finished in your transactions use it, and a crash may "
            f"lose the last of them.",
            "ALTER ROLE … SET synchronous_commit = on, or set it in those transactions",
        )
    elif commit is not None:
        yield ok("synchronous_commit", f"synchronous_commit is {commit}, durability is {asked}.")
    if facts.get("autovacuum") == "off":
        yield bad(
            "autovacuum",
            "autovacuum is off: tables and indexes grow without end, and statistics go stale.",
            "ALTER SYSTEM SET autovacuum = on; then SELECT pg_reload_conf()",
        )
    elif "autovacuum" in facts:
        yield ok("autovacuum", "autovacuum is on.")


def _rows(facts: HealthFacts) -> Iterator[Finding]:
    dead, live = _number(facts, "dead_rows"), _number(facts, "live_rows") or 0.0
    if dead is not None:
        text = f"{dead:,.0f} dead rows and {live:,.0f} live ones."
        fix = (
            "Workers vacuum the tables: check that one runs, and that no old snapshot (see below) "
            "keeps the rows; then VACUUM (ANALYZE) the tables of Windlass"
        )
        if dead > _DEAD[1] + live:
            yield bad("dead_rows", text, fix)
        elif dead > _DEAD[0] + live / 5:
            yield warn("dead_rows", text, fix)
        else:
            yield ok("dead_rows", text)
    age = _number(facts, "oldest_snapshot")
    if age is None:
        return
    held = f" ({facts['oldest_snapshot_of']})" if facts.get("oldest_snapshot_of") else ""
    text = f"The oldest snapshot that keeps dead rows is {age:,.0f} s old{held}."
    fix = (
        "End that transaction, for example with pg_terminate_backend, and find out why it stays "
        "open; an unused replication slot has the same effect"
    )
    if age >= _SNAPSHOT[1]:
        yield bad("old_snapshot", text, fix)
    elif age >= _SNAPSHOT[0]:
        yield warn("old_snapshot", text, fix)
    else:
        yield ok("old_snapshot", text)


def _connections(facts: HealthFacts) -> Iterator[Finding]:
    used, most = _number(facts, "connections"), _number(facts, "max_connections")
    if used is not None and most:
        text = f"{used:,.0f} of {most:,.0f} connections of the server are in use."
        fix = "Raise max_connections, run fewer and larger workers, or use a connection pooler"
        if used >= most * _FULL[1]:
            yield bad("connections", text, fix)
        elif used >= most * _FULL[0]:
            yield warn("connections", text, fix)
        else:
            yield ok("connections", text)
    if facts.get("pooled") == "yes":
        yield ok(
            "pooler",
            "Connections go through a pooler such as PgBouncer, which is supported. See below "
            "whether notifications pass it.",
        )


# --- Redis ----------------------------------------------------------------------------------------


def _keeps(facts: HealthFacts) -> Iterator[Finding]:
    asked = facts.get("durability", "local")
    accepted = asked == "none"
    lost = warn if accepted else bad
    wanted = ' (durability="none" accepts that)' if accepted else ""
    if facts.get("appendonly") == "no":
        yield lost(
            "persistence",
            f"The server has no append-only file: a crash loses all jobs{wanted}.",
            "CONFIG SET appendonly yes, and in its configuration file",
        )
    elif facts.get("appendfsync") == "no":
        yield lost(
            "persistence",
            f"The server never syncs its append-only file to disk{wanted}.",
            "CONFIG SET appendfsync everysec, or always, and in its configuration file",
        )
    elif "appendonly" in facts:
        synced = f", appendfsync {facts['appendfsync']}" if "appendfsync" in facts else ""
        yield ok("persistence", f"The server has an append-only file{synced}.")
    if facts.get("last_write") not in {None, "ok"}:
        yield bad(
            "append_only_file",
            "The last write to the append-only file failed.",
            "Check the server's log and its disk: until that is fixed, a crash loses jobs",
        )
    delayed = _number(facts, "delayed_syncs")
    if delayed and not accepted:
        yield warn(
            "slow_syncs",
            f"Writes to the append-only file waited for a slow sync {delayed:,.0f} times since the "
            f"server started. If it is killed meanwhile, acknowledged jobs are lost.",
            "Use a faster disk, appendfsync always, or durability='replicated'",
        )
    policy = facts.get("eviction")
    if policy is not None and policy != "noeviction":
        yield lost(
            "eviction",
            f"The server evicts keys when memory is short ({policy}), and jobs are lost{wanted}.",
            "CONFIG SET maxmemory-policy noeviction, and in its configuration file",
        )
    elif policy is not None:
        yield ok("eviction", "The server evicts nothing.")
    if asked == "replicated" and _number(facts, "replicas") == 0:
        yield bad(
            "replicas",
            'durability="replicated" waits for a replica, and none is connected.',
            "Start a replica, or use durability='local'",
        )


def _memory(facts: HealthFacts) -> Iterator[Finding]:
    used, most = _number(facts, "size"), _number(facts, "maxmemory")
    if used is None:
        return
    if not most:
        yield ok("memory", f"The server uses {format_bytes(used)}; maxmemory is not set.")
        return
    text = f"The server uses {format_bytes(used)} of {format_bytes(most)}."
    fix = "Raise maxmemory, or shorten the retention of jobs: keep_succeeded, keep_failed"
    if used >= most * _FULL[1]:
        yield bad("memory", text, fix)
    elif used >= most * _FULL[0]:
        yield warn("memory", text, fix)
    else:
        yield ok("memory", text)
