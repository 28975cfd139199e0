"""One typed API over what the store can tell and do."""

from __future__ import annotations

from windlass._admin.doctor.doctor import DoctorAdmin
from windlass._admin.explain.explain import ExplainAdmin
from windlass._admin.jobs.actions import EnqueueAdmin
from windlass._admin.limits import BreakerReport, LimitAdmin, LimitReport
from windlass._admin.overview import OverviewAdmin
from windlass._admin.plugins import PluginAdmin
from windlass._admin.queues import QueueAdmin
from windlass._admin.schedules import ScheduleReport
from windlass._admin.stats import StatsAdmin
from windlass._admin.storage import StorageAdmin
from windlass._admin.workers import WorkerAdmin

__all__ = ["Admin", "BreakerReport", "LimitReport", "ScheduleReport"]


class Admin(
    ExplainAdmin,
    LimitAdmin,
    QueueAdmin,
    StatsAdmin,
    StorageAdmin,
    WorkerAdmin,
    OverviewAdmin,
    PluginAdmin,
    EnqueueAdmin,
    DoctorAdmin,
):
    """``app.admin``: everything the command line and the dashboard can do.

    Orders are recorded under a name: ``app.admin.acting("alice").pause("mail")``. From code
    without a loop: ``app.blocking.run(app.admin.counts())``.
    """
