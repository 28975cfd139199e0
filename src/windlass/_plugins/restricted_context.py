"""The objects that a plugin's code can reach while it runs: its own run, its tasks, and granted
services.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from windlass._core.flows.flow import Addition, NewFlow
from windlass._core.job.job import ClaimedJob, Progress
from windlass._core.schedule.previous_run import PreviousRun
from windlass._core.values.grants import Grants
from windlass._core.values.metadata import Metadata
from windlass._storage.protocol.transactions import UserConnection
from windlass._tasks.context import (
    CallNext,
    CancelToken,
    Context,
    ContextHost,
    Middleware,
    as_current,
    current_or_none,
    with_host,
)
from windlass._tasks.flows.flow import Flow
from windlass._tasks.services import Services
from windlass._tasks.task import Call
from windlass.errors import NotGranted

__all__ = ["PluginScope"]


class PluginScope:
    """One plugin's access to its host. All its code is called through here."""

    def __init__(self, plugin: str, grants: Grants) -> None:
        self.plugin = plugin
        self.grants = grants
        self.tasks: set[str] = set()
        """The plugin's tasks, by their full names."""

    def owns(self, task: str) -> bool:
        """Tell whether a task is the plugin's own. The host may have one whose name begins like
        it.
        """
        return task in self.tasks

    def services(self, services: Services) -> Services:
        """Return the granted services."""
        return services.only(self.grants.services, self.plugin)

    def context(self, context: Context) -> Context:
        """Return the same run with the plugin's rights."""
        token = functools.partial(_read_only, own=self.owns(context.task), owns=self.owns)
        return with_host(context, functools.partial(_RestrictedHost, self), token)

    def handler(self, function: Callable[..., Any], *, takes_context: bool) -> Callable[..., Any]:
        """Return ``function`` as a worker calls it. Outside a run it behaves as before."""

        def seen_by(context: Context, args: tuple[Any, ...]) -> tuple[Context, tuple[Any, ...]]:
            seen = self.context(context)
            return seen, ((seen, *args[1:]) if takes_context and args else args)

        @functools.wraps(function)
        async def on_loop(*args: Any, **kwargs: Any) -> Any:
            if (context := current_or_none()) is None:
                return await function(*args, **kwargs)
            seen, args = seen_by(context, args)
            with as_current(seen):
                return await function(*args, **kwargs)

        @functools.wraps(function)
        def on_thread(*args: Any, **kwargs: Any) -> Any:
            if (context := current_or_none()) is None:
                return function(*args, **kwargs)
            seen, args = seen_by(context, args)
            with as_current(seen):
                value = function(*args, **kwargs)
            # A coroutine function behind a plain one: the code it awaits is the plugin's, too.
            return _awaited(value, seen) if inspect.isawaitable(value) else value

        return on_loop if inspect.iscoroutinefunction(function) else on_thread

    def layer(self, layer: Middleware) -> Middleware:
        """Return middleware that sees a run with the plugin's rights. The code inside keeps its
        own.
        """

        @functools.wraps(layer)
        async def around(context: Context, call_next: CallNext) -> Any:
            if self.grants.middleware != "all" and not self.owns(context.task):
                return await call_next()

            async def inner() -> Any:
                with as_current(context):
                    return await call_next()

            seen = self.context(context)
            with as_current(seen):
                return await layer(seen, inner)

        return around


async def _awaited(value: Awaitable[Any], seen: Context) -> Any:
    with as_current(seen):
        return await value


def _read_only(token: CancelToken, *, own: bool, owns: Callable[[str], bool]) -> CancelToken:
    return _ReadOnlyToken(_token=token, _own=own, _owns=owns)


