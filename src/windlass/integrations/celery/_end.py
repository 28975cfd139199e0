"""The end of a canvas: the jobs that the next step waits for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec

from windlass._app.app import Windlass
from windlass._client.flow_run import FlowRun
from windlass._tasks.flows.flow import Group, Node
from windlass.integrations.celery._results import AsyncResult, GroupResult

if TYPE_CHECKING:
    from windlass.integrations.celery._signature import Signature

__all__ = ["AnyResult", "End", "after"]

AnyResult = AsyncResult[Any] | GroupResult[Any]


class End(msgspec.Struct, frozen=True):
    """The jobs that the next step waits for, and whose results it takes."""

    jobs: Node[Any] | Group[Any]
    nodes: Sequence[Node[Any]] = ()
    """The jobs of a group one by one, if the next step takes a list of their results."""
    before: End | None = None

    def argument_for(self, signature: Signature) -> Any:
        """Return the argument that stands for the result."""
        if isinstance(self.jobs, Node):
            return self.jobs.result
        return self.jobs.results if signature.takes_results else [one.result for one in self.nodes]

    def answer(self, run: FlowRun, app: Windlass) -> AnyResult:
        """Return what Celery's ``apply_async`` returns: the last result, which knows those before
        it.
        """
        ends = [self]
        while (before := ends[-1].before) is not None:
            ends.append(before)
        result: AnyResult | None = None
        for end in reversed(ends):
            result = end.result(run, app, result)
        return cast("AnyResult", result)

    def result(self, run: FlowRun, app: Windlass, parent: AnyResult | None) -> AnyResult:
        """Return the result of these jobs."""
        if isinstance(self.jobs, Node):
            return AsyncResult(self.jobs.id, app=app, parent=parent)
        return GroupResult(run, self.jobs, app=app, parent=parent)


def after(before: End | None) -> Any:
    """Return what a job after ``before`` waits for."""
    return () if before is None else before.jobs
