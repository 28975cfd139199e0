"""Failures, grouped by cause."""

from __future__ import annotations

from datetime import datetime

import msgspec

from windlass._admin.session import AdminSession
from windlass._core.values.redaction import redacted_text
from windlass._storage.protocol.admin import ErrorLook

__all__ = ["ErrorAdmin"]


class ErrorAdmin:
    """``app.admin.errors``: failed jobs, grouped by exception and place."""

    def __init__(self, session: AdminSession) -> None:
        self._session = session

    async def groups(
        self,
        *,
        queue: str | None = None,
        task: str | None = None,
        since: datetime | None = None,
    ) -> ErrorLook:
        """Group failed jobs by exception and place, the most recent group first.

        Find the jobs of a group with
        ``JobFilter(states=[State.FAILED], error=group.kind, frame=group.frame)``.
        """
        store = (await self._session.storage()).admin
        look = await store.errors(queue=queue, task=task, since=since)
        groups = [
            msgspec.structs.replace(group, text=redacted_text(group.text)) for group in look.groups
        ]
        return msgspec.structs.replace(look, groups=groups)
