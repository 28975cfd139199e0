"""Every task of an app by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from windlass._core.limits.limit import LimitSpec
from windlass._core.values.handler import source_of
from windlass.errors import DefinitionError, DuplicateTask, UnknownTask

if TYPE_CHECKING:
    from windlass._tasks.task import Task

__all__ = ["TaskRegistry"]


class TaskRegistry:
    """Every task of an app by name: the only way from a stored name to a function."""

    def __init__(self) -> None:
        """Start empty."""
        self._tasks: dict[str, Task[..., Any]] = {}
        self._more_queues: set[str] = set()
        self.by_name: Mapping[str, Task[..., Any]] = MappingProxyType(self._tasks)
        """Every task, now."""

    def add(self, task: Task[..., Any]) -> None:
        """Register a task; refuse a name that is taken."""
        other = self._tasks.get(task.name)
        if other is not None:
            raise DuplicateTask(task.name, source_of(other.function), source_of(task.function))
        taker = task.settings.on_failure
        named = taker is None or isinstance(taker, str)
        if not named and self._tasks.get(taker.name) is not taker:
            message = f"on_failure of task {task.name!r} is {taker!r}, a task of another app"
            raise DefinitionError(message)
        for limit in task.settings.limits:
            self._check_limit(limit.spec, task.name)
        self._tasks[task.name] = task

    def remove(self, name: str) -> None:
        """Remove a task. Its jobs wait for a worker that has it."""
        del self._tasks[name]

    def _check_limit(self, spec: LimitSpec, task: str) -> None:
        for other in self:
            if any(own.name == spec.name and own.spec != spec for own in other.settings.limits):
                message = (
                    f"limit {spec.name!r} has other numbers in task {task!r} than in "
                    f"{other.name!r}. Make one Limit and give it to both, or two with different "
                    f"names."
                )
                raise DefinitionError(message)

    def find(self, name: str) -> Task[..., Any] | None:
        """Return the task, or None."""
        return self._tasks.get(name)

    def __getitem__(self, name: str) -> Task[..., Any]:
        """Return the task, or raise UnknownTask with a suggestion."""
        task = self._tasks.get(name)
        if task is None:
            raise UnknownTask(name, self._tasks)
        return task

    def __iter__(self) -> Iterator[Task[..., Any]]:
        return iter([*self._tasks.values()])  # another thread may add one meanwhile

    def __len__(self) -> int:
        return len(self._tasks)

    @property
    def names(self) -> Sequence[str]:
        """The names of all tasks, sorted."""
        return sorted(self._tasks)

    def add_queues(self, queues: Iterable[str]) -> None:
        """Add queues that calls may use though no task names them. Workers serve them too."""
        self._more_queues.update(queues)

    def queues(self, default: str) -> set[str]:
        """List every named queue. ``default``: the queue of tasks without one."""
        return {task.settings.queue or default for task in self} | self._more_queues
