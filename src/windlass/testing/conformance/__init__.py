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

from windlass.testing.conformance.activity import ActivityConformance
from windlass.testing.conformance.administering import (
    OperatorConformance,
    QueueConformance,
    ReadingConformance,
)
from windlass.testing.conformance.applying import FenceConformance, OutcomeConformance
from windlass.testing.conformance.assigning import DutyConformance
from windlass.testing.conformance.auditing import AuditConformance
from windlass.testing.conformance.breakers import BreakerConformance
from windlass.testing.conformance.burying import BurialConformance, SteadyLeaseConformance
from windlass.testing.conformance.cancelling import CancelConformance
from windlass.testing.conformance.claiming import ClaimConformance, OrderConformance
from windlass.testing.conformance.compacting import CompactionConformance
from windlass.testing.conformance.concurrency import ConcurrencyConformance
from windlass.testing.conformance.cooling import CoolDownConformance, ThrottleConformance
from windlass.testing.conformance.counting import RollupConformance
from windlass.testing.conformance.counting_queues import QueueCountConformance
from windlass.testing.conformance.deleting import DeletionConformance
from windlass.testing.conformance.draining import ChangedRateConformance, DrainConformance
from windlass.testing.conformance.editing import EditConformance
from windlass.testing.conformance.erring import ErrorGroupConformance
from windlass.testing.conformance.expiring import ExpiryConformance
from windlass.testing.conformance.filling import MaxRunningConformance
from windlass.testing.conformance.finding import FilterConformance, PageConformance, TextConformance
from windlass.testing.conformance.firing import FiringConformance, OverlapConformance
from windlass.testing.conformance.following import FollowUpConformance, OnFailureConformance
from windlass.testing.conformance.forgiving import ForgivenessConformance
from windlass.testing.conformance.histories import HistoryConformance
from windlass.testing.conformance.holding import HolderConformance
from windlass.testing.conformance.inserting import InsertConformance, UniqueConformance
from windlass.testing.conformance.journal import EventConformance, LogConformance
from windlass.testing.conformance.keeping import RetentionConformance
from windlass.testing.conformance.lanes import LaneConformance
from windlass.testing.conformance.leading import LeaderConformance
from windlass.testing.conformance.losing import LossConformance
from windlass.testing.conformance.maintaining import MaintenanceConformance
from windlass.testing.conformance.missing import MissConformance
from windlass.testing.conformance.moving import MovingConformance
from windlass.testing.conformance.naming import NamingConformance
from windlass.testing.conformance.opening import (
    QueueWakeupConformance,
    StorageConformance,
    WakeupConformance,
)
from windlass.testing.conformance.ordering import ObedienceConformance, RequeueConformance
from windlass.testing.conformance.outlook import OutlookConformance
from windlass.testing.conformance.racing import RaceConformance
from windlass.testing.conformance.rates import RateConformance
from windlass.testing.conformance.refusing import RefusalConformance
from windlass.testing.conformance.repeating import RepeatConformance
from windlass.testing.conformance.replacing import ReplaceConformance
from windlass.testing.conformance.restoring import RestorationConformance
from windlass.testing.conformance.retrying import RetryConformance
from windlass.testing.conformance.scheduling import DueConformance, ScheduleConformance
from windlass.testing.conformance.secrets import SecretConformance
from windlass.testing.conformance.settings import SettingsConformance
from windlass.testing.conformance.solo import SoloConformance
from windlass.testing.conformance.sorting import ListConformance
from windlass.testing.conformance.starting import StartConformance
from windlass.testing.conformance.succeeding import SuccessorConformance
from windlass.testing.conformance.trying import TrialConformance
from windlass.testing.conformance.upgrading import UpgradeConformance
from windlass.testing.conformance.windows import WindowConformance
from windlass.testing.conformance.working import FarewellConformance, HeartbeatConformance

