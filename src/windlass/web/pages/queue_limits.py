"""What holds back the jobs of one queue besides its own settings: named limits and breakers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from windlass.admin import BreakerReport
from windlass.core.state import State
from windlass.limits import breaker_name
from windlass.storage.protocol import JobFilter
from windlass.web.pages.limits import LimitRow, keyed_limits
from windlass.web.visit import Visit

__all__ = ["Gates", "gates_of"]

_LOOKED_AT = 50
"""Jobs that say what they count against: tasks of other processes are not known here."""


class Gates(msgspec.Struct, frozen=True):
    """What its jobs count against, by name."""

    limits: Sequence[LimitRow]
    breakers: Sequence[BreakerReport]

    def __bool__(self) -> bool:
        return bool(self.limits or self.breakers)


async def gates_of(visit: Visit, queue: str, now: datetime) -> Gates:
    """As far as the tasks that this process knows and the latest jobs of the queue say."""
    admin, app = visit.admin, visit.dashboard.app
    usual = app.settings.default_queue
    tasks = [task for task in app.tasks if (task.settings.queue or usual) == queue]
    names = {spec.name for task in tasks for spec in task.specs}
    active = JobFilter(queue=queue, states=[State.WAITING, State.RUNNING])
    for job in await admin.find(active, limit=_LOOKED_AT):
        names.update(use.name for use in job.limits)
    if not names:
        return Gates((), ())
    keyed = keyed_limits(visit)
    return Gates(
        [
            LimitRow(one, now, declared_keyed=one.spec.name in keyed)
            for one in await admin.limits()
            if one.spec.name in names
        ],
        [one for one in await admin.breakers() if breaker_name(one.task) in names],
    )
