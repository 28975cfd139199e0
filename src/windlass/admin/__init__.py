"""What people ask and order; used by the command line, dashboards and your own code alike."""

from windlass.admin.admin import Admin, BreakerReport, LimitReport, ScheduleReport

__all__ = ["Admin", "BreakerReport", "LimitReport", "ScheduleReport"]
