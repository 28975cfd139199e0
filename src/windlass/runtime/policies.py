"""Which rules a job's outcome is decided by: its task's, then its queue's, then the app's."""

from __future__ import annotations

from datetime import timedelta

from windlass.config import Settings
from windlass.core.backoff import DEFAULT_BACKOFF
from windlass.core.cooling import DEFAULT_COOL_DOWN
from windlass.core.job import ClaimedJob
from windlass.core.outcome import Policy
from windlass.runtime.queues import QueueBook
from windlass.storage.protocol import QueueStore
from windlass.task import TaskRegistry

__all__ = ["Policies"]


class Policies:
    """Makes the rules of a task's jobs on a queue once, and again when operators change some."""

    def __init__(self, tasks: TaskRegistry, settings: Settings, store: QueueStore) -> None:
        """Knows no queue's settings before the first `QueueBook.step`."""
        self._tasks = tasks
        self._settings = settings
        self._made: dict[tuple[str, str], Policy] = {}
        self.queues = QueueBook(store, on_change=self._made.clear)

    def __call__(self, job: ClaimedJob) -> Policy:
        """The rules for this job; without its task's where the task is not known."""
        key = job.task, job.queue
        policy = self._made.get(key)
        if policy is None:
            policy = self._make(*key)
            if self._tasks.find(job.task) is not None:  # an unknown one may yet become known
                self._made[key] = policy
        return policy

    def _make(self, name: str, queue: str) -> Policy:
        settings, here = self._settings, self.queues[queue]
        task = self._tasks.find(name)
        own = None if task is None else task.settings
        kept = settings.keep_succeeded if here.keep_succeeded is None else here.keep_succeeded
        return Policy(
            backoff=(None if own is None else own.backoff) or here.backoff or DEFAULT_BACKOFF,
            cool_down=here.cool_down or DEFAULT_COOL_DOWN,
            on_crash="fail" if own is None else own.on_crash,
            missing_task=settings.missing_task,
            keep_succeeded=kept > timedelta(0),
        )
