"""What the machine that compares two stores can choose from."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from windlass._core.job.job import (
    AttemptError,
    FollowUp,
    LimitUse,
)
from windlass._core.job.outcome import (
    Cancelled,
    GaveUp,
    Interrupted,
    Lost,
    Missing,
    Outcome,
    Raised,
    Snoozed,
    Succeeded,
    Throttled,
)
from windlass._core.job.unique import OnConflict
from windlass._core.limits.limit import Rate

QUEUES = ("a", "b")
WORKERS = ("w1", "w2")
OOPS = AttemptError("ValueError", "no", "trace")
OUTCOMES: Sequence[Outcome] = (
    Succeeded(b"1"),
    Succeeded(None),
    Raised(OOPS),
    Raised(OOPS, timedelta(0)),
    GaveUp(OOPS),
    Snoozed(timedelta(seconds=3)),
    Interrupted(),
    Missing(OOPS),
    Cancelled(OOPS),
    Lost(AttemptError("WorkerLost", "gone")),
    Throttled(timedelta(seconds=4)),
    Throttled(cool_queue=True),
    Throttled(timedelta(seconds=7), cool_queue=True, drain=True),
    Throttled(drain=True),
)
FOLLOW_UPS: Sequence[FollowUp | None] = (
    None,
    None,
    FollowUp(task="sorry"),
    FollowUp(task="sorry", queue="b", limits=(LimitUse("one"),), tags=("x",)),
)
LIMITS: Sequence[tuple[LimitUse, ...]] = (
    (),
    (),
    (),
    (LimitUse("one"),),
    (LimitUse("two", "x"),),
    (LimitUse("two", "y"),),
    (LimitUse("rate"),),
    (LimitUse("rate", cost=2.0), LimitUse("one")),
    (LimitUse("two", "x"), LimitUse("rate")),
    (LimitUse("breaker"),),
    (LimitUse("breaker"), LimitUse("one")),
    (LimitUse("breaker"), LimitUse("rate", cost=0.5)),
)
RATES = (
    Rate(1, timedelta(seconds=2), 3),
    Rate(1, timedelta(seconds=2), 1),
    Rate(2.5, timedelta(seconds=10), 2),
    Rate(3, timedelta(seconds=1), 2),
)
CONFLICTS = [what for what in OnConflict for _ in range(1 if what is OnConflict.RAISE else 4)]
LIMIT_NAMES = ("one", "two", "rate", "breaker")
