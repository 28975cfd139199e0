"""The Redis backend as a `Storage`."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import NoReturn

from windlass._core.values.instants import instant_of
from windlass._storage.protocol.workers import WorkerStart
from windlass._storage.redis.admin.actions import RedisActions
from windlass._storage.redis.admin.admin import RedisAdmin
from windlass._storage.redis.copy.copy import RedisCopy
from windlass._storage.redis.flows.flows import RedisFlows
from windlass._storage.redis.health import server_health
from windlass._storage.redis.io.calls import ScriptCalls
from windlass._storage.redis.io.connection import RETRY_SECONDS, LoopConnection
from windlass._storage.redis.io.database import RedisDatabase
from windlass._storage.redis.io.dialer import Dialer, check_files
from windlass._storage.redis.io.durability import (
    DurabilityWatch,
    RedisDurability,
    RedisServer,
    check_durability,
    check_server,
)
from windlass._storage.redis.io.scripts import script
from windlass._storage.redis.io.url import parse_url
from windlass._storage.redis.io.wakeups import RedisWakeups
from windlass._storage.redis.jobs.jobs import RedisJobs
from windlass._storage.redis.journal import RedisJournal
from windlass._storage.redis.limits.limits import RedisLimits
from windlass._storage.redis.maintenance import RedisMaintenance
from windlass._storage.redis.queues import RedisQueues
from windlass._storage.redis.schedules import RedisSchedules
from windlass._storage.redis.workers import RedisLeader, RedisWorkers
from windlass._storage.shared.worker_locks import WorkerLocks, runtime_directory
from windlass._storage.timings import Timings
from windlass._system.seams import SYSTEM_CLOCK, Clock, new_job_id
from windlass.errors import ConfigError, SchemaTooNew, SchemaTooOld, StorageError

__all__ = ["RedisStorage", "open_redis"]

log = logging.getLogger("windlass")

_NOW = script("now")
_LAYOUT = 5
"""Raised when an older Windlass could not read or keep up what this one writes. 2: ended jobs by
queue. 3: lists of those that retry, frames, logs and events. 4: flows. 5: lane
groups with one lane have no list of lanes.
"""
_GATHERED = 3
"""The first layout with lists of those that retry."""
_FINISHES = 3
"""The oldest layout whose processes may still do everything but claim, once this one is stored:
their workers store the outcomes of what they run, and end. Older processes are refused outright.
The first flow raises it, and so does the first lane group: see flow_start.lua
and bays.lua.
"""
_EPOCH = re.compile(rb"([0-9]{1,9})-([0-9A-Za-z]{1,64})")


class RedisStorage:
    """A `Storage` on one Redis or Valkey server, a Sentinel service or one slot of a Cluster."""

    def __init__(
        self,
        database: RedisDatabase,
        dialer: Dialer,
        locks: WorkerLocks,
        watch: DurabilityWatch | None,
        server: RedisServer,
        *,
        durability: RedisDurability,
    ) -> None:
        self._db, self._locks = database, locks
        self._server, self._durability = server, durability
        self._description = (
            f"{server} at {dialer.place}, prefix {database.prefix[1:-2]}, durability {durability}"
        )
        self._closed = False
        self.jobs: RedisJobs = RedisJobs(database)
        self.workers: RedisWorkers = RedisWorkers(database, forget=locks.forget)
        self.leader: RedisLeader = RedisLeader(database)
        self.limits: RedisLimits = RedisLimits(database)
        self.maintenance: RedisMaintenance = RedisMaintenance(database, locks, watch)
        self.queues: RedisQueues = RedisQueues(database)
        self.schedules: RedisSchedules = RedisSchedules(database)
        self.admin: RedisAdmin = RedisAdmin(database)
        self.orders: RedisActions = RedisActions(database)
        self.flows: RedisFlows = RedisFlows(database)
        self.journal: RedisJournal = RedisJournal(database)
        self.moving: RedisCopy = RedisCopy(database)
        self.wakeups: RedisWakeups = RedisWakeups(database, dialer)
        self.transactions: None = None
        self.timings: Timings = database.timings

    @property
    def shared(self) -> bool:
        return True

    def describe(self) -> str:
        return self._description

    async def health(self) -> Mapping[str, float | str]:
        known: dict[str, float | str] = {
            "version": f"{self._server}",
            "durability": self._durability,
            "retry_for": RETRY_SECONDS,
        }
        said = self.timings.measure(server_health(self._db.side), reads=True)
        return known | await said

    def prove_dead(self, worker: WorkerStart) -> bool:
        return self._locks.prove_dead(worker)

    def hold_worker_lock(self, worker: str) -> tuple[str, int, int]:
        return self._locks.hold(worker)

    def release_worker_lock(self, worker: str) -> None:
        self._locks.release(worker)

    async def now(self) -> datetime:
        return instant_of(await self._db.run_aside(_NOW))

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await self.wakeups.close()
        await self._db.close()
        self._locks.close()


async def open_redis(
    url: str,
    *,
    clock: Clock = SYSTEM_CLOCK,
    prefix: str = "windlass",
    durability: RedisDurability | None = None,
    replicas: int = 1,
    migrates: bool = True,
    timings: Timings | None = None,
) -> RedisStorage:
    """Open the storage at ``url`` for the running event loop; make it where there is none.

    Every key starts with ``{prefix}:``. ``replicas`` must confirm each write before it counts,
    where ``durability`` is ``"replicated"``. ``clock`` is for tests. ``timings`` counts how long
    operations take. ``migrates``: make and move what this version needs; False raises
    `SchemaTooOld` where that is needed.
    """
    if not prefix or set(prefix) & set("{}*?[]\\ "):
        raise ConfigError(
            f"prefix is a name such as windlass, without any of {{}}*?[]\\, got {prefix!r}"
        )
    if replicas < 1:
        raise ConfigError(f"replicas that confirm each write are 1 or more, got {replicas}")
    address = check_files(parse_url(url))
    dialer = Dialer(address, whole := f"{{{prefix}}}:")
    calls = ScriptCalls(functions=address.functions)
    line = LoopConnection(dialer, calls)
    try:
        server = await check_server(line, dialer.place)
        kept = await check_durability(line, dialer.place, durability)
        epoch = await _epoch(line, whole, migrates=migrates)
    finally:
        await line.close()
    database = RedisDatabase(
        dialer,
        calls,
        clock=clock,
        prefix=whole,
        epoch=epoch,
        timings=timings or Timings(),
        replicas=replicas if kept == "replicated" else 0,
    )
    watch = None if kept == "none" else DurabilityWatch(database.side, dialer.place)
    storage = RedisStorage(database, dialer, _locks(epoch), watch, server, durability=kept)
    try:
        await database.confirm()
    except BaseException:
        await storage.close()
        raise
    log.debug("scripts of Redis at %s are called as %s", dialer.place, calls)
    return storage


async def _epoch(line: LoopConnection, prefix: str, *, migrates: bool) -> bytes:
    """Return the id of this set of jobs: made once, checked by every script."""
    epoch = await line.ask("GET", prefix + "epoch")
    if epoch is None and not migrates:
        _refuse_older(prefix, "are no keys of Windlass")
    if epoch is None:  # a server without memory refuses the write, and has the jobs all the same
        await line.ask("SET", prefix + "epoch", f"{_LAYOUT}-{new_job_id()}", "NX")
        epoch = await line.ask("GET", prefix + "epoch")
    found = _EPOCH.fullmatch(bytes(epoch or b""))
    if found is None:
        raise StorageError(
            f"The key {prefix}epoch was not written by Windlass. Use another prefix."
        )
    layout = int(found[1])
    if layout > _LAYOUT:
        raise SchemaTooNew(
            f"The jobs under {prefix} were written by a newer Windlass (layout {layout}, this "
            f"one knows {_LAYOUT}). Upgrade windlass in this process (pip install -U windlass), or "
            f"use another prefix."
        )
    if layout < _LAYOUT and not migrates:
        _refuse_older(prefix, f"are jobs of layout {layout}")
    if layout < _LAYOUT:
        # Before anything moves: from now on processes that would use the old keys get an error that
        # this is not their storage any more. `RedisDatabase.confirm` migrates the rest.
        if layout < _GATHERED:
            await line.ask("SET", prefix + "gathering", "0")
        # Another process may have migrated by now, and started a flow, which raised it.
        await line.ask("SET", prefix + "finishes", str(_FINISHES), "NX")
        epoch = b"%d-%s" % (_LAYOUT, found[2])
        await line.ask("SET", prefix + "epoch", epoch, "XX")
    return bytes(epoch)


def _refuse_older(prefix: str, found: str) -> NoReturn:
    raise SchemaTooOld(
        f"Under {prefix} {found}, and this Windlass needs layout {_LAYOUT}. Run `windlass db "
        f'migrate` first: with migrate="manual" opening a storage does not migrate it.'
    )


def _locks(epoch: bytes) -> WorkerLocks:
    """Return the folder of locks, one per set of jobs: workers of others prove nothing here."""
    directory = runtime_directory()
    return WorkerLocks(None if directory is None else str(Path(directory, epoch.decode())))
