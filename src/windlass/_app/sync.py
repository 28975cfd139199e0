"""The client for code without an event loop. It runs the async client on a background loop."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from windlass._app.blocking_loop import BlockingLoop
from windlass._app.producer import Producer
from windlass._client.flow_run import FlowRun
from windlass._client.transactional import Outbox, Wake
from windlass._core.flows.flow import FlowRecord
from windlass._core.flows.results import Done
from windlass._core.job.job import JobRecord
from windlass._core.values.names import shown
from windlass._storage.protocol.jobs import CancelAnswer
from windlass._storage.protocol.transactions import UserConnection
from windlass._tasks.call import Call, CallKeywords
from windlass._tasks.context import report_wait
from windlass._tasks.flows.flow import Flow, Group
from windlass._tasks.flows.node import After
from windlass._tasks.handle import Job
from windlass.errors import InvalidArgument

if TYPE_CHECKING:
    from uuid import UUID

    from windlass._admin.admin import Admin
    from windlass._app.blocking_admin.admin import BlockingAdmin

__all__ = ["BlockingClient"]

R = TypeVar("R")


class BlockingClient:
    """Blocking calls. Each runs on one background loop and waits for its answer."""

    def __init__(
        self,
        producer: Producer,
        outbox: Outbox,
        loop: BlockingLoop,
        *,
        admin: Callable[[], Admin],
    ) -> None:
        """Keep the parts. ``loop`` starts its thread at the first call, and again after a fork.
        ``admin`` makes ``app.admin`` at its first use.
        """
        self._producer = producer
        self._admin = admin
        self._outbox = outbox
        self._loop = loop

    @property
    def admin(self) -> BlockingAdmin:
        """``app.admin`` with the same parts, each of whose calls waits for its answer."""
        # Imported here: a program that only enqueues does not need it.
        from windlass._app.blocking_admin.admin import BlockingAdmin  # noqa: PLC0415

        return BlockingAdmin(self, self._admin())

    def enqueue(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        /,
        **options: Unpack[CallKeywords],
    ) -> Job[Any]:
        """``await app.enqueue(name, arguments)``."""
        call, job_id = self._producer.call_named(name, arguments, options)
        return self._producer.enqueue_call_sync(call, job_id=job_id)

    def enqueue_many(
        self,
        calls: Iterable[Call[R]],
        *,
        ids: Iterable[str | UUID] | None = None,
        connection: UserConnection | None = None,
        wake: Wake | None = None,
    ) -> list[Job[R]]:
        """Store calls like ``app.enqueue_many``. A ``connection`` is used on this thread."""
        return self._producer.enqueue_many_sync(calls, ids=ids, connection=connection, wake=wake)

    def start(
        self, flow: Flow, *, connection: UserConnection | None = None, wake: Wake | None = None
    ) -> FlowRun:
        """Store a flow like ``await app.start(flow)``. A ``connection`` is used on this thread."""
        return self._producer.start_sync(flow, connection, wake)

    def add(self, run: FlowRun, flow: Flow, *, after: After = ()) -> None:
        """Add a flow to a running one like ``await run.add(flow, after=...)``."""
        _check_run(run, "add")
        self.run(run.add(flow, after=after), instead="run.add(...)")

    def wait(self, run: FlowRun, timeout: timedelta | float | None = None) -> FlowRecord:
        """Wait for the end of a flow like ``await run.wait(timeout)``."""
        _check_run(run, "wait")
        return self.run(run.wait(timeout), instead="run.wait(...)")

    def as_completed(
        self, run: FlowRun, group: Group[R], timeout: timedelta | float | None = None
    ) -> Iterator[Done[R]]:
        """Yield the jobs of a group as they end, like ``run.as_completed(group, timeout)``."""
        _check_run(run, "as_completed")
        ends = run.as_completed(group, timeout)
        try:
            while done := self.run(_next(ends), instead="run.as_completed(...)"):
                yield done
        finally:
            self.run(ends.aclose(), instead="run.as_completed(...)")

    def result(self, job: Job[R], timeout: timedelta | float | None = None) -> R:
        """Wait for a result like ``await job.result(timeout)``."""
        report_wait(job.id)
        return self.run(job.result(timeout), instead="job.result(...)")

    def refresh(self, job: Job[Any]) -> JobRecord:
        """Read the stored job like ``await job.refresh()``."""
        return self.run(job.refresh(), instead="job.refresh()")

    def cancel(self, job: Job[Any], *, children: bool = False) -> CancelAnswer:
        """Cancel the job like ``await job.cancel()``."""
        return self.run(job.cancel(children=children), instead="job.cancel()")

    def wake(self) -> None:
        """Wake workers now. Call it after a commit on a connection that enqueued jobs."""
        self._outbox.wake()

    def run(
        self,
        work: Coroutine[Any, Any, R],
        *,
        instead: str = "the coroutine itself",
        anywhere: bool = False,
    ) -> R:
        """Run any of the app's coroutines, such as ``app.uninstall(name)``, and wait for it.

        ``anywhere``: also on an event loop, which is blocked meanwhile.
        """
        return self._loop.run(work, instead=instead, anywhere=anywhere)

    def close(self) -> None:
        """Let the calls under way finish, close the app on the background loop and end it.

        Calls that wait for a result raise AppClosed. The next call starts another loop.
        """
        self._loop.close()


async def _next(ends: AsyncGenerator[Done[R], None]) -> Done[R] | None:
    return await anext(ends, None)


def _check_run(given: object, called: str) -> None:
    """Refuse what is not the handle of a flow."""
    if not isinstance(given, FlowRun):
        message = (
            f"app.blocking.{called} takes the handle of a flow, got {shown(given)}. For an id: "
            f"app.flow_run(id). For a job: app.blocking.result(job)"
        )
        raise InvalidArgument(message)
