"""What listeners in all processes hear, held against what the store did.

24 events: never one without a stored transition, never two for one; and in a world without faults
one for each. A process that dies between the commit and the event, or loses the store's answer for
good, tells of nothing: at most once is what is promised.
"""

from __future__ import annotations

from collections import Counter

from tests.simulation.framework.history import Ask, Change, Ledger, Rule
from tests.simulation.framework.process import ProcessState, SimProcess
from tests.simulation.invariants.jobs import ended, settled
from windlass._core.job.event import Event, JobEnqueued, JobMoved
from windlass._core.job.job import JobId
from windlass._core.job.state import TRANSITIONS, Verb

__all__ = ["Events"]

_RULE = "24 events"
_STORED = "enqueue"


def _verb(change: Change) -> str | None:
    """The edge that a row took; None: it took none."""
    before, after = change.before, change.after
    if before is None:
        return _STORED
    verb = ended(change)
    if verb is not None:
        return verb.value
    if after is None or before.state is after.state:
        return None
    edges = TRANSITIONS[before.state]
    taken: list[Verb] = [verb for verb, state in edges.items() if state is after.state]
    # A claim may bring an ended member back, place it and start it.
    return taken[0].value if taken else Verb.CLAIM.value


class Events(Rule):
    """Every transition is there to be told once."""

    def __init__(self, ledger: Ledger, *, calm: bool) -> None:
        super().__init__(ledger)
        self._calm = calm
        self._untold: Counter[tuple[JobId, str]] = Counter()

    def job_changed(self, change: Change) -> None:
        verb = _verb(change)
        if verb is not None and not settled(change):
            self._untold[change.job, verb] += 1

    def death(self, process: SimProcess) -> None:
        # A job may kill its process where nothing else does.
        if process.state is ProcessState.KILLED or process.error is not None:
            self._calm = False

    def event_told(self, event: Event) -> None:
        if isinstance(event, JobEnqueued):
            key = (event.job, _STORED)
        elif isinstance(event, JobMoved):
            key = (event.job, event.verb.value)
        else:
            return
        self.ledger.count("events")
        if self._untold[key] <= 0 and self._was_left_out(event.job):
            return
        if self._untold[key] <= 0:
            self.ledger.object(_RULE, f"job {key[0]}: {key[1]} was told of and did not happen")
        self._untold[key] -= 1

    def _was_left_out(self, job: JobId) -> bool:
        """Whether a member tried to add it to a flow that was cancelled. Its worker does not learn
        that the store left it out.
        """
        cause = self.ledger.causes.get(job)
        adder = None if cause is None else self.ledger.jobs.get(cause[0])
        return job not in self.ledger.jobs and adder is not None and adder.flow is not None

    async def close(self, ask: Ask) -> None:
        """In a world without faults nothing is left untold."""
        if not self._calm:
            return
        for (job, verb), number in self._untold.items():
            if number > 0 and (verb != _STORED or job not in self.ledger.unheard):
                self.ledger.object(_RULE, f"job {job}: {verb} happened and was not told of")
