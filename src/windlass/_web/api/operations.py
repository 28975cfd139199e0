"""Queues, workers, limits and breakers: how they stand, and orders for them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from windlass._admin.breakers import BreakerReport
from windlass._admin.session import SweepReport
from windlass._core.limits.backoff import Backoff
from windlass._core.limits.breaker import Breaker
from windlass._core.limits.limit import LimitSpec, Rate
from windlass._storage.protocol.queues import QueueRecord
from windlass._storage.protocol.workers import WorkerRecord
from windlass._web.api.endpoint import Endpoint, Nothing, Part
from windlass._web.api.records import LimitBody, limit_body
from windlass._web.api.truncation import Names, page_by_name
from windlass._web.request import PageRequest
from windlass._web.security.roles import Role

__all__ = ["OPERATIONS"]

PositiveCount = Annotated[int, Meta(ge=1, le=1_000_000)]


class QueueName(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The name of a queue."""

    queue: str


class QueueChange(QueueName, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Change a queue's settings. Fields that are left out keep their value; null removes it."""

    max_running: PositiveCount | UnsetType | None = UNSET
    backoff: Backoff | UnsetType | None = UNSET
    cool_down: Backoff | UnsetType | None = UNSET
    keep_succeeded: timedelta | UnsetType | None = UNSET
    keep_failed: timedelta | UnsetType | None = UNSET


class WorkerName(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The id of a worker."""

    worker: str


class Budget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A limit, and the key of one bucket if it has keys."""

    limit: str
    key: str = ""


class LimitChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Change a limit. Fields that are left out keep their value; null removes it."""

    limit: str
    rate: Rate | UnsetType | None = UNSET
    concurrency: PositiveCount | UnsetType | None = UNSET


class TaskName(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The task of a breaker."""

    task: str


class BreakerChange(TaskName, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Change a breaker. Fields that are left out keep their value."""

    failures: PositiveCount | UnsetType = UNSET
    cool_down: timedelta | UnsetType = UNSET
    growth: float | UnsetType = UNSET
    longest: timedelta | UnsetType = UNSET


async def queues(visit: PageRequest, asked: Names) -> Part:
    """List the queues with settings."""
    return page_by_name(await visit.admin.queues.list(), asked, name=lambda one: one.queue)


async def queue(visit: PageRequest, asked: QueueName) -> QueueRecord:
    """Return one queue."""
    return await visit.admin.queues.get(asked.queue)


async def pause_queue(visit: PageRequest, asked: QueueName) -> QueueRecord:
    """Claim nothing from it."""
    await visit.orders.queues.pause(asked.queue)
    return await visit.admin.queues.get(asked.queue)


async def resume_queue(visit: PageRequest, asked: QueueName) -> QueueRecord:
    """Claim from it again."""
    await visit.orders.queues.resume(asked.queue)
    return await visit.admin.queues.get(asked.queue)


async def warm_queue(visit: PageRequest, asked: QueueName) -> QueueRecord:
    """End its cool-down."""
    await visit.orders.queues.warm(asked.queue)
    return await visit.admin.queues.get(asked.queue)


async def set_queue(visit: PageRequest, asked: QueueChange) -> QueueRecord:
    """Other settings."""
    return await visit.orders.queues.set(
        asked.queue,
        max_running=asked.max_running,
        backoff=asked.backoff,
        cool_down=asked.cool_down,
        keep_succeeded=asked.keep_succeeded,
        keep_failed=asked.keep_failed,
    )


async def quiet_worker(visit: PageRequest, asked: WorkerName) -> WorkerRecord:
    """Let a worker claim no new jobs."""
    await visit.orders.workers.quiet(asked.worker)
    return await _worker(visit, asked.worker)


async def resume_worker(visit: PageRequest, asked: WorkerName) -> WorkerRecord:
    """Let a quiet worker claim jobs again."""
    await visit.orders.workers.resume(asked.worker)
    return await _worker(visit, asked.worker)


async def stop_worker(visit: PageRequest, asked: WorkerName) -> WorkerRecord:
    """Stop a worker gracefully."""
    await visit.orders.workers.stop(asked.worker)
    return await _worker(visit, asked.worker)


async def sweep_workers(visit: PageRequest, _: Nothing) -> SweepReport:
    """Once, and now."""
    return await visit.orders.workers.sweep()


async def _worker(visit: PageRequest, name: str) -> WorkerRecord:
    return next(one for one in await visit.admin.workers.list() if one.start.id == name)


async def limits(visit: PageRequest, asked: Names) -> Part:
    """List the limits."""
    found = await visit.admin.limits.list()
    return page_by_name(found, asked, name=lambda one: one.spec.name, line=limit_body)


async def set_limit(visit: PageRequest, asked: LimitChange) -> LimitSpec:
    """Other numbers."""
    return await visit.orders.limits.set(
        asked.limit, rate=asked.rate, concurrency=asked.concurrency
    )


async def fill_limit(visit: PageRequest, asked: Budget) -> Sequence[LimitBody]:
    """Fill a limit, as if nothing had started yet."""
    await visit.orders.limits.reset(asked.limit, asked.key)
    return await _limit(visit, asked.limit)


async def drain_limit(visit: PageRequest, asked: Budget) -> Sequence[LimitBody]:
    """Drain a limit, as if all of it were spent."""
    await visit.orders.limits.drain(asked.limit, asked.key)
    return await _limit(visit, asked.limit)


async def _limit(visit: PageRequest, name: str) -> Sequence[LimitBody]:
    return [limit_body(one) for one in await visit.admin.limits.list() if one.spec.name == name]


async def breakers(visit: PageRequest, asked: Names) -> Part:
    """List the breakers."""
    return page_by_name(await visit.admin.breakers.list(), asked, name=lambda one: one.task)


async def close_breaker(visit: PageRequest, asked: TaskName) -> Sequence[BreakerReport]:
    """Its jobs start again."""
    await visit.orders.breakers.reset(asked.task)
    return [report for report in await visit.admin.breakers.list() if report.task == asked.task]


async def set_breaker(visit: PageRequest, asked: BreakerChange) -> Breaker:
    """Other numbers."""
    return await visit.orders.breakers.set(
        asked.task,
        failures=asked.failures,
        cool_down=asked.cool_down,
        growth=asked.growth,
        longest=asked.longest,
    )


def _read(path: str, answer: Any, told: Any, title: str, **line: Any) -> Endpoint:
    return Endpoint(method="GET", path=path, answer=answer, told=told, title=title, **line)


def _list(path: str, answer: Any, told: Any, title: str) -> Endpoint:
    return _read(path, answer, told, title, asked=Names)


def _order(path: str, answer: Any, told: Any, title: str, **line: Any) -> Endpoint:
    line = {"role": Role.OPERATOR, **line}
    return Endpoint(method="POST", path=path, answer=answer, told=told, title=title, **line)


_QUEUE: dict[str, Any] = {"told": QueueRecord, "asked": QueueName}
_WORKER: dict[str, Any] = {"told": WorkerRecord, "asked": WorkerName}
_BUDGET: dict[str, Any] = {"told": Sequence[LimitBody], "asked": Budget, "refusals": (404,)}

OPERATIONS = (
    _list(
        "/queues",
        queues,
        Sequence[QueueRecord],
        "List queues that have settings, are paused or cool down",
    ),
    _read("/queues/one", queue, title="Show the settings of a queue", **_QUEUE),
    _order("/queues/pause", pause_queue, title="Pause a queue", **_QUEUE),
    _order("/queues/resume", resume_queue, title="Resume a queue", **_QUEUE),
    _order("/queues/warm", warm_queue, title="End the cool-down of a queue", **_QUEUE),
    _order(
        "/queues/set",
        set_queue,
        QueueRecord,
        "Change the settings of a queue",
        asked=QueueChange,
        role=Role.ADMIN,
    ),
    _order("/workers/quiet", quiet_worker, title="Pause a worker", **_WORKER),
    _order("/workers/resume", resume_worker, title="Resume a paused worker", **_WORKER),
    _order("/workers/stop", stop_worker, title="Stop a worker", **_WORKER),
    _order(
        "/workers/sweep",
        sweep_workers,
        SweepReport,
        "Release the jobs of dead workers now, and mark due jobs ready",
        asked=Nothing,
    ),
    _list("/limits", limits, Sequence[LimitBody], "List limits and their keys in use"),
    _order("/limits/fill", fill_limit, title="Refill the token bucket of a rate", **_BUDGET),
    _order("/limits/drain", drain_limit, title="Empty the token bucket of a rate", **_BUDGET),
    _order(
        "/limits/set",
        set_limit,
        LimitSpec,
        "Change a limit for all workers",
        asked=LimitChange,
        role=Role.ADMIN,
        refusals=(404,),
    ),
    _list("/breakers", breakers, Sequence[BreakerReport], "List circuit breakers and their states"),
    _order(
        "/breakers/close",
        close_breaker,
        Sequence[BreakerReport],
        "Close a breaker, so that its jobs start at once",
        asked=TaskName,
        refusals=(404,),
    ),
    _order(
        "/breakers/set",
        set_breaker,
        Breaker,
        "Change a breaker for all workers",
        asked=BreakerChange,
        role=Role.ADMIN,
        refusals=(404,),
    ),
)
