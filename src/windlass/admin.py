"""``app.admin`` and its parts: what they take and what they return.

The command line, the dashboard and your own code use the same calls.
"""

from windlass._admin.admin import Admin
from windlass._admin.audit import AuditAdmin
from windlass._admin.breakers import BreakerAdmin, BreakerReport
from windlass._admin.copy.copy import CopyProgress, CopyRefused, CopyReport
from windlass._admin.doctor.doctor import DoctorAdmin
from windlass._admin.doctor.finding import Finding
from windlass._admin.errors import ErrorAdmin
from windlass._admin.explain.cause import Cause
from windlass._admin.explain.explain import Explanation
from windlass._admin.flows.explain import FlowExplanation
from windlass._admin.flows.flows import FlowAdmin
from windlass._admin.jobs.bulk import BulkProgress, BulkReport
from windlass._admin.jobs.events import EventFilter, EventPage
from windlass._admin.jobs.jobs import JobAdmin
from windlass._admin.jobs.read import Count
from windlass._admin.limits import LimitAdmin, LimitReport
from windlass._admin.overview import JobLine, JobList, OverviewAdmin, Snapshot
from windlass._admin.plugins import PluginAdmin, PluginReport, PluginSchedule, PluginTaskReport
from windlass._admin.queues import QueueAdmin
from windlass._admin.schedule_reports import ScheduleReport
from windlass._admin.schedules import ScheduleAdmin
from windlass._admin.session import SweepReport
from windlass._admin.stats import StatsAdmin
from windlass._admin.storage import StorageAdmin, StorageReport
from windlass._admin.tasks import TaskAdmin, TaskReport
from windlass._admin.workers import WorkerAdmin
from windlass._core.flows.flow import AddedFlow, FlowRecord, FlowState, PartRecord
from windlass._core.stats.gauges import GaugePoint, GaugeSeries
from windlass._core.stats.rollup import Rollup
from windlass._core.stats.series import Activity, Series
from windlass._storage.protocol.actions import (
    AuditRecord,
    Cancel,
    Delete,
    Discard,
    Edit,
    Requeue,
    RunNow,
)
from windlass._storage.protocol.admin import ErrorGroup, ErrorLook, QueueCounts
from windlass._storage.protocol.flows import FlowCounts, FlowGraph
from windlass._storage.protocol.journal import EventRecord, LogChunk
from windlass._storage.protocol.lists.job_list import JobFilter, ListOrder, Page
from windlass._storage.protocol.queues import QueueRecord
from windlass._storage.protocol.workers import WorkerRecord

__all__ = [
    "Activity",
    "AddedFlow",
    "Admin",
    "AuditAdmin",
    "AuditRecord",
    "BreakerAdmin",
    "BreakerReport",
    "BulkProgress",
    "BulkReport",
    "Cancel",
    "Cause",
    "CopyProgress",
    "CopyRefused",
    "CopyReport",
    "Count",
    "Delete",
    "Discard",
    "DoctorAdmin",
    "Edit",
    "ErrorAdmin",
    "ErrorGroup",
    "ErrorLook",
    "EventFilter",
    "EventPage",
    "EventRecord",
    "Explanation",
    "Finding",
    "FlowAdmin",
    "FlowCounts",
    "FlowExplanation",
    "FlowGraph",
    "FlowRecord",
    "FlowState",
    "GaugePoint",
    "GaugeSeries",
    "JobAdmin",
    "JobFilter",
    "JobLine",
    "JobList",
    "LimitAdmin",
    "LimitReport",
    "ListOrder",
    "LogChunk",
    "OverviewAdmin",
    "Page",
    "PartRecord",
    "PluginAdmin",
    "PluginReport",
    "PluginSchedule",
    "PluginTaskReport",
    "QueueAdmin",
    "QueueCounts",
    "QueueRecord",
    "Requeue",
    "Rollup",
    "RunNow",
    "ScheduleAdmin",
    "ScheduleReport",
    "Series",
    "Snapshot",
    "StatsAdmin",
    "StorageAdmin",
    "StorageReport",
    "SweepReport",
    "TaskAdmin",
    "TaskReport",
    "WorkerAdmin",
    "WorkerRecord",
]
