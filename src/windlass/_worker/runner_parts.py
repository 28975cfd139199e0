"""The parts of a worker that its runner uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from windlass._worker.child_process.pool import ChildPool
    from windlass._worker.claim.slots import Slots
    from windlass._worker.claim.unrunnable_jobs import UnrunnableJobs
    from windlass._worker.run.arguments import FlowArguments
    from windlass._worker.run.execution import OwnTask
    from windlass._worker.run.log_store import LogCollector
    from windlass._worker.run.progress import ProgressReporter
    from windlass._worker.run.transaction_finish import FinishInTransaction

__all__ = ["WorkerParts"]


class WorkerParts(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a runner in a worker, absent in a child process and in a dry run."""

    slots: Slots
    progress: ProgressReporter
    lines: LogCollector
    transactions: FinishInTransaction
    unrunnable: UnrunnableJobs
    own: OwnTask
    arguments: FlowArguments
    children: ChildPool | None
    """None: tasks that ask for a process of their own run in this one."""
