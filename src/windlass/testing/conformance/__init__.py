"""The storage contract as tests. Every backend runs all of them, ours and other people's.

Needs pytest and pytest-asyncio (``asyncio_mode = "auto"``) and four fixtures: ``clock``, a
`VirtualClock`, ``storage``, an empty, opened `Storage` that reads it, and ``elsewhere``, another
one of the same kind; ``upgrade``, an async function that raises the version which
``storage`` has stored to the next major one, as a newer Windlass would. Then::

    from windlass.testing.conformance import ALL

    for suite in ALL:
        name = f"Test{suite.__name__}"
        globals()[name] = type(name, (suite,), {})

Numbers such as ENQ-3 or F1 in comments name the requirement or the test of another job system
that a test answers to.
"""

from windlass.testing.conformance.actions.actions import ActionConformance, RequeueConformance
from windlass.testing.conformance.actions.audit import AuditConformance
from windlass.testing.conformance.actions.delete import DeleteConformance
from windlass.testing.conformance.actions.edit import EditConformance
from windlass.testing.conformance.actions.races import ActionRaceConformance
from windlass.testing.conformance.admin.admin import (
    JobReadConformance,
    OperatorConformance,
    QueueConformance,
)
from windlass.testing.conformance.admin.counts import QueueCountConformance
from windlass.testing.conformance.admin.errors import ErrorGroupConformance
from windlass.testing.conformance.admin.find import (
    FilterConformance,
    PageConformance,
    TextConformance,
)
from windlass.testing.conformance.admin.ids import ShortIdConformance
from windlass.testing.conformance.admin.rollups import RollupConformance
from windlass.testing.conformance.admin.secret import SecretConformance
from windlass.testing.conformance.admin.sort import SortConformance
from windlass.testing.conformance.admin.tasks import TaskCountConformance
from windlass.testing.conformance.copy.dump import DumpConformance
from windlass.testing.conformance.copy.flows import CopyFlowsConformance
from windlass.testing.conformance.copy.restore import RestoreConformance
from windlass.testing.conformance.flows.actions import FlowCancelConformance, FlowRetryConformance
from windlass.testing.conformance.flows.added import FlowAddedConformance
from windlass.testing.conformance.flows.added_after import AddedAfterConformance
from windlass.testing.conformance.flows.added_flows import AddedFlowConformance
from windlass.testing.conformance.flows.added_outside import AddedOutsideConformance
from windlass.testing.conformance.flows.again import FlowAgainConformance
from windlass.testing.conformance.flows.counts import FlowCountConformance
from windlass.testing.conformance.flows.ends import FlowEndConformance, FlowFailureConformance
from windlass.testing.conformance.flows.jobs import FlowJobConformance
from windlass.testing.conformance.flows.keep import FlowKeepConformance
from windlass.testing.conformance.flows.portions import FlowPortionConformance
from windlass.testing.conformance.flows.sealed import FlowSealConformance
from windlass.testing.conformance.flows.start import FlowStartConformance
from windlass.testing.conformance.gauges import GaugeConformance
from windlass.testing.conformance.jobs.apply import FenceConformance, OutcomeConformance
from windlass.testing.conformance.jobs.cancel import CancelConformance
from windlass.testing.conformance.jobs.claim import ClaimConformance, ClaimOrderConformance
from windlass.testing.conformance.jobs.expiry import ExpiryConformance
from windlass.testing.conformance.jobs.first_start import FirstStartConformance
from windlass.testing.conformance.jobs.follow_ups import FollowUpConformance, OnFailureConformance
from windlass.testing.conformance.jobs.history import HistoryConformance, MetadataConformance
from windlass.testing.conformance.jobs.insert import InsertConformance, UniqueConformance
from windlass.testing.conformance.jobs.lost_jobs import LostJobConformance
from windlass.testing.conformance.jobs.outlook import OutlookConformance
from windlass.testing.conformance.jobs.repeated_ids import RepeatedIdConformance
from windlass.testing.conformance.jobs.retry import RetryConformance
from windlass.testing.conformance.jobs.solo_runs import SoloConformance
from windlass.testing.conformance.jobs.success_jobs import (
    AddedJobConformance,
    SuccessJobConformance,
)
from windlass.testing.conformance.jobs.unknown_tasks import UnknownTaskConformance
from windlass.testing.conformance.journal import EventConformance, LogConformance
from windlass.testing.conformance.limits.breaker_trials import BreakerTrialConformance
from windlass.testing.conformance.limits.breakers import BreakerConformance
from windlass.testing.conformance.limits.budgets import ChangedRateConformance, DrainConformance
from windlass.testing.conformance.limits.concurrency import ConcurrencyConformance
from windlass.testing.conformance.limits.lanes import LaneConformance
from windlass.testing.conformance.limits.rate_windows import RateWindowConformance
from windlass.testing.conformance.limits.rates import RateConformance
from windlass.testing.conformance.maintenance.activity import ActivityConformance
from windlass.testing.conformance.maintenance.maintenance import MaintenanceConformance
from windlass.testing.conformance.maintenance.rollups import CompactionConformance
from windlass.testing.conformance.newer_schema import NewerSchemaConformance
from windlass.testing.conformance.queues.cooldown import CoolDownConformance, ThrottleConformance
from windlass.testing.conformance.queues.cooldown_end import CooldownEndConformance
from windlass.testing.conformance.queues.max_running import MaxRunningConformance
from windlass.testing.conformance.queues.retention import RetentionConformance
from windlass.testing.conformance.queues.settings import QueueSettingsConformance
from windlass.testing.conformance.schedules.fire import FireConformance, OverlapConformance
from windlass.testing.conformance.schedules.pause import SchedulePauseConformance
from windlass.testing.conformance.schedules.schedules import DueConformance, ScheduleConformance
from windlass.testing.conformance.storage import (
    QueueWakeupConformance,
    StorageConformance,
    WakeupConformance,
)
from windlass.testing.conformance.unique_keys.coalesced import CoalescedConformance
from windlass.testing.conformance.unique_keys.holders import KeyHolderConformance
from windlass.testing.conformance.unique_keys.refuse import KeyConflictConformance
from windlass.testing.conformance.unique_keys.replace import ReplaceConformance
from windlass.testing.conformance.workers.death import (
    SteadyLeaseConformance,
    WorkerDeathConformance,
)
from windlass.testing.conformance.workers.duties import DutyConformance
from windlass.testing.conformance.workers.leader import LeaderConformance
from windlass.testing.conformance.workers.workers import (
    HeartbeatConformance,
    WorkerLeaveConformance,
)

