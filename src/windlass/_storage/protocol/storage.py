"""The seam between Windlass and where jobs live. The docstrings are the contract.

A backend is a `Storage` made of narrow stores. Everything takes and returns batches; every
operation is atomic, and every operation may be repeated safely after a lost answer. The storage
owns the clock: one instant is read inside each operation, delays come in as durations.
``windlass.testing.conformance`` holds every backend to these words.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # a program that only enqueues uses two of them
    from windlass._storage.protocol.actions import ActionStore
    from windlass._storage.protocol.admin import AdminStore
    from windlass._storage.protocol.copy import CopyStore
    from windlass._storage.protocol.flows import FlowStore
    from windlass._storage.protocol.jobs import JobStore
    from windlass._storage.protocol.journal import JournalStore
    from windlass._storage.protocol.limits import LimitStore
    from windlass._storage.protocol.maintenance import MaintenanceStore
    from windlass._storage.protocol.queues import QueueStore
    from windlass._storage.protocol.schedules import ScheduleStore
    from windlass._storage.protocol.transactions import TransactionStore
    from windlass._storage.protocol.wakeups import Wakeups
    from windlass._storage.protocol.workers import LeaderStore, WorkerStart, WorkerStore

__all__ = ["Storage", "Stores"]


class Stores(Protocol):
    """The stores of a backend."""

    @property
    def jobs(self) -> JobStore:
        """Jobs: insert, claim, finish."""
        ...

    @property
    def workers(self) -> WorkerStore:
        """Workers and their leases."""
        ...

    @property
    def leader(self) -> LeaderStore:
        """The election of the leader."""
        ...

    @property
    def limits(self) -> LimitStore:
        """Limits, lanes and circuit breakers."""
        ...

    @property
    def maintenance(self) -> MaintenanceStore:
        """Duties that one worker does for all."""
        ...

    @property
    def queues(self) -> QueueStore:
        """Queues and their settings."""
        ...

    @property
    def schedules(self) -> ScheduleStore:
        """Schedules and their slots."""
        ...

    @property
    def admin(self) -> AdminStore:
        """Reads for operators."""
        ...

    @property
    def orders(self) -> ActionStore:
        """Actions of operators."""
        ...

    @property
    def flows(self) -> FlowStore:
        """Flows and their parts."""
        ...

    @property
    def journal(self) -> JournalStore:
        """Log lines and events beside the jobs."""
        ...

    @property
    def moving(self) -> CopyStore:
        """Reads and writes of `windlass db copy`."""
        ...

    @property
    def wakeups(self) -> Wakeups:
        """Hints that work may be ready."""
        ...

    @property
    def transactions(self) -> TransactionStore | None:
        """None: this backend cannot take part in the user's transactions."""
        ...


class Storage(Stores, Protocol):
    """A backend, opened for one event loop."""

    @property
    def shared(self) -> bool:
        """Whether other processes see the same jobs."""
        ...

    def describe(self) -> str:
        """Return backend, version and place in one line, without secrets."""
        ...

    async def health(self) -> Mapping[str, float | str]:
        """Return what the backend reports about itself, by name.

        ``size`` (bytes of all it keeps) and backend-specific values; unknown ones are left out.
        Bytes, seconds and counts are numbers; settings are the server's words. `windlass doctor`
        reads these names:

        - everywhere ``version``, ``durability`` (the one asked for)
        - SQLite: ``filesystem``, ``network_filesystem`` (yes, no), ``wal``, ``free_disk``,
          ``journal_mode``, ``synchronous``, ``busy_timeout`` (seconds until `StoreBusy`)
        - PostgreSQL: ``synchronous_commit``, ``fsync``, ``full_page_writes``, ``autovacuum``,
          ``dead_rows``, ``live_rows``, ``oldest_snapshot`` (seconds), ``oldest_snapshot_of`` (who),
          ``connections`` (of them ``connections_active``, ``connections_idle`` and, by name,
          ``connections_windlass``), ``max_connections``, ``database_size``, ``pooled`` (yes: by
          PgBouncer or a similar pooler), ``statement_timeout`` (seconds)
        - Redis: ``appendonly``, ``appendfsync``, ``last_write`` (to that file: ok, err),
          ``eviction`` (its policy), ``maxmemory``, ``replicas``, ``connections``,
          ``max_connections``; ``size`` is the memory it uses
        - PostgreSQL and Redis: ``retry_for`` (seconds that a call waits for a lost server)
        """
        ...

    def prove_dead(self, worker: WorkerStart) -> bool:
        """Check whether this worker is provably dead, on this machine. With a proof, its lease need
        not expire. False proves nothing.
        """
        ...

    def hold_worker_lock(self, worker: str) -> tuple[str, int, int]:
        """Take the lock that the operating system releases when this process ends. Return boot id,
        device and inode for the worker's row, or ("", 0, 0) if the backend has no such proof.
        """
        ...

    def release_worker_lock(self, worker: str) -> None:
        """Release the lock, after the row has ended."""
        ...

    async def now(self) -> datetime:
        """Return the time of the store's clock."""
        ...

    async def close(self) -> None:
        """Finish running operations and release every resource. Safe to repeat."""
        ...
