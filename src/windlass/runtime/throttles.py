"""How long a handler's `Throttled` may hold up a queue."""

from __future__ import annotations

import logging
from datetime import timedelta

import msgspec

from windlass.core.job import ClaimedJob
from windlass.core.outcome import Throttled

__all__ = ["Throttles"]

log = logging.getLogger("windlass")

_NAMES = 1000
"""Tasks that are remembered as warned about."""


class Throttles:
    """Cuts waits to the longest allowed, and says so once for each task."""

    def __init__(self, most: timedelta) -> None:
        """``most``: the setting ``max_throttle``."""
        self._most = most
        self._told: set[str] = set()

    def __call__(self, job: ClaimedJob, outcome: Throttled) -> Throttled:
        """The outcome with a wait that makes sense."""
        if outcome.odd:
            taken = f"{outcome.after.total_seconds():g} s"
            self._warn(job, f"a wait that makes no sense ({outcome.odd}); {taken} are taken for it")
        if outcome.after <= self._most:
            return outcome
        said, most = outcome.after.total_seconds(), self._most.total_seconds()
        self._warn(
            job, f"a wait of {said:g} s, more than max_throttle allows; {most:g} s are taken"
        )
        return msgspec.structs.replace(outcome, after=self._most)

    def _warn(self, job: ClaimedJob, what: str) -> None:
        if job.task in self._told or len(self._told) >= _NAMES:
            return
        self._told.add(job.task)
        log.warning(
            "task %s raised Throttled with %s. Check how it reads the other side's answer: "
            "Retry-After may be seconds or a date. Logged once for each task.",
            job.task,
            what,
        )
