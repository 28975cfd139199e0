"""Final failures → the jobs that are told of them, in the same write."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import msgspec

from windlass.config import Settings
from windlass.core.job import ClaimedJob, JobId
from windlass.core.state import Verb
from windlass.core.transition import Transition
from windlass.followup import then_of
from windlass.task import TaskRegistry

__all__ = ["Following"]

log = logging.getLogger("windlass")


class Following:
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
        """With the job that follows, if there is one and this is the end."""
        wanted = job.on_failure
        if wanted is None or transition.verb is not Verb.FAIL:
            return transition
        try:
            (job_id,) = self._new_ids(1)
            then = then_of(job, wanted, transition, job_id, room=self._settings.payload_limit)
            taker = self._tasks.find(then.task)
            if taker is not None and taker.settings.on_failure is not None:
                its_own = taker.follow_up(self._settings)
                then = msgspec.structs.replace(then, on_failure=its_own)
            return msgspec.structs.replace(transition, then=then)
        except Exception:
            # That it has failed must be stored, whoever can be told of it.
            log.exception("job %s: its on_failure job could not be made", job.claim.job)
            return transition
