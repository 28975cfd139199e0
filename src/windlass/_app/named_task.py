"""Tasks by name, for producers that do not have the code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windlass._core.job.caller import CORRELATION_KEYS, PRINCIPAL_KEYS
from windlass._core.job.job import JobId
from windlass._core.values.names import shown
from windlass._core.values.payload import Codec, encode_any
from windlass._tasks.call import Call, CallKeywords, call_options
from windlass._tasks.handle import Enqueuer
from windlass._tasks.options import JobOptions, TaskOptions
from windlass._tasks.registry import TaskRegistry
from windlass._tasks.task import Task
from windlass.errors import InvalidArgument

__all__ = ["NamedTask", "call_by_name", "check_task_name"]

_IDENTITY = frozenset((*PRINCIPAL_KEYS, *CORRELATION_KEYS))


async def _defined_elsewhere() -> Any:
    """Stand in for a function that this process does not have. No worker calls it."""


_CODEC = Codec(_defined_elsewhere)


class NamedTask(Task[..., Any]):
    """A stand-in for a task that only workers have. The worker checks the arguments.

    Its limits, its unique rule and its secret arguments are not known here.
    """

    def __init__(self, enqueuer: Enqueuer, name: str) -> None:
        """Refuse a name that no task can have."""
        super().__init__(_defined_elsewhere, TaskOptions(name=name), enqueuer)

    @property
    def codec(self) -> Codec:
        """Decode results as plain JSON values. All such tasks share it."""
        return _CODEC

    def check(self, calls: Sequence[Call[Any]], tasks: TaskRegistry) -> None:
        """Accept every call: workers know the task, this process does not."""

    def call_named(self, arguments: Mapping[str, Any], options: JobOptions) -> Call[Any]:
        """Make a call whose arguments are stored as given."""
        what = f"the arguments of {self.name}"
        payload = encode_any(dict(arguments), limit=self._enqueuer.payload_limit, what=what)
        tenant_of = self._enqueuer.hooks.tenant_of
        if tenant_of is not None and options.tenant is None:
            options = self._tenanted(options, tenant_of())
        named = None if _IDENTITY.isdisjoint(arguments) else arguments
        return Call(self, payload or b"{}", named, options)


def check_task_name(name: object) -> str:
    """Refuse an object that is not a task's name, and say how to enqueue a `Task`."""
    if isinstance(name, Task):
        short = name.name.rpartition(".")[2]
        message = (
            f"app.enqueue takes the name of a task, got {name!r}. Write await {short}.enqueue(…), "
            f"or {short}.call(…)"
        )
        raise InvalidArgument(message)
    if not isinstance(name, str):
        message = f"app.enqueue takes the name of a task such as 'shop.charge', got {shown(name)}"
        raise InvalidArgument(message)
    return name


def call_by_name(
    task: Task[..., Any], arguments: Mapping[str, Any] | None, options: CallKeywords
) -> tuple[Call[Any], JobId | None]:
    """Make a call with arguments by name, and read the job's id if one is given."""
    given: object = {} if arguments is None else arguments
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        message = (
            f"the arguments of task {task.name!r} are a mapping of names to values such as "
            f"{{'order': 7}}, got {shown(given)}"
        )
        raise InvalidArgument(message)
    made, job_id = call_options(options, task.name, task.settings.unique, task.draws)
    return task.call_named(given, made), job_id
