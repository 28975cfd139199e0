"""Events that are told wrongly, planted one at a time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from tests.simulation.mutants.jobs import Patch, mutant
from windlass._admin.jobs import actions
from windlass._core.job.job import ClaimedJob
from windlass._core.job.transition import Transition
from windlass._storage.protocol.jobs import TransitionAnswer
from windlass._worker.finish.events import transition_event
from windlass._worker.finish.finisher import Finisher

RULE = "24 events"


@mutant("memory", RULE, first=8)
def tells_of_refused_outcomes(patch: Patch) -> None:
    """A worker that came too late tells of its outcome all the same."""

    def record(
        self: Finisher,
        batch: Sequence[tuple[ClaimedJob, Transition]],
        answers: Sequence[TransitionAnswer],
        at: datetime,
    ) -> None:
        for (job, transition), answer in zip(batch, answers, strict=True):
            self._bus.publish(transition_event(job, transition, answer, at))

    patch(Finisher, "_record", record)


@mutant("memory", RULE, first=37)
def keeps_orders_to_itself(patch: Patch) -> None:
    """What a person has ordered is not told."""

    async def silent(*_: Any) -> None: ...

    patch(actions, "publish_action_events", silent)
