"""What people ask and order; used by the command line, dashboards and your own code alike."""

from windlass.admin.admin import Admin, BreakerReport, LimitReport, ScheduleReport
from windlass.admin.doctor import Finding
from windlass.admin.explain import Cause, Explanation

__all__ = [
    "Admin",
    "BreakerReport",
    "Cause",
    "Explanation",
    "Finding",
    "LimitReport",
    "ScheduleReport",
]
