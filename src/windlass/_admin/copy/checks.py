"""Whether a copy may begin, and whether it is one: counts and checksums of jobs in any order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from windlass._admin.explain.cause import few, plural
from windlass._core.job.unique import Window
from windlass._storage.protocol.copy import StoredJob
from windlass._storage.protocol.flows import FlowGraph
from windlass._storage.protocol.storage import Storage
from windlass._storage.protocol.workers import HEARD
from windlass.errors import WindlassError

__all__ = ["JobChecksum", "refuse_workers"]

_WIDTH = 2**256


async def refuse_workers(storage: Storage, refusal: type[WindlassError]) -> None:
    """Raise ``refusal`` if a worker is live there: its changes during the copy would be lost.

    A worker whose last heartbeat is older than its lease, or whose death can be proven, does not
    count.
    """
    now = await storage.now()
    live = [
        f"{one.start.id} (process {one.start.pid} on {one.start.host})"
        for one in await storage.workers.workers()
        if one.standing(now) in HEARD and not storage.prove_dead(one.start)
    ]
    if live:
        message = (
            f"{plural(len(live), 'worker')} live on {storage.describe()}: {few(live)}. Stop "
            f"workers (SIGTERM) and producers, and run this again"
        )
        raise refusal(message)


class JobChecksum:
    """Counts jobs, and flows, and sums up a checksum of each, in any order."""

    def __init__(self) -> None:
        """Start with no thing counted."""
        self.count: int = 0
        self.flows: int = 0
        self._sum = 0

    def add(self, jobs: Iterable[StoredJob]) -> None:
        """Take these in."""
        for stored in jobs:
            self.count += 1
            self._take(_placeless(stored))

    def add_flows(self, flows: Iterable[FlowGraph]) -> None:
        """Take flows in, with the counts of their parts."""
        for graph in flows:
            self.flows += 1
            flow = msgspec.structs.replace(graph.flow, number=0)
            self._take(FlowGraph(flow, list(graph.parts), graph.retried))

    def _take(self, record: StoredJob | FlowGraph) -> None:
        told = msgspec.json.encode(record, order="deterministic")
        # A sum, not an exclusive or: a job that comes twice must not cancel itself out.
        self._sum = (self._sum + int(self.digest(told), 16)) % _WIDTH

    @property
    def text(self) -> str:
        """As 64 letters."""
        return f"{self._sum:064x}"

    @staticmethod
    def digest(told: bytes) -> str:
        """Return the digest of one thing."""
        return hashlib.sha256(told).hexdigest()


def _placeless(stored: StoredJob) -> StoredJob:
    """Return the job without the values that each store numbers for itself, or that end by
    themselves during a copy.
    """
    replace = msgspec.structs.replace
    passes = stored.unique is not None and stored.unique.window is Window.FOR_A_TIME
    return replace(
        stored,
        job=replace(stored.job, seq=0, key_held=stored.job.key_held and not passes),
        key_until=None,
        history=tuple(stored.history),
        logs=tuple(replace(log, claim=replace(log.claim, seq=0)) for log in stored.logs),
    )
