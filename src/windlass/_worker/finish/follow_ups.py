"""Final failures and successes → the jobs that follow them, in the same write."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence

import msgspec

from windlass._core.job.job import AttemptError, ClaimedJob, FollowUp, JobId, NewJob
from windlass._core.job.state import Verb
from windlass._core.job.transition import Transition
from windlass._settings.settings import Settings
from windlass._storage.protocol.jobs import Applied
from windlass._storage.protocol.limits import LimitStore
from windlass._tasks.limits import LimitDefinitions
from windlass._tasks.task import TaskRegistry
from windlass._worker.finish.follow_up_jobs import follow_up_job, minimal_follow_up_job
from windlass.errors import LimitUnknown

__all__ = ["FollowUpJobs", "apply_one", "define_limits", "fallback_transitions"]

log = logging.getLogger("windlass")

_Apply = Callable[[Sequence[Transition]], Awaitable[Applied]]


class FollowUpJobs:
    """Adds the jobs that follow to transitions."""

    def __init__(
        self,
        new_ids: Callable[[int], Sequence[JobId]],
        settings: Settings,
        tasks: TaskRegistry,
    ) -> None:
        """``tasks``: those known here. They may have an ``on_success``, and what follows them an
        ``on_failure``.
        """
        self._new_ids = new_ids
        self._settings = settings
        self._tasks = tasks
        self.with_on_success: Collection[str] = tasks.with_on_success
        """The tasks whose successes are followed by a job."""

    def __call__(self, job: ClaimedJob, transition: Transition) -> Transition:
        """Return the transition with the follow-up job as the last of ``then``, if there is one and
        this is the end.
        """
        try:
            wanted = self._follow_up(job, transition.verb)
        except Exception:
            log.exception("job %s: cannot read on_success of its task", job.claim.job)
            return transition
        if wanted is None:
            return transition
        (job_id,) = self._new_ids(1)
        room = self._settings.payload_limit
        then = follow_up_job(job, wanted, transition, job_id, room=room)
        try:
            taker = self._tasks.find(then.task)
            if taker is not None and taker.settings.on_failure is not None:
                its_own = taker.follow_up("on_failure", self._settings)
                then = msgspec.structs.replace(then, on_failure=its_own)
        except Exception:
            # The job that follows is stored all the same, but without one that follows it.
            log.exception("job %s: cannot read on_failure of the job that follows", job.claim.job)
        return msgspec.structs.replace(transition, then=(*transition.then, then))

    def _follow_up(self, job: ClaimedJob, verb: Verb) -> FollowUp | None:
        if verb is Verb.FAIL:
            return job.on_failure
        task = self._tasks.find(job.task) if verb is Verb.SUCCEED else None
        return None if task is None else task.follow_up("on_success", self._settings)


def fallback_transitions(transition: Transition, added: int = 0) -> Iterator[Transition]:
    """Return the replacements if the store refuses a transition with the job that follows. The
    first has that job without its optional values. The last has none, so that the end itself is
    stored, and the error of a failed job says so.

    The first ``added`` jobs of ``then`` are of `Context.then`: no success is stored without them.
    """
    kept, follow_up = transition.then[:added], transition.then[added:]
    if not follow_up:
        return
    (then,) = follow_up
    yield msgspec.structs.replace(transition, then=(*kept, minimal_follow_up_job(then)))
    told = transition.error
    if transition.verb is Verb.FAIL:
        error = told or AttemptError("", "")
        lost = f"Its on_failure job (task {then.task}) could not be stored."
        told = AttemptError(error.kind, f"{error.message} {lost}".strip(), error.traceback)
    yield msgspec.structs.replace(transition, then=kept, error=told)


async def define_limits(store: LimitStore, tasks: TaskRegistry, jobs: Sequence[NewJob]) -> None:
    """Define the limits of jobs whose tasks came after their worker had defined those it knew."""
    found = [tasks.find(name) for name in dict.fromkeys(job.task for job in jobs)]
    needs = (spec for task in found if task is not None for spec in task.needs)
    await LimitDefinitions(store).keep(needs)


async def apply_one(
    apply: _Apply, transition: Transition, added: int = 0
) -> tuple[Transition, Applied]:
    """Store one transition; the job that follows without limits that were never defined, for it
    must not be lost to them. Returns what was stored, and the store's answer.

    The first ``added`` jobs of ``then`` keep their limits.
    """
    while True:
        try:
            return transition, await apply([transition])
        except LimitUnknown as error:
            kept, follow_up = transition.then[:added], transition.then[added:]
            if not follow_up:
                raise
            (then,) = follow_up
            left = tuple(use for use in then.limits if use.name != error.name)
            if left == then.limits:
                raise
            log.error(  # noqa: TRY400 -- what to do is said, and where it came from is not here
                "the job that follows job %s is stored without its limit %s, which is not "
                "defined: start a worker that has task %s",
                transition.claim.job,
                error.name,
                then.task,
            )
            less = msgspec.structs.replace(then, limits=left)
            transition = msgspec.structs.replace(transition, then=(*kept, less))
