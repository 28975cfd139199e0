"""Every task of an app by name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from windlass._core.limits.limit import LimitSpec
from windlass._core.values.handler import source_of
from windlass._settings.settings import Settings
from windlass._tasks.follow_ups import follow_up_options
from windlass.errors import DefinitionError, DuplicateTask, UnknownTask

if TYPE_CHECKING:
    from windlass._tasks.task import Task

__all__ = ["TaskRegistry"]


class TaskRegistry:
    """Every task of an app by name: the only way from a stored name to a function."""

    def __init__(self) -> None:
        """Start empty."""
        self._tasks: dict[str, Task[..., Any]] = {}
        self._by_name: dict[str, Task[..., Any]] = {}
        self._covered: set[Task[..., Any]] = set()
        self._more_queues: set[str] = set()
        self._with_on_success: set[str] = set()
        self.with_on_success: Collection[str] = self._with_on_success
        """The names and aliases of the tasks whose successes are followed by a job."""
        self.by_name: Mapping[str, Task[..., Any]] = MappingProxyType(self._by_name)
        """Every task, now: by its name and by its aliases."""

    def add(self, task: Task[..., Any]) -> None:
        """Register a task; refuse a name or an alias that is taken."""
        for name in (task.name, *task.settings.aliases):
            if (other := self._by_name.get(name)) is not None:
                raise _clash(name, other, task)
        for option, taker in follow_up_options(task.settings):
            if not isinstance(taker, str) and self._tasks.get(taker.name) is not taker:
                message = f"{option} of task {task.name!r} is {taker!r}, a task of another app"
                raise DefinitionError(message)
        for limit in task.settings.limits:
            self._check_limit(limit.spec, task.name)
        self._tasks[task.name] = task
        if task.settings.on_success is not None:
            self._with_on_success.update((task.name, *task.settings.aliases))
        self._by_name.update(dict.fromkeys((task.name, *task.settings.aliases), task))

    def remove(self, name: str) -> Task[..., Any]:
        """Remove a task and return it. Its jobs wait for a worker that has it."""
        task = self._tasks.pop(name)
        for known in (name, *task.settings.aliases):
            del self._by_name[known]
        self._with_on_success.difference_update((name, *task.settings.aliases))
        return task

    @contextmanager
    def replaced(self, other: Task[..., Any]) -> Iterator[Task[..., Any]]:
        """Let ``other`` run the jobs of the task with its name while the block lasts. That task
        still enqueues.
        """
        task = self[other.name]
        names = (task.name, *task.settings.aliases)
        self._covered.add(task)
        self._tasks[task.name] = other
        self._by_name.update(dict.fromkeys(names, other))
        try:
            yield other
        finally:
            self._covered.discard(task)
            self._tasks[task.name] = task
            self._by_name.update(dict.fromkeys(names, task))

    def has(self, task: Task[..., Any]) -> bool:
        """Tell whether this very task is registered here, replaced or not."""
        return self._by_name.get(task.name) is task or task in self._covered

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
        """Return the task with this name or alias, or None."""
        return self._by_name.get(name)

    def __getitem__(self, name: str) -> Task[..., Any]:
        """Return the task with this name or alias, or raise UnknownTask with a suggestion."""
        task = self._by_name.get(name)
        if task is None:
            raise UnknownTask(name, self._tasks)
        return task

    def __iter__(self) -> Iterator[Task[..., Any]]:
        return iter([*self._tasks.values()])  # another thread may add one meanwhile

    def __len__(self) -> int:
        return len(self._tasks)

    @property
    def names(self) -> Sequence[str]:
        """The names of all tasks, sorted. Aliases are not among them."""
        return sorted(self._tasks)

    @property
    def names_and_aliases(self) -> Sequence[str]:
        """The names and aliases of all tasks, sorted: jobs stored under any of them run here."""
        return sorted(self._by_name)

    def add_queues(self, queues: Iterable[str]) -> None:
        """Add queues that calls may use though no task names them. Workers serve them too."""
        self._more_queues.update(queues)

    def queues(self, settings: Settings) -> set[str]:
        """List every queue that jobs of the app may have: of its tasks, of routes and added ones.

        The own queue of a task is among them, also if a route leads elsewhere: jobs that were
        stored before the route wait there.
        """
        own = {task.settings.queue or settings.default_queue for task in self}
        return own | set(settings.routes.values()) | self._more_queues


def _clash(name: str, other: Task[..., Any], task: Task[..., Any]) -> DefinitionError:
    if name == task.name == other.name:
        return DuplicateTask(name, source_of(other.function), source_of(task.function))
    owner, clash = (other, task) if name == other.name else (task, other)
    relation = "the name" if name == owner.name else "also an alias"
    return DefinitionError(
        f"alias {name!r} of task {clash.name!r} is {relation} of task {owner.name!r}. A stored "
        f"name must lead to one task: remove the alias."
    )