__all__ = [
    "ALL",
    "LOCAL",
    "TELLING",
    "ActionConformance",
    "ActionRaceConformance",
    "ActivityConformance",
    "AddedAfterConformance",
    "AddedFlowConformance",
    "AddedJobConformance",
    "AddedOutsideConformance",
    "AuditConformance",
    "BreakerConformance",
    "BreakerTrialConformance",
    "CancelConformance",
    "ChangedRateConformance",
    "ClaimConformance",
    "ClaimOrderConformance",
    "CoalescedConformance",
    "CompactionConformance",
    "ConcurrencyConformance",
    "CoolDownConformance",
    "CooldownEndConformance",
    "CopyFlowsConformance",
    "DeleteConformance",
    "DrainConformance",
    "DueConformance",
    "DumpConformance",
    "DutyConformance",
    "EditConformance",
    "ErrorGroupConformance",
    "EventConformance",
    "ExpiryConformance",
    "FenceConformance",
    "FilterConformance",
    "FireConformance",
    "FirstStartConformance",
    "FlowAddedConformance",
    "FlowAgainConformance",
    "FlowCancelConformance",
    "FlowCountConformance",
    "FlowEndConformance",
    "FlowFailureConformance",
    "FlowJobConformance",
    "FlowKeepConformance",
    "FlowPortionConformance",
    "FlowRetryConformance",
    "FlowSealConformance",
    "FlowStartConformance",
    "FollowUpConformance",
    "GaugeConformance",
    "HeartbeatConformance",
    "HistoryConformance",
    "InsertConformance",
    "JobReadConformance",
    "KeyConflictConformance",
    "KeyHolderConformance",
    "LaneConformance",
    "LeaderConformance",
    "LogConformance",
    "LostJobConformance",
    "MaintenanceConformance",
    "MaxRunningConformance",
    "MetadataConformance",
    "NewerSchemaConformance",
    "OnFailureConformance",
    "OperatorConformance",
    "OutcomeConformance",
    "OutlookConformance",
    "OverlapConformance",
    "PageConformance",
    "QueueConformance",
    "QueueCountConformance",
    "QueueSettingsConformance",
    "QueueWakeupConformance",
    "RateConformance",
    "RateWindowConformance",
    "RepeatedIdConformance",
    "ReplaceConformance",
    "RequeueConformance",
    "RestoreConformance",
    "RetentionConformance",
    "RetryConformance",
    "RollupConformance",
    "ScheduleConformance",
    "SchedulePauseConformance",
    "SecretConformance",
    "ShortIdConformance",
    "SoloConformance",
    "SortConformance",
    "SteadyLeaseConformance",
    "StorageConformance",
    "SuccessJobConformance",
    "TaskCountConformance",
    "TextConformance",
    "ThrottleConformance",
    "UniqueConformance",
    "UnknownTaskConformance",
    "WakeupConformance",
    "WorkerDeathConformance",
    "WorkerLeaveConformance",
]