__all__ = [
    "ALL",
    "LOCAL",
    "TELLING",
    "ActivityConformance",
    "AuditConformance",
    "BreakerConformance",
    "BurialConformance",
    "CancelConformance",
    "ChangedRateConformance",
    "ClaimConformance",
    "CompactionConformance",
    "ConcurrencyConformance",
    "CoolDownConformance",
    "DeletionConformance",
    "DrainConformance",
    "DueConformance",
    "DutyConformance",
    "EditConformance",
    "ErrorGroupConformance",
    "EventConformance",
    "ExpiryConformance",
    "FarewellConformance",
    "FenceConformance",
    "FilterConformance",
    "FiringConformance",
    "FollowUpConformance",
    "ForgivenessConformance",
    "HeartbeatConformance",
    "HistoryConformance",
    "HolderConformance",
    "InsertConformance",
    "LaneConformance",
    "LeaderConformance",
    "ListConformance",
    "LogConformance",
    "LossConformance",
    "MaintenanceConformance",
    "MaxRunningConformance",
    "MissConformance",
    "MovingConformance",
    "NamingConformance",
    "ObedienceConformance",
    "OnFailureConformance",
    "OperatorConformance",
    "OrderConformance",
    "OutcomeConformance",
    "OutlookConformance",
    "OverlapConformance",
    "PageConformance",
    "QueueConformance",
    "QueueCountConformance",
    "QueueWakeupConformance",
    "RaceConformance",
    "RateConformance",
    "ReadingConformance",
    "RefusalConformance",
    "RepeatConformance",
    "ReplaceConformance",
    "RequeueConformance",
    "RestorationConformance",
    "RetentionConformance",
    "RetryConformance",
    "RollupConformance",
    "ScheduleConformance",
    "SecretConformance",
    "SettingsConformance",
    "SoloConformance",
    "StartConformance",
    "SteadyLeaseConformance",
    "StorageConformance",
    "SuccessorConformance",
    "TextConformance",
    "ThrottleConformance",
    "TrialConformance",
    "UniqueConformance",
    "UpgradeConformance",
    "WakeupConformance",
    "WindowConformance",
]

ALL: tuple[type, ...] = (
    InsertConformance,
    RepeatConformance,
    UniqueConformance,
    ReplaceConformance,
    HolderConformance,
    RefusalConformance,
    ClaimConformance,
    OrderConformance,
    ActivityConformance,
    OutlookConformance,
    ExpiryConformance,
    StartConformance,
    SoloConformance,
    LossConformance,
    FenceConformance,
    OutcomeConformance,
    HistoryConformance,
    MissConformance,
    RetryConformance,
    FollowUpConformance,
    SuccessorConformance,
    OnFailureConformance,
    CancelConformance,
    HeartbeatConformance,
    BurialConformance,
    DutyConformance,
    FarewellConformance,
    LeaderConformance,
    ConcurrencyConformance,
    LaneConformance,
    RateConformance,
    WindowConformance,
    DrainConformance,
    ChangedRateConformance,
    BreakerConformance,
    TrialConformance,
    ThrottleConformance,
    CoolDownConformance,
    ForgivenessConformance,
    SettingsConformance,
    MaxRunningConformance,
    ScheduleConformance,
    DueConformance,
    FiringConformance,
    OverlapConformance,
    MaintenanceConformance,
    RetentionConformance,
    ReadingConformance,
    OperatorConformance,
    QueueConformance,
    ObedienceConformance,
    RequeueConformance,
    EditConformance,
    DeletionConformance,
    RaceConformance,
    AuditConformance,
    FilterConformance,
    TextConformance,
    PageConformance,
    NamingConformance,
    SecretConformance,
    ListConformance,
    QueueCountConformance,
    ErrorGroupConformance,
    LogConformance,
    EventConformance,
    RollupConformance,
    CompactionConformance,
    MovingConformance,
    RestorationConformance,
    WakeupConformance,
    StorageConformance,
    UpgradeConformance,
)
"""Every suite that holds for every backend, in the order of a job's way."""

LOCAL: tuple[type, ...] = (SteadyLeaseConformance,)
"""What holds besides where the jobs live on the machine that runs them."""

TELLING: tuple[type, ...] = (QueueWakeupConformance,)
"""What holds besides where a hint names its queues. In a SQLite file it does not: the watcher sees
that something was committed, not what."""
