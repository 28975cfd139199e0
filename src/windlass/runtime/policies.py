"""Which rules a job's outcome is decided by: its task's, then its queue's, then the app's."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from windlass.config import Settings
from windlass.core.backoff import DEFAULT_BACKOFF, Backoff
from windlass.core.cooling import DEFAULT_COOL_DOWN
from windlass.core.job import ClaimedJob
from windlass.core.outcome import Policy
from windlass.core.schedule import slot_of
from windlass.plugins.names import plugin_of
from windlass.runtime.queues import QueueBook
from windlass.storage.protocol import QueueStore
from windlass.task import TaskRegistry

__all__ = ["Policies"]

_STRANGERS = Backoff.exponential(cap=DEFAULT_BACKOFF.first)
"""Between the attempts of a task that is not known here: the first wait of the default, each time.
Its own waits may be far shorter than the later ones of the default, which grow to an hour."""


class Policies:
    """Makes the rules of a task's jobs on a queue once, and again when operators change some."""

    def __init__(self, tasks: TaskRegistry, settings: Settings, store: QueueStore) -> None:
        """Knows no queue's settings before the first `QueueBook.step`."""
        self._tasks = tasks
        self._settings = settings
        self._made: dict[tuple[str, str], tuple[object, Policy]] = {}
        self.queues: QueueBook = QueueBook(store, on_change=self._made.clear)

    def __call__(self, job: ClaimedJob) -> Policy:
        """The rules for this job; without its task's where the task is not known."""
        key, task = (job.task, job.queue), self._tasks.find(job.task)
        made = self._made.get(key)
        if made is not None and made[0] is task:  # a task that was removed may come back otherwise
            return made[1]
        policy = self._make(*key)
        if task is not None:
            self._made[key] = (task, policy)
        elif slot_of(job.claim.job) is not None and plugin_of(job.tags) is not None:
            # The run of a plugin that is not here. A worker that has it may, once, go first; then
            # it has failed, and the next slot makes another.
            return msgspec.structs.replace(policy, missing_for=timedelta(0))
        return policy

    def _make(self, name: str, queue: str) -> Policy:
        settings, here = self._settings, self.queues[queue]
        task = self._tasks.find(name)
        own = None if task is None else task.settings
        kept = settings.keep_succeeded if here.keep_succeeded is None else here.keep_succeeded
        usual = _STRANGERS if own is None else settings.backoff or DEFAULT_BACKOFF
        return Policy(
            backoff=(None if own is None else own.backoff) or here.backoff or usual,
            cool_down=here.cool_down or DEFAULT_COOL_DOWN,
            on_crash="fail" if own is None else own.on_crash,
            missing_task=settings.missing_task,
            misfit_for=settings.misfit_for,
            keep_succeeded=kept > timedelta(0),
        )