class _ReadOnlyToken(CancelToken, kw_only=True):
    """A cancel token that a plugin can read but not set. The token itself leads to the whole run,
    which may be of another plugin.
    """

    _token: CancelToken
    _own: bool
    """The run is of a task of this plugin."""
    _owns: Callable[[str], bool]
    """Tells whether a task is the plugin's own."""

    def set(self) -> None:
        message = "a plugin cannot end runs: raise an error in your own, or return"
        raise NotGranted(message)

    def wait(self, timeout: float | None = None) -> bool:
        return self._token.wait(timeout)

    def put_off(self, after: timedelta) -> None:
        self._token.put_off(after)

    def note(self, added: Mapping[str, object]) -> Metadata:
        if not self._own:
            message = (
                "a plugin calls ctx.note(…) in a run that is not its own: middleware may only read "
                "other runs, or raise"
            )
            raise NotGranted(message)
        return self._token.note(added)

    def add(self, more: Sequence[Addition]) -> None:
        if not self._own:
            message = (
                "a plugin calls ctx.then(…) in a run that is not its own: middleware may only read "
                "other runs, or raise"
            )
            raise NotGranted(message)
        every = [one.new_jobs if isinstance(one, NewFlow) else [one] for one in more]
        for job in itertools.chain.from_iterable(every):
            if not self._owns(job.task):
                message = (
                    f"a plugin adds a job of task {job.task!r}, and may add its own tasks only"
                )
                raise NotGranted(message)
        self._token.add(more)

    def __bool__(self) -> bool:
        return bool(self._token)


class _RestrictedHost(ContextHost):
    """A host, limited to what a plugin may use."""

    def __init__(self, scope: PluginScope, host: ContextHost) -> None:
        self._scope = scope
        self._host = host

    @property
    def state(self) -> Any:
        message = (
            f"plugin {self._scope.plugin!r} asks for ctx.state, which belongs to its host. Use a "
            f"service instead: app.services.attach('name', …) and Grants(services=['name'], …), "
            f"then ctx.services.need('name')"
        )
        raise NotGranted(message)

    @property
    def services(self) -> Services:
        return self._scope.services(self._host.services)

    def note(self, job: ClaimedJob, progress: Progress) -> None:
        self._check_own(job, "ctx.progress(…)")
        self._host.note(job, progress)

    def noted(self, job: ClaimedJob, metadata: Metadata) -> None:
        self._host.noted(job, metadata)

    async def enqueue_from(self, job: ClaimedJob, call: Call[Any]) -> Any:
        self._check_task(call)
        return await self._host.enqueue_from(job, call)

    def make_jobs(self, job: ClaimedJob, calls: Sequence[Call[Any] | Flow]) -> list[Addition]:
        for one in calls:
            for call in one.calls if isinstance(one, Flow) else (one,):
                self._check_task(call)
        return self._host.make_jobs(job, calls)

    def _check_task(self, call: object) -> None:
        """Refuse a call of another's task. What is no call is refused by the host."""
        if isinstance(call, Call) and not self._scope.owns(call.task.name):
            message = (
                f"plugin {self._scope.plugin!r} enqueues a job of task {call.task.name!r}, and may "
                f"enqueue its own tasks only. Ask the host for a service that does it"
            )
            raise NotGranted(message)

    async def previous_run(self, job: ClaimedJob) -> PreviousRun | None:
        self._check_own(job, "ctx.previous_run()")
        return await self._host.previous_run(job)

    def previous_run_sync(self, job: ClaimedJob) -> PreviousRun | None:
        self._check_own(job, "ctx.previous_run()")
        return self._host.previous_run_sync(job)

    async def finish(self, job: ClaimedJob, result: object, connection: UserConnection) -> None:
        self._check_own(job, "ctx.finish(…)")
        await self._host.finish(job, result, connection)

    def finish_sync(self, job: ClaimedJob, result: object, connection: UserConnection) -> None:
        self._check_own(job, "ctx.finish_sync(…)")
        self._host.finish_sync(job, result, connection)

    def _check_own(self, job: ClaimedJob, what: str) -> None:
        if not self._scope.owns(job.task):
            message = (
                f"plugin {self._scope.plugin!r} calls {what} in a run of {job.task!r}, which is "
                f"not its own: middleware may only read other runs, or raise"
            )
            raise NotGranted(message)
