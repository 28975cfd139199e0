"""Enqueues calls, and answers the handles of their jobs."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from windlass._app.blocking_loop import BlockingLoop
from windlass._app.named_task import NamedTask, call_by_name, check_task_name
from windlass._client.client import check_calls, job_for, needs_limits, note_ids
from windlass._client.connections import Connections
from windlass._client.flow_run import FlowRun
from windlass._client.flows import check_addition, new_flow
from windlass._client.transactional import Outbox, Wake, check_connection
from windlass._core.flows.flow import Addition, Edge, FlowRecord, NewFlow
from windlass._core.flows.pending import PENDING, has_pending
from windlass._core.flows.results import Outcome
from windlass._core.job.ids import job_ids_of
from windlass._core.job.job import ClaimedJob, FlowId, JobId, JobRecord, NewJob
from windlass._observe.current_run import RUN
from windlass._storage.protocol.actions import ActionResult
from windlass._storage.protocol.flows import FlowAction, FlowGraph
from windlass._storage.protocol.jobs import CancelAnswer, Inserted
from windlass._storage.protocol.transactions import UserConnection
from windlass._storage.shared.errors import copy_error
from windlass._tasks.call import CallKeywords, OptionInheritance, inherit_options_many
from windlass._tasks.context import report_wait, running_job
from windlass._tasks.flows.flow import Flow, plan_of
from windlass._tasks.flows.plan import FlowPlan, check_added, refuse_keys, refuse_pending
from windlass._tasks.handle import Job
from windlass._tasks.hooks import Hooks
from windlass._tasks.options import check_wake
from windlass._tasks.registry import TaskRegistry
from windlass._tasks.task import Call, Task
from windlass.errors import InvalidArgument

if TYPE_CHECKING:
    from uuid import UUID

__all__ = ["Producer"]

R = TypeVar("R")


class StoredActions(Protocol):
    """Acts on stored jobs and flows, with audit records."""

    async def cancel(self, job: JobId, children: bool, /) -> CancelAnswer:  # noqa: FBT001
        """Cancel a job, and the jobs below it if asked to."""
        ...

    async def act_on_flow(self, flow: FlowId, action: FlowAction, /) -> ActionResult:
        """Cancel or retry a flow."""
        ...


class Producer:
    """Stores calls, on this app's storage or on the user's own connections."""

    def __init__(
        self,
        connections: Connections,
        tasks: TaskRegistry,
        hooks: Hooks,
        outbox: Outbox,
        loop: BlockingLoop,
        *,
        payload_limit: int,
        actions: StoredActions,
    ) -> None:
        """Keep the parts. ``loop`` runs blocking calls; ``actions`` acts on stored jobs
        and flows, with audit records.
        """
        self._connections = connections
        self._outbox = outbox
        self._loop = loop
        self._actions = actions
        self._inheritance = OptionInheritance()
        self._stand_in = functools.lru_cache(maxsize=1000)(functools.partial(NamedTask, self))
        self.tasks = tasks
        self.hooks = hooks
        self.payload_limit = payload_limit

    async def enqueue_call(
        self, call: Call[R], *, job_id: JobId | None = None, hooked: bool = False
    ) -> Job[R]:
        """Store one call made by ``task.call(...)``. ``hooked``: the app's hooks have seen it."""
        ask = call.options
        if ask.connection is not None:
            ids = None if job_id is None else [job_id]
            jobs = await self.enqueue_many(
                [call], ids=ids, connection=ask.connection, wake=ask.wake
            )
            return jobs[0]
        if self.hooks.enqueue_hooks and not hooked:
            call = self.hooks.changed_call(call)
        call = self._completed(call)
        client = self._connections.client_here()
        if client is None:
            try:
                client = await self._connections.client()
            except BaseException as error:  # noqa: BLE001 -- raised again, with the id
                own = self._unopened(error, None if job_id is None else [job_id], 1)
                raise own from own.__cause__
        return await client.enqueue(call, job_id)

    def _completed(self, call: Call[R]) -> Call[R]:
        """Return a call with what it inherits from the running job. Refuse tasks of other apps."""
        if self.tasks.by_name.get(call.task.name) is not call.task or type(call.task) is not Task:
            self._check_tasks((call,))
        if call.payload.startswith(PENDING):  # no call: it is asked of every single enqueue
            refuse_pending(call)
        if (context := RUN.get(None)) is not None:
            call = self._inheritance.inherit(call, context.claimed)
        return call

    def enqueue_call_sync(self, call: Call[R], *, job_id: JobId | None = None) -> Job[R]:
        """Store one call from code without an event loop."""
        ask = call.options
        if ask.connection is not None:
            ids = None if job_id is None else [job_id]
            jobs = self.enqueue_many_sync([call], ids=ids, connection=ask.connection, wake=ask.wake)
            return jobs[0]
        if self.hooks.enqueue_hooks:
            call = self.hooks.changed_call(call)
        # One id for both ways: the first may have stored the job, and its answer was lost.
        one = self._connections.new_job_ids(1)[0] if job_id is None else job_id
        job = self._loop.call_past(lambda client: client.enqueue_here(self._completed(call), one))
        if job is not None:
            return job
        by_name = isinstance(call.task, NamedTask)
        instead = f"{'app' if by_name else call.task.name.rpartition('.')[2]}.enqueue(...)"
        work = self.enqueue_call(call, job_id=one, hooked=True)
        return self._loop.run(work, instead=instead)

    def task_named(self, name: str) -> Task[..., Any]:
        """Return the task of this name, or a stand-in for a task that only workers have."""
        return self.tasks.find(name) or self._stand_in(name)

    def call_named(
        self, name: str, arguments: Mapping[str, Any] | None, options: CallKeywords
    ) -> tuple[Call[Any], JobId | None]:
        """Make a call of the task with this name, and read the job's id if one is given."""
        return call_by_name(self.task_named(check_task_name(name)), arguments, options)

    async def enqueue_many(
        self,
        calls: Iterable[Call[R]],
        *,
        ids: Iterable[str | UUID] | None = None,
        connection: UserConnection | None = None,
        wake: Wake | None = None,
    ) -> list[Job[R]]:
        """Store calls in one transaction, all or none; the handles are in order."""
        every = self._checked_alone(calls, connection, wake)
        given = None if ids is None else job_ids_of(ids, len(every))
        return await self._store_many(every, given, connection, wake)

    async def _store_many(
        self,
        every: list[Call[R]],
        given: Sequence[JobId] | None,
        connection: UserConnection | None,
        wake: Wake | None,
    ) -> list[Job[R]]:
        if connection is not None and (store := self._outbox.store()) is not None:
            replies = await self._outbox.insert(store, every, connection, wake, given)
            return self._handles(every, replies)
        try:
            client = await self._connections.client()
        except BaseException as error:  # noqa: BLE001 -- raised again, with the ids
            own = self._unopened(error, given, len(every))
            raise own from own.__cause__
        return await client.enqueue_many(every, given)

    def enqueue_many_sync(
        self,
        calls: Iterable[Call[R]],
        *,
        ids: Iterable[str | UUID] | None = None,
        connection: UserConnection | None = None,
        wake: Wake | None = None,
    ) -> list[Job[R]]:
        """Do the same from code without an event loop; a ``connection`` is used on this thread."""
        every = self._checked_alone(calls, connection, wake)
        given = None if ids is None else job_ids_of(ids, len(every))
        if connection is not None and (store := self._outbox.store()) is not None:
            if any(map(needs_limits, every)) and not self._loop.is_here():
                # On a loop, too: a caller whose connection blocks has settled for blocking.
                self._loop.wait_for(self._define_for(every))
            replies = self._outbox.insert_sync(store, every, connection, wake, given)
            return self._handles(every, replies)
        work = self._store_many(every, given, connection, wake)
        return self._loop.run(work, instead="app.enqueue_many(...)")

    def _handles(self, calls: Sequence[Call[R]], replies: Sequence[Inserted]) -> list[Job[R]]:
        return [job_for(self, call, reply) for call, reply in zip(calls, replies, strict=True)]

    def _unopened(
        self, error: BaseException, ids: Sequence[JobId] | None, many: int
    ) -> BaseException:
        """Return the error of a call whose storage could not be opened. Each caller gets its own,
        with ids that nothing is stored under.
        """
        own = copy_error(error) if isinstance(error, Exception) else error
        note_ids(own, ids or self._connections.new_job_ids(many))
        return own

    def _completed_many(self, every: list[Call[R]]) -> list[Call[R]]:
        """Return calls with what hooks and the running job add to them."""
        if self.hooks.enqueue_hooks:
            every = [self.hooks.changed_call(call) for call in every]
        self._check_tasks(every)
        return every if (job := running_job()) is None else inherit_options_many(every, job)

    def _checked_alone(
        self, calls: Iterable[Call[R]], connection: UserConnection | None, wake: Wake | None
    ) -> list[Call[R]]:
        """Check calls that belong to no flow."""
        every = list(calls)
        check_calls(every)
        every = self._completed_many(every)
        check_connection(every, connection, wake)
        for call in every:
            if has_pending(call.payload):
                refuse_pending(call)
        return every

    def make_jobs(self, job: ClaimedJob, calls: Sequence[Call[Any] | Flow]) -> list[Addition]:
        """Return calls and flows as what ``job`` adds to its success. From any thread; stores
        nothing.
        """
        flows = [one for one in calls if isinstance(one, Flow)]
        alone = [one for one in calls if not isinstance(one, Flow)]
        check_calls(alone, "ctx.then")
        made: list[Addition] = list(self._jobs_to_add(job, alone)) if alone else []
        made += [self._flow_to_add(job, flow) for flow in flows]
        if len({flow.id for flow in flows}) < len(flows):
            raise InvalidArgument("ctx.then(...) got the same flow twice: make a Flow for each")
        for flow in flows:
            flow.close()
        return made

    def _jobs_to_add(self, job: ClaimedJob, calls: Sequence[Call[Any]]) -> list[NewJob]:
        if self.hooks.enqueue_hooks:
            calls = [self.hooks.changed_call(call) for call in calls]
        for call in calls:
            if has_pending(call.payload):
                refuse_pending(call)
            if call.options.connection is not None:
                message = (
                    f"a call of {call.task.name} was made with options(connection=...), and "
                    f"ctx.then(...) stores it with the success: leave connection= out, and write "
                    f"the success there with ctx.finish(connection=...)"
                )
                raise InvalidArgument(message)
        self._check_tasks(calls)
        return self._outbox.new_jobs(inherit_options_many(calls, job))

    def _flow_to_add(self, job: ClaimedJob, flow: Flow) -> NewFlow:
        plan = plan_of(flow)
        check_added(plan, inside=job.flow is not None)
        calls = [call for _, _, call in plan.calls]
        if self.hooks.enqueue_hooks:
            calls = [self.hooks.changed_call(call) for call in calls]
        self._check_tasks(calls)
        ids = [job_id for _, job_id, _ in plan.calls]
        jobs = self._outbox.new_jobs(inherit_options_many(calls, job), ids) if calls else []
        refuse_keys(plan, jobs)
        return new_flow(plan, jobs)

    def _check_tasks(self, calls: Sequence[Call[Any]]) -> None:
        """Refuse calls of tasks that this app cannot run, and those that grants do not cover."""
        for task in {call.task for call in calls}:
            task.check(calls, self.tasks)

    async def _define_for(self, calls: Sequence[Call[Any]]) -> None:
        await (await self._connections.client()).define_for(calls)

    # --- flows ---

    async def start(
        self, flow: Flow, connection: UserConnection | None = None, wake: Wake | None = None
    ) -> FlowRun:
        """Store a flow, whole or not at all."""
        plan, calls = self._planned(flow, connection, wake)
        if connection is not None and (store := self._outbox.store()) is not None:
            flow.fix()  # not more: after a rollback it may be started again
            answer = await self._outbox.start(store, plan, calls, connection, wake)
            return FlowRun(self, answer.id, created=answer.created)
        client = await self._connections.client()
        flow.fix()
        answer = await client.start_flow(plan, calls)
        flow.close()
        return FlowRun(self, answer.id, created=answer.created)

    def start_sync(
        self, flow: Flow, connection: UserConnection | None = None, wake: Wake | None = None
    ) -> FlowRun:
        """Do the same from code without an event loop; a ``connection`` is used on this thread."""
        if connection is not None and (store := self._outbox.store()) is not None:
            plan, calls = self._planned(flow, connection, wake)
            if any(map(needs_limits, calls)) and not self._loop.is_here():
                self._loop.wait_for(self._define_for(calls))
            flow.fix()
            answer = self._outbox.start_sync(store, plan, calls, connection, wake)
            return FlowRun(self, answer.id, created=answer.created)
        work = self.start(flow, connection, wake)
        return self._loop.run(work, instead="app.start(...)")

    def _planned(
        self, flow: Flow, connection: UserConnection | None, wake: Wake | None
    ) -> tuple[FlowPlan, list[Call[Any]]]:
        plan = plan_of(flow)
        check_wake(wake, connection)
        return plan, self._completed_many([call for _, _, call in plan.calls])

    async def add_to_flow(self, into: FlowId, flow: Flow, after: tuple[Edge, ...]) -> None:
        """Add a flow to a running one, whole or not at all."""
        planned, calls = self._planned(flow, None, None)
        plan = msgspec.structs.replace(planned, after=after)
        check_addition(plan)
        client = await self._connections.client()
        flow.fix()
        await client.start_flow(plan, calls, into)
        flow.close()

    async def flow_graph(self, flow: FlowId) -> FlowGraph:
        """Read the stored flow; FlowNotFound."""
        return await (await self._connections.client()).flows.graph(flow)

    async def wait_for_flow(self, flow: FlowId, timeout: timedelta | float | None) -> FlowRecord:
        """Wait for the end of a flow."""
        return await (await self._connections.client()).flows.wait(flow, timeout)

    async def flow_ends(
        self, flow: FlowId, parts: Sequence[int], timeout: timedelta | float | None
    ) -> AsyncIterator[Outcome]:
        """Yield jobs of parts as they end."""
        client = await self._connections.client()
        async for ended in client.flows.ended(flow, parts, timeout):
            yield ended

    async def flow_page(
        self, flow: FlowId, part: int, *, after: int, limit: int
    ) -> Sequence[Outcome]:
        """Read jobs of a part."""
        client = await self._connections.client()
        return await client.flows.page(flow, part, after=after, limit=limit)

    def flow_page_sync(
        self, flow: FlowId, part: int, *, after: int, limit: int
    ) -> Sequence[Outcome]:
        """Read jobs of a part, in code without an event loop."""
        work = self.flow_page(flow, part, after=after, limit=limit)
        return self._loop.run(work, instead="results.list()")

    async def act_on_flow(self, flow: FlowId, action: FlowAction) -> ActionResult:
        """Cancel or retry a flow, with an audit record."""
        return await self._actions.act_on_flow(flow, action)

    # --- what handles ask ---

    async def refresh(self, job: JobId) -> JobRecord:
        """Read the stored job; JobNotFound."""
        return await (await self._connections.client()).refresh(job)

    async def result(self, job: JobId, timeout: timedelta | float | None = None) -> bytes | None:
        """Wait for a job's encoded result; handles decode it."""
        report_wait(job)
        return await (await self._connections.client()).result(job, timeout)

    async def cancel(self, job: JobId, *, children: bool = False) -> CancelAnswer:
        """Ask for a job's end."""
        return await self._actions.cancel(job, children)
