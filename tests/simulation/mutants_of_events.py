"""Events that are told wrongly, planted one at a time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from tests.simulation.mutants import Patch, mutant
from windlass.admin import orders
from windlass.core.job import ClaimedJob
from windlass.core.transition import Transition
from windlass.runtime.finisher import Finisher, moved
from windlass.storage.protocol import Answer

RULE = "24 events"


@mutant("memory", RULE, first=5)
def tells_of_refused_outcomes(patch: Patch) -> None:
    """A worker that came too late tells of its outcome all the same."""

    def record(
        self: Finisher,
        batch: Sequence[tuple[ClaimedJob, Transition]],
        answers: Sequence[Answer],
        at: datetime,
    ) -> None:
        for (job, transition), answer in zip(batch, answers, strict=True):
            self._bus.publish(moved(job, transition, answer, at))

    patch(Finisher, "_record", record)


@mutant("memory", RULE, first=36)
def keeps_orders_to_itself(patch: Patch) -> None:
    """What a person has ordered is not told."""

    async def silent(*_: Any) -> None: ...

    patch(orders, "tell_ordered", silent)
