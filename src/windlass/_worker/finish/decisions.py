"""Transitions of ended runs, by the rules of their task, their queue and the app."""

from __future__ import annotations

import logging
from datetime import timedelta

import msgspec

from windlass._core.job.job import ClaimedJob
from windlass._core.job.outcome import (
    Crashed,
    GaveUp,
    Lost,
    Misfit,
    Missing,
    Outcome,
    Policy,
    Raised,
    Succeeded,
    Throttled,
)
from windlass._core.job.transition import Transition, decide
from windlass._core.limits.backoff import DEFAULT_BACKOFF, Backoff
from windlass._core.limits.cooldown import DEFAULT_COOL_DOWN
from windlass._core.schedule.schedule import slot_of
from windlass._plugins.names import plugin_of
from windlass._settings.settings import Settings
from windlass._storage.protocol.queues import QueueStore
from windlass._system.seams import Seams
from windlass._tasks.task import TaskRegistry
from windlass._worker.claim.queue_settings import QueueSettingsCache
from windlass._worker.finish.follow_ups import FollowUpJobs
from windlass._worker.run.error_text import attempt_error_of

__all__ = ["Decisions"]

log = logging.getLogger("windlass")

_STRANGERS = Backoff.exponential(cap=DEFAULT_BACKOFF.first)
"""Between the attempts of a task that is not known here: the first wait of the default, each time.
Its own waits may be far shorter than the later ones of the default, which grow to an hour."""

_NAMES = 1000
"""Tasks that are remembered as warned about."""
_ERROR_LIMIT = 16 * 1024
_SAFE = Policy()
_NO_MATTER = 0.5


class Decisions:
    """Decides by the rules of a job. They are made once for each task on a queue, and again when
    operators change some.
    """

    def __init__(
        self, tasks: TaskRegistry, settings: Settings, store: QueueStore, seams: Seams
    ) -> None:
        """Knows no queue's settings before the first `QueueSettingsCache.step`."""
        self._tasks = tasks
        self._settings = settings
        self._chance = seams.chance
        self._throttles = Throttles(settings.max_throttle)
        self.follow: FollowUpJobs = FollowUpJobs(seams.new_job_ids, settings, tasks)
        """Adds the job that follows to a transition that ends a job."""
        self._made: dict[tuple[str, str], tuple[object, Policy]] = {}
        self.queues: QueueSettingsCache = QueueSettingsCache(store, on_change=self._made.clear)

    def decide(self, job: ClaimedJob, outcome: Outcome, *, by: str) -> Transition:
        """Decide what becomes of a job. Rules that raise must not keep the job and its slot."""
        if type(outcome) is Throttled:
            outcome = self._throttles(job, outcome)
        try:
            made = self._made.get((job.task, job.queue))
            # A task that was removed may come back with other rules.
            known = made is not None and made[0] is self._tasks.by_name.get(job.task)
            policy = made[1] if made is not None and known else self.policy_of(job)
            chance = _NO_MATTER if type(outcome) is Succeeded else self._chance()
            return decide(job, outcome, policy, by=by, now=job.started_at, chance=chance)
        except BaseException as error:
            log.exception(
                "the rules of task %s raised when job %s ended; correct them (its backoff, for "
                "example), then requeue the failed jobs",
                job.task,
                job.claim.job,
            )
            # Outcomes that need no rule keep their meaning; a retry cannot be decided without one.
            if isinstance(outcome, Raised | Crashed | Missing | Misfit | Lost):
                outcome = GaveUp(attempt_error_of(error, limit=_ERROR_LIMIT))
            return decide(job, outcome, _SAFE, by=by, now=job.started_at, chance=_NO_MATTER)

    def policy_of(self, job: ClaimedJob) -> Policy:
        """Return the rules for this job; without its task's where the task is not known."""
        key, task = (job.task, job.queue), self._tasks.find(job.task)
        made = self._made.get(key)
        if made is not None and made[0] is task:
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


class Throttles:
    """Cuts waits to the longest allowed, and says so once for each task."""

    def __init__(self, most: timedelta) -> None:
        """``most``: the setting ``max_throttle``."""
        self._most = most
        self._told: set[str] = set()

    def __call__(self, job: ClaimedJob, outcome: Throttled) -> Throttled:
        """Return the outcome with a wait that makes sense."""
        if outcome.odd:
            taken = f"{outcome.after.total_seconds():g} s"
            self._warn(job, f"an invalid wait ({outcome.odd}); using {taken} instead")
        if outcome.after <= self._most:
            return outcome
        said, most = outcome.after.total_seconds(), self._most.total_seconds()
        self._warn(
            job, f"a wait of {said:g} s, more than max_throttle allows; using {most:g} s instead"
        )
        return msgspec.structs.replace(outcome, after=self._most)

    def _warn(self, job: ClaimedJob, what: str) -> None:
        if job.task in self._told or len(self._told) >= _NAMES:
            return
        self._told.add(job.task)
        log.warning(
            "task %s raised Throttled with %s. Check how it reads the response: Retry-After may "
            "be seconds or a date. Logged once for each task.",
            job.task,
            what,
        )
