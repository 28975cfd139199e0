"""Tasks of plugins: like other tasks, but their jobs stay within the host's grants."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from windlass._core.job.unique import compose_key
from windlass._plugins.names import plugin_tag
from windlass._plugins.restricted_context import PluginScope
from windlass._tasks.limits import Limit, limits_of
from windlass._tasks.options import JobOptions, TaskOptions
from windlass._tasks.task import Call, Enqueuer, Task
from windlass.errors import NotGranted, PluginUnknown

__all__ = ["PluginTask"]


class PluginTask(Task[..., Any]):
    """A task that a plugin has registered."""

    def __init__(
        self,
        function: Callable[..., Any],
        options: TaskOptions,
        enqueuer: Enqueuer,
        scope: PluginScope,
        concurrency: int | None = None,
    ) -> None:
        """Make the task. ``concurrency``: jobs that run at once in the whole cluster."""
        # Private: a plugin's own task object must not lead to its grants.
        self._scope = scope
        self.concurrency = concurrency
        self.documentation: str = inspect.getdoc(function) or ""
        bounds = _bounds(options, scope, concurrency)
        options = msgspec.structs.replace(
            options,
            queue=options.queue or next(iter(scope.grants.queues), None),
            limits=(*options.limits, *bounds),
            tags=(*options.tags, plugin_tag(scope.plugin)),
        )
        super().__init__(function, options, enqueuer)
        self.function: Callable[..., Any] = scope.handler(
            function, takes_context=self.takes_context
        )
        self._mark = plugin_tag(scope.plugin)
        self._bounds = frozenset(limit.name for limit in bounds)
        scope.tasks.add(self.name)

    def check(self, calls: Sequence[Call[Any]]) -> None:
        """Refuse calls outside the grants, wherever they are made."""
        installed = self._enqueuer.tasks.find(self.name) is self
        if not installed:
            message = (
                f"plugin {self._scope.plugin!r} is not installed here, so task {self.name!r} takes "
                f"no jobs: call app.install(…) first"
            )
            raise PluginUnknown(message)
        for call in calls:
            if call.task is self:
                self._check(call)

    def _check(self, call: Call[Any]) -> None:
        queue, granted = call.options.queue or self.settings.queue, self._scope.grants.queues
        if queue not in granted:
            message = (
                f"a job of {self.name!r} asks for queue {queue!r}, and plugin "
                f"{self._scope.plugin!r} may use {', '.join(map(repr, granted)) or 'none'}. Grant "
                f"it: Grants(queues=[{queue!r}], …)"
            )
            raise NotGranted(message)
        unique = call.unique or call.options.unique
        own = compose_key(self.name, "…").removesuffix("…")
        if unique is not None and not unique.key.startswith(own):
            message = (
                f"a job of {self.name!r} asks for a unique key of the whole application "
                f"(scope='global'), and a plugin may use only its own keys: leave scope out"
            )
            raise NotGranted(message)
        if not self._bounds <= {use.name for use in call.limits}:
            message = f"a call of {self.name!r} has lost its limits: make it with task.call(…)"
            raise NotGranted(message)

    def _make(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: JobOptions
    ) -> Call[Any]:
        # Tags of a call replace the task's, and this one must stay: a worker without the plugin
        # knows the job's plugin only by it.
        if options.tags is not None and self._mark not in options.tags:
            options = msgspec.structs.replace(options, tags=(*options.tags, self._mark))
        return super()._make(args, kwargs, options)


def _bounds(options: TaskOptions, scope: PluginScope, concurrency: int | None) -> list[Limit]:
    """Return two concurrency limits: the task's own and the host's for the plugin. Both hold in the
    whole cluster, and operators can change them.
    """
    bounds = []
    if concurrency is not None:
        bounds.append(Limit(options.name, concurrency=concurrency))
    if scope.grants.max_running is not None:
        bounds.append(Limit(scope.plugin, concurrency=scope.grants.max_running))
    limits_of([*options.limits, *bounds])  # two limits need two names
    return bounds
