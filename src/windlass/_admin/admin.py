"""``app.admin``: one part for each subject, and the name that actions are recorded under."""

from __future__ import annotations

from windlass._admin.audit import AuditAdmin
from windlass._admin.breakers import BreakerAdmin
from windlass._admin.doctor.doctor import DoctorAdmin
from windlass._admin.errors import ErrorAdmin
from windlass._admin.flows.flows import FlowAdmin
from windlass._admin.jobs.jobs import JobAdmin
from windlass._admin.limits import LimitAdmin
from windlass._admin.overview import OverviewAdmin
from windlass._admin.plugins import PluginAdmin
from windlass._admin.queues import QueueAdmin
from windlass._admin.schedules import ScheduleAdmin
from windlass._admin.session import AdminSession
from windlass._admin.stats import StatsAdmin
from windlass._admin.storage import StorageAdmin
from windlass._admin.tasks import TaskAdmin
from windlass._admin.workers import WorkerAdmin

__all__ = ["Admin"]


class Admin:
    """``app.admin``: everything that the command line and the dashboard can do.

    Each action leaves an audit record. Say under which name:
    ``app.admin.acting("alice").queues.pause("mail")``. From code without an event loop:
    ``app.blocking.admin.queues.pause("mail")``.
    """

    def __init__(self, session: AdminSession) -> None:
        self._session = session
        self.jobs: JobAdmin = JobAdmin(session)
        self.queues: QueueAdmin = QueueAdmin(session)
        self.flows: FlowAdmin = FlowAdmin(session)
        self.limits: LimitAdmin = LimitAdmin(session)
        self.breakers: BreakerAdmin = BreakerAdmin(session)
        self.schedules: ScheduleAdmin = ScheduleAdmin(session)
        self.workers: WorkerAdmin = WorkerAdmin(session)
        self.errors: ErrorAdmin = ErrorAdmin(session)
        self.audit: AuditAdmin = AuditAdmin(session)
        self.tasks: TaskAdmin = TaskAdmin(session, self.errors)
        self.storage: StorageAdmin = StorageAdmin(session)
        self.stats: StatsAdmin = StatsAdmin(session)
        self.overview: OverviewAdmin = OverviewAdmin(session, self.jobs, self.schedules)
        self.doctor: DoctorAdmin = DoctorAdmin(session)
        self.plugins: PluginAdmin = PluginAdmin(session)

    def acting(self, who: str) -> Admin:
        """Return the same admin, whose actions are recorded under the name ``who``."""
        return Admin(self._session.acting(who))