ALL: tuple[type, ...] = (
    InsertConformance,
    RepeatedIdConformance,
    UniqueConformance,
    ReplaceConformance,
    KeyHolderConformance,
    KeyConflictConformance,
    CoalescedConformance,
    ClaimConformance,
    ClaimOrderConformance,
    ActivityConformance,
    OutlookConformance,
    ExpiryConformance,
    FirstStartConformance,
    SoloConformance,
    LostJobConformance,
    FenceConformance,
    OutcomeConformance,
    HistoryConformance,
    MetadataConformance,
    UnknownTaskConformance,
    RetryConformance,
    FollowUpConformance,
    SuccessJobConformance,
    AddedJobConformance,
    OnFailureConformance,
    CancelConformance,
    HeartbeatConformance,
    WorkerDeathConformance,
    DutyConformance,
    WorkerLeaveConformance,
    LeaderConformance,
    ConcurrencyConformance,
    LaneConformance,
    RateConformance,
    RateWindowConformance,
    DrainConformance,
    ChangedRateConformance,
    BreakerConformance,
    BreakerTrialConformance,
    ThrottleConformance,
    CoolDownConformance,
    CooldownEndConformance,
    QueueSettingsConformance,
    MaxRunningConformance,
    ScheduleConformance,
    DueConformance,
    FireConformance,
    OverlapConformance,
    SchedulePauseConformance,
    MaintenanceConformance,
    RetentionConformance,
    JobReadConformance,
    OperatorConformance,
    QueueConformance,
    ActionConformance,
    RequeueConformance,
    EditConformance,
    DeleteConformance,
    ActionRaceConformance,
    AuditConformance,
    FilterConformance,
    TextConformance,
    PageConformance,
    ShortIdConformance,
    SecretConformance,
    SortConformance,
    QueueCountConformance,
    TaskCountConformance,
    ErrorGroupConformance,
    LogConformance,
    EventConformance,
    RollupConformance,
    CompactionConformance,
    GaugeConformance,
    CopyFlowsConformance,
    DumpConformance,
    RestoreConformance,
    FlowStartConformance,
    FlowSealConformance,
    FlowEndConformance,
    FlowFailureConformance,
    FlowAddedConformance,
    AddedFlowConformance,
    AddedAfterConformance,
    AddedOutsideConformance,
    FlowAgainConformance,
    FlowRetryConformance,
    FlowCancelConformance,
    FlowKeepConformance,
    FlowPortionConformance,
    FlowCountConformance,
    FlowJobConformance,
    WakeupConformance,
    StorageConformance,
    NewerSchemaConformance,
)
"""Every suite that holds for every backend, in the order of a job's way."""

LOCAL: tuple[type, ...] = (SteadyLeaseConformance,)
"""Further promises of a storage on the machine that runs it."""

TELLING: tuple[type, ...] = (QueueWakeupConformance,)
"""Further promises of a storage whose hints name their queues. A SQLite file cannot: the watcher
sees that something was committed, not what; a reused job is committed too, because it is counted.
"""
