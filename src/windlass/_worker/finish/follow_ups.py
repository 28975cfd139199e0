"""Final failures → the ``on_failure`` jobs that follow them, in the same write."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence

import msgspec

from windlass._core.job.job import AttemptError, ClaimedJob, JobId
from windlass._core.job.state import Verb
from windlass._core.job.transition import Transition
from windlass._settings.settings import Settings
from windlass._storage.protocol.jobs import Applied
from windlass._tasks.on_failure import failure_job_of, minimal_failure_job
from windlass._tasks.task import TaskRegistry
from windlass.errors import LimitUnknown

__all__ = ["FailureJobs", "apply_one", "fallback_transitions"]

log = logging.getLogger("windlass")

_Apply = Callable[[Sequence[Transition]], Awaitable[Applied]]


class FailureJobs:
    """Adds ``on_failure`` jobs to transitions."""

    def __init__(
        self,
        new_ids: Callable[[int], Sequence[JobId]],
        settings: Settings,
        tasks: TaskRegistry,
    ) -> None:
        """``tasks``: those known here, which may have an ``on_failure`` themselves."""
        self._new_ids = new_ids
        self._settings = settings
        self._tasks = tasks

    def __call__(self, job: ClaimedJob, transition: Transition) -> Transition:
        """Return the transition with the follow-up job, if there is one and this is the end."""
        wanted = job.on_failure
        if wanted is None or transition.verb is not Verb.FAIL:
            return transition
        (job_id,) = self._new_ids(1)
        room = self._settings.payload_limit
        then = failure_job_of(job, wanted, transition, job_id, room=room)
        try:
            taker = self._tasks.find(then.task)
            if taker is not None and taker.settings.on_failure is not None:
                its_own = taker.follow_up(self._settings)
                then = msgspec.structs.replace(then, on_failure=its_own)
        except Exception:
            # The on_failure job is stored all the same, but without one that follows it.
            log.exception("job %s: cannot read on_failure of its on_failure job", job.claim.job)
        return msgspec.structs.replace(transition, then=then)


def fallback_transitions(transition: Transition) -> Iterator[Transition]:
    """Return the replacements if the store refuses a transition with its on_failure job. The first
    has that job without its optional values. The last has none, so that the failure is stored, and
    the error of the job says so.
    """
    then = transition.then
    if then is None:
        return
    yield msgspec.structs.replace(transition, then=minimal_failure_job(then))
    error = transition.error or AttemptError("", "")
    lost = f"Its on_failure job (task {then.task}) could not be stored."
    told = AttemptError(error.kind, f"{error.message} {lost}".strip(), error.traceback)
    yield msgspec.structs.replace(transition, then=None, error=told)


async def apply_one(apply: _Apply, transition: Transition) -> tuple[Transition, Applied]:
    """Store one transition; its on_failure job without limits that were never defined, for it must
    not be lost to them. The answer is what was stored, and the store's.
    """
    while True:
        try:
            return transition, await apply([transition])
        except LimitUnknown as error:
            then = transition.then
            left = () if then is None else tuple(u for u in then.limits if u.name != error.name)
            if then is None or left == then.limits:
                raise
            log.error(  # noqa: TRY400 -- what to do is said, and where it came from is not here
                "the on_failure job of job %s is stored without its limit %s, which is not "
                "defined: start a worker that has task %s",
                transition.claim.job,
                error.name,
                then.task,
            )
            less = msgspec.structs.replace(then, limits=left)
            transition = msgspec.structs.replace(transition, then=less)
