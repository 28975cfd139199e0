"""One typed API over what the store can tell and do."""

from __future__ import annotations

from windlass.admin.doctor import DoctorDesk
from windlass.admin.enqueueing import EnqueueDesk
from windlass.admin.explain import ExplainDesk
from windlass.admin.limits import BreakerReport, LimitDesk, LimitReport
from windlass.admin.numbers import NumberDesk
from windlass.admin.place import PlaceDesk
from windlass.admin.plugins import PluginDesk
from windlass.admin.queues import QueueDesk
from windlass.admin.schedules import ScheduleReport
from windlass.admin.snapshot import SnapshotDesk
from windlass.admin.workers import WorkerDesk

__all__ = ["Admin", "BreakerReport", "LimitReport", "ScheduleReport"]


class Admin(
    ExplainDesk,
    LimitDesk,
    QueueDesk,
    NumberDesk,
    PlaceDesk,
    WorkerDesk,
    SnapshotDesk,
    PluginDesk,
    EnqueueDesk,
    DoctorDesk,
):
    """``app.admin``: everything the command line and the dashboard can do.

    Orders are recorded under a name: ``app.admin.acting("alice").pause("mail")``. From code
    without a loop: ``app.blocking.run(app.admin.counts())``.
    """
