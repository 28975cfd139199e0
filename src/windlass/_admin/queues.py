"""Whole queues: what is set for them, paused, cooled down."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import msgspec
from msgspec import UNSET, UnsetType

from windlass._admin.session import AdminSession, check_changes
from windlass._core.limits.backoff import Backoff
from windlass._core.values.names import check_name
from windlass._storage.protocol.queues import QueueRecord

__all__ = ["QueueAdmin"]


class QueueAdmin(AdminSession):
    """The part of ``app.admin`` that is about queues."""

    async def queues(self) -> Sequence[QueueRecord]:
        """The queues with settings, paused or cooled down, by name. Their jobs: `counts`."""
        return await (await self._storage()).queues.queues()

    async def queue(self, name: str) -> QueueRecord:
        """What is set for a queue; nothing, if nobody has set anything."""
        check_name(name, "a queue's name")
        known = {record.queue: record for record in await self.queues()}
        return known.get(name) or QueueRecord(queue=name)

    async def set_queue(
        self,
        name: str,
        *,
        max_running: int | UnsetType | None = UNSET,
        backoff: Backoff | UnsetType | None = UNSET,
        cool_down: Backoff | UnsetType | None = UNSET,
        keep_succeeded: timedelta | float | UnsetType | None = UNSET,
        keep_failed: timedelta | float | UnsetType | None = UNSET,
    ) -> QueueRecord:
        """Change what holds for a queue, in every worker within a second. What is left out stays;
        None takes it away.

        ``max_running``: in the whole cluster. ``backoff``: for jobs whose task has none of its
        own. ``cool_down``: how long the queue rests when a handler raises `Throttled`.
        """
        given = {
            "max_running": max_running,
            "backoff": backoff,
            "cool_down": cool_down,
            "keep_succeeded": keep_succeeded,
            "keep_failed": keep_failed,
        }
        changes = check_changes(given, f"queue {name!r}")
        store = (await self._storage()).queues
        said = ", ".join(f"{option}={value}" for option, value in changes.items())
        audit = self._note("queues.set", f"queue {name}", said)
        while True:
            record = await self.queue(name)
            new = msgspec.structs.replace(record.settings, **changes)
            # Somebody else may be at it: what they change and we do not must stay.
            if await store.change(name, new, old=record.settings, audit=audit):
                return msgspec.structs.replace(record, settings=new)

    async def warm(self, queue: str) -> None:
        """End a queue's cool-down, and forget those before it."""
        check_name(queue, "a queue's name")
        audit = self._note("queues.warm", f"queue {queue}")
        await (await self._storage()).queues.warm(queue, audit=audit)

    async def pause(self, queue: str) -> None:
        """Claim nothing from this queue until it is resumed."""
        check_name(queue, "a queue's name")
        audit = self._note("queues.pause", f"queue {queue}")
        await (await self._storage()).admin.pause(queue, audit=audit)

    async def resume(self, queue: str) -> None:
        """Undo `pause`."""
        check_name(queue, "a queue's name")
        audit = self._note("queues.resume", f"queue {queue}")
        await (await self._storage()).admin.resume(queue, audit=audit)
