"""Queues: their settings and counts, pause, resume and cool-downs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta

import msgspec
from msgspec import UNSET, UnsetType

from windlass._admin.session import AdminSession, check_changes
from windlass._core.limits.backoff import Backoff
from windlass._core.values.names import check_name
from windlass._storage.protocol.admin import QueueCounts
from windlass._storage.protocol.queues import QueueRecord

__all__ = ["QueueAdmin"]

_CAPS = (100, 200, 500, 1_000, 2_000, 5_000, 10_000)
"""In steps: a number that is cut off must not move with every look."""
_COUNTED = 150_000
"""Jobs that one look counts, of all queues and states together: a tenth of a second."""


class QueueAdmin:
    """``app.admin.queues``: settings, counts, pause and resume."""

    def __init__(self, session: AdminSession) -> None:
        self._session = session

    async def list(self) -> Sequence[QueueRecord]:
        """List the queues that have settings, are paused or cool down, by name.

        `counts` lists the queues that have jobs.
        """
        return await (await self._session.storage()).queues.queues()

    async def get(self, name: str) -> QueueRecord:
        """Return the settings of a queue; an empty record if none were made."""
        check_name(name, "a queue's name")
        known = {record.queue: record for record in await self.list()}
        return known.get(name) or QueueRecord(queue=name)

    async def set(
        self,
        name: str,
        *,
        max_running: int | UnsetType | None = UNSET,
        backoff: Backoff | UnsetType | None = UNSET,
        cool_down: Backoff | UnsetType | None = UNSET,
        keep_succeeded: timedelta | float | UnsetType | None = UNSET,
        keep_failed: timedelta | float | UnsetType | None = UNSET,
    ) -> QueueRecord:
        """Change a queue's settings, in every worker within a second. A setting that you leave out
        stays as it is; None removes it.

        ``max_running``: jobs that run at once in the whole cluster. ``backoff``: for jobs whose
        task has no backoff. ``cool_down``: how long the queue pauses after a `Throttled`.
        ``keep_succeeded``, ``keep_failed``: how long ended jobs are kept.
        """
        given = {
            "max_running": max_running,
            "backoff": backoff,
            "cool_down": cool_down,
            "keep_succeeded": keep_succeeded,
            "keep_failed": keep_failed,
        }
        changes = check_changes(given, f"queue {name!r}")
        store = (await self._session.storage()).queues
        said = ", ".join(f"{option}={value}" for option, value in changes.items())
        audit = self._session.note("queues.set", f"queue {name}", said)
        while True:
            record = await self.get(name)
            new = msgspec.structs.replace(record.settings, **changes)
            # Compare and set: another operator may change other settings at the same time.
            if await store.change(name, new, old=record.settings, audit=audit):
                return msgspec.structs.replace(record, settings=new)

    async def pause(self, name: str) -> None:
        """Pause a queue on all workers until it is resumed. Running jobs finish."""
        check_name(name, "a queue's name")
        audit = self._session.note("queues.pause", f"queue {name}")
        await (await self._session.storage()).admin.pause(name, audit=audit)

    async def resume(self, name: str) -> None:
        """Let workers claim jobs from a paused queue again."""
        check_name(name, "a queue's name")
        audit = self._session.note("queues.resume", f"queue {name}")
        await (await self._session.storage()).admin.resume(name, audit=audit)

    async def warm(self, name: str) -> None:
        """End a queue's cool-down. The next one starts from the shortest wait again."""
        check_name(name, "a queue's name")
        audit = self._session.note("queues.warm", f"queue {name}")
        await (await self._session.storage()).queues.warm(name, audit=audit)

    async def counts(self, *, cap: int | UnsetType | None = UNSET) -> Sequence[QueueCounts]:
        """Count the jobs of each queue by state. No number is counted further than ``cap``; None
        counts all.

        Left out, the cap is as large as is quick: up to 10,000, less where many queues have that
        many jobs. The answer says which cap was used.
        """
        store = (await self._session.storage()).admin
        if not isinstance(cap, UnsetType):
            return await store.counts(cap=cap)
        few = await store.counts(cap=_CAPS[0])
        full = sum(number >= _CAPS[0] for one in few for number in _numbers(one))
        if not full:
            return few
        quick = max((one for one in _CAPS if one * full <= _COUNTED), default=_CAPS[0])
        return few if quick == _CAPS[0] else await store.counts(cap=quick)

    async def lags(self) -> Mapping[str, timedelta]:
        """Measure how long the oldest ready job of each queue has been due. Queues without a ready
        job are left out.
        """
        storage = await self._session.storage()
        now = await storage.now()
        return {
            counts.queue: max(now - counts.oldest_due, timedelta(0))
            for counts in await storage.admin.counts(cap=1)
            if counts.oldest_due is not None
        }


def _numbers(counts: QueueCounts) -> tuple[int, ...]:
    waiting = (counts.ready, counts.scheduled, counts.retrying)
    ended = (counts.succeeded, counts.failed, counts.cancelled, counts.discarded)
    return (*waiting, counts.running, *ended)
