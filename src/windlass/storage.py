"""The contract of a storage backend: its stores, their records, and the values that pass through.

A backend is an object that satisfies `Storage`; the docstrings of the stores say what each call
promises. ``windlass.testing.conformance`` holds the same contract as tests.
"""

from windlass._core.job.job import (
    Attempt,
    AttemptError,
    Claim,
    ClaimedJob,
    FollowUp,
    JobId,
    JobRecord,
    LimitUse,
    NewJob,
    OnLost,
    Progress,
)
from windlass._core.job.state import Shown, State, Verb
from windlass._core.job.transition import Transition
from windlass._core.job.unique import OnConflict, UniqueKey, Window
from windlass._core.limits.backoff import Backoff, Curve, Jitter
from windlass._core.limits.breaker import Breaker, BreakerState
from windlass._core.limits.limit import LimitSpec, Rate
from windlass._core.limits.queue_settings import QueueSettings
from windlass._core.stats.gauges import Gauge, GaugeRow, Readings
from windlass._core.stats.rollup import Rollup
from windlass._storage.protocol.actions import (
    ActionResult,
    ActionStore,
    AuditNote,
    AuditRecord,
    Cancel,
    Delete,
    Discard,
    Edit,
    JobAction,
    Requeue,
    RunNow,
)
from windlass._storage.protocol.admin import (
    AdminStore,
    ErrorGroup,
    ErrorLook,
    Named,
    QueueCounts,
    TaskCounts,
    TaskLook,
)
from windlass._storage.protocol.copy import CopiedRecord, CopyStore, StoredJob
from windlass._storage.protocol.jobs import (
    Applied,
    CancelAnswer,
    ClaimReply,
    Inserted,
    JobStore,
    Outlook,
    Settled,
    TransitionAnswer,
    Verdict,
    Want,
)
from windlass._storage.protocol.journal import EventRecord, JournalStore, LogChunk, LogLine
from windlass._storage.protocol.limits import BreakerLook, LimitState, LimitStore
from windlass._storage.protocol.lists.job_list import Cursor, JobFilter, ListOrder, Page
from windlass._storage.protocol.maintenance import MaintenanceStore
from windlass._storage.protocol.queues import QueueRecord, QueueStore
from windlass._storage.protocol.schedules import (
    DueSchedules,
    ScheduleAnswer,
    ScheduleRow,
    ScheduleStore,
    ScheduleWrite,
    Written,
)
from windlass._storage.protocol.storage import Storage, Stores
from windlass._storage.protocol.transactions import (
    ClaimEnd,
    ClaimEndAnswer,
    TransactionStore,
    UserConnection,
    UserInsertStore,
    UserTransactionStore,
)
from windlass._storage.protocol.wakeups import Topic, Wakeups, WorkHints
from windlass._storage.protocol.workers import (
    Duty,
    HeartbeatAnswer,
    HeartbeatChannel,
    LeaderStore,
    Standing,
    WorkerRecord,
    WorkerStart,
    WorkerState,
    WorkerStore,
)

__all__ = [
    "ActionResult",
    "ActionStore",
    "AdminStore",
    "Applied",
    "Attempt",
    "AttemptError",
    "AuditNote",
    "AuditRecord",
    "Backoff",
    "Breaker",
    "BreakerLook",
    "BreakerState",
    "Cancel",
    "CancelAnswer",
    "Claim",
    "ClaimEnd",
    "ClaimEndAnswer",
    "ClaimReply",
    "ClaimedJob",
    "CopiedRecord",
    "CopyStore",
    "Cursor",
    "Curve",
    "Delete",
    "Discard",
    "DueSchedules",
    "Duty",
    "Edit",
    "ErrorGroup",
    "ErrorLook",
    "EventRecord",
    "FollowUp",
    "Gauge",
    "GaugeRow",
    "HeartbeatAnswer",
    "HeartbeatChannel",
    "Inserted",
    "Jitter",
    "JobAction",
    "JobFilter",
    "JobId",
    "JobRecord",
    "JobStore",
    "JournalStore",
    "LeaderStore",
    "LimitSpec",
    "LimitState",
    "LimitStore",
    "LimitUse",
    "ListOrder",
    "LogChunk",
    "LogLine",
    "MaintenanceStore",
    "Named",
    "NewJob",
    "OnConflict",
    "OnLost",
    "Outlook",
    "Page",
    "Progress",
    "QueueCounts",
    "QueueRecord",
    "QueueSettings",
    "QueueStore",
    "Rate",
    "Readings",
    "Requeue",
    "Rollup",
    "RunNow",
    "ScheduleAnswer",
    "ScheduleRow",
    "ScheduleStore",
    "ScheduleWrite",
    "Settled",
    "Shown",
    "Standing",
    "State",
    "Storage",
    "StoredJob",
    "Stores",
    "TaskCounts",
    "TaskLook",
    "Topic",
    "TransactionStore",
    "Transition",
    "TransitionAnswer",
    "UniqueKey",
    "UserConnection",
    "UserInsertStore",
    "UserTransactionStore",
    "Verb",
    "Verdict",
    "Wakeups",
    "Want",
    "Window",
    "WorkHints",
    "WorkerRecord",
    "WorkerStart",
    "WorkerState",
    "WorkerStore",
    "Written",
]
