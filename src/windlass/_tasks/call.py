"""Calls: a task, its options and its encoded arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from windlass._core.job.job import LimitUse
from windlass._core.job.unique import UniqueKey as StoredUnique
from windlass._tasks.options import JobOptions

if TYPE_CHECKING:
    from windlass._tasks.task import Task

__all__ = ["Call"]

R_co = TypeVar("R_co", covariant=True)


class Call(msgspec.Struct, Generic[R_co], frozen=True):
    """A task with its encoded arguments and options, ready to be enqueued.

    It has no id: enqueued twice, it is two jobs. ``enqueue_many(calls, ids=…)`` gives it one.
    """

    task: Task[..., R_co]
    payload: bytes
    arguments: Mapping[str, object] | None
    """Set only if the task reads them: for the caller's identity, or for keys of limits."""
    options: JobOptions
    limits: tuple[LimitUse, ...] = ()
    unique: StoredUnique | None = None
    """The key by the task's rule. A key that the call sets is in ``options``."""
