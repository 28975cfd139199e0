"""One round of a worker's duties for others, without a worker: `app.admin.workers.sweep`."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windlass._observe.bus import Bus
from windlass._storage.protocol.storage import Storage
from windlass._worker.finish.decisions import Decisions
from windlass._worker.liveness.maintenance import run_in_chunks
from windlass._worker.liveness.reaper import Reaper

__all__ = ["Swept", "sweep"]


class Swept(msgspec.Struct, frozen=True):
    """The workers that were declared dead, and how many jobs were released and promoted."""

    dead: Sequence[str]
    released: int
    promoted: int


class _Operator(msgspec.Struct, frozen=True):
    """Takes the place of a worker in the reaper. It is not stored, and may declare workers dead."""

    id: str = "sweep"
    may_judge: bool = True


async def sweep(storage: Storage, decisions: Decisions, bus: Bus) -> Swept:
    """Declare dead workers dead, release their jobs by the rules of ``decisions``, and mark due
    jobs ready.
    """
    await decisions.queues.step()
    operator = _Operator()
    reaper = Reaper(storage, operator, operator, decisions=decisions, bus=bus)
    dead = [*await reaper.declare_ended(), *await reaper.declare_overdue()]
    released = await reaper.reap()
    promoted = await run_in_chunks(storage.maintenance.promote)
    return Swept(dead, released, promoted)
