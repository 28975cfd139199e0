"""Slots: how many jobs may run at once, and which queues to ask for how many."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from windlass._settings.settings import WorkerSettings
from windlass._storage.protocol.jobs import Want

__all__ = ["Slots"]


class Slots:
    """Room for running jobs: a pool per queue, or one pool shared by several queues."""

    def __init__(self, settings: WorkerSettings, on_free: Callable[[], None]) -> None:
        """All slots are free."""
        self._own = settings.queues
        self._served = settings.served
        self._total = settings.total_slots
        self._weighted = settings.order == "weighted" and settings.queues is None
        weights = settings.weights or {}
        self._weights = {queue: weights.get(queue, 1) for queue in self._served}
        self._credit = dict.fromkeys(self._served, 0)
        self._used = 0
        self._used_by: dict[str, int] = dict.fromkeys(self._served, 0)
        self.on_free = on_free
        """Called whenever room appears."""

    @property
    def total(self) -> int:
        """All slots."""
        return self._total

    @property
    def used(self) -> int:
        """Slots that hold a running job."""
        return self._used

    @property
    def free(self) -> int:
        """Slots that do not."""
        return max(self._total - self._used, 0)

    @property
    def some_pool_full(self) -> bool:
        """Whether a queue with slots of its own has none free: more of it may be waiting."""
        own = self._own
        return own is not None and any(self._used_by[queue] >= own[queue] for queue in own)

    def take(self, queue: str) -> None:
        """A job of ``queue`` starts."""
        self._used += 1
        self._used_by[queue] = self._used_by.get(queue, 0) + 1

    def give(self, queue: str) -> None:
        """A job of ``queue`` has ended."""
        self._used -= 1
        self._used_by[queue] -= 1
        self.on_free()

    def wants(self) -> tuple[Sequence[Want], int]:
        """What to ask the store for now, in order, and how many at most."""
        if self._own is not None:
            return self._own_wants(self._own)
        room = self.free
        if room == 0:
            return (), 0
        everything = [Want(queue, room) for queue in self._served]
        if not self._weighted or len(self._served) == 1:
            return everything, room
        # First everyone's share, then whoever has more: an idle queue's share is not wasted.
        shares = self._shares(room)
        first = [Want(queue, share) for queue, share in shares.items() if share]
        return [*first, *everything], room

    def _own_wants(self, own: Mapping[str, int]) -> tuple[Sequence[Want], int]:
        wants = [
            Want(queue, size - self._used_by[queue])
            for queue, size in own.items()
            if size > self._used_by[queue]
        ]
        return wants, sum(want.limit for want in wants)

    def _shares(self, room: int) -> dict[str, int]:
        """Smooth weighted round-robin: no queue starves, and shares even out over claims."""
        shares = dict.fromkeys(self._served, 0)
        whole = sum(self._weights.values())
        for _ in range(room):
            for queue, weight in self._weights.items():
                self._credit[queue] += weight
            best = max(self._served, key=self._credit.__getitem__)
            self._credit[best] -= whole
            shares[best] += 1
        return shares
