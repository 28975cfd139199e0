"""What people ask and order; used by the command line, dashboards and your own code alike."""

from windlass._admin.admin import Admin, BreakerReport, LimitReport, ScheduleReport
from windlass._admin.doctor.doctor import Finding
from windlass._admin.explain.explain import Cause, Explanation
from windlass._storage.protocol.actions import Cancel, Delete, Discard, Edit, Requeue, RunNow
from windlass._storage.protocol.job_list import JobFilter, ListOrder, Page

__all__ = [
    "Admin",
    "BreakerReport",
    "Cancel",
    "Cause",
    "Delete",
    "Discard",
    "Edit",
    "Explanation",
    "Finding",
    "JobFilter",
    "LimitReport",
    "ListOrder",
    "Page",
    "Requeue",
    "RunNow",
    "ScheduleReport",
]
