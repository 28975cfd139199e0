"""`CeleryCalls` and `CeleryTask`: Celery's calls around registered tasks."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, NoReturn, ParamSpec, TypeVar, Unpack, cast

from windlass._app.app import Windlass
from windlass._app.parts import parts_of
from windlass._core.values.names import shown
from windlass._tasks.call import Call, CallKeywords
from windlass._tasks.handle import Job
from windlass._tasks.task import BoundTask, Task
from windlass.errors import DefinitionError
from windlass.integrations.celery._instead import OF_APPS, OF_TASKS, refuse_attribute
from windlass.integrations.celery._options import (
    ApplyKeywords,
    OptionReader,
    PriorityOrder,
)
from windlass.integrations.celery._results import AsyncResult
from windlass.integrations.celery._signature import Signature

if TYPE_CHECKING:
    from uuid import UUID

__all__ = ["CeleryCalls", "CeleryTask"]

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class CeleryTask(Generic[P, R_co]):
    """A registered task with Celery's calls beside its own. Made by `CeleryCalls.task`."""

    def __init__(self, task: Task[P, R_co], app: Windlass, reader: OptionReader) -> None:
        """Wrap ``task``. Users write ``@celery.task`` above ``@app.task``."""
        self.task: Task[P, R_co] = task
        """The Windlass task."""
        self._app = app
        self._reader = reader
        functools.update_wrapper(self, cast("Any", task))

    @property
    def name(self) -> str:
        """The name that its jobs are stored with."""
        return self.task.name

    def __repr__(self) -> str:
        return f"<CeleryTask {self.name!r}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the plain function, as if it were not decorated."""
        return self.task(*args, **kwargs)

    # --- Celery's calls ---

    def delay(self, *args: P.args, **kwargs: P.kwargs) -> AsyncResult[R_co]:
        """Store a job."""
        return AsyncResult(self.task.enqueue_sync(*args, **kwargs).id, app=self._app)

    def apply_async(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[ApplyKeywords],
    ) -> AsyncResult[R_co]:
        """Store a job with options.

        - ``countdown``, ``eta``: run after these seconds, or at this time, which has a time zone.
        - ``expires``: discard the job if it has not started after these seconds, or by this time.
        - ``queue``, ``time_limit``: as ``queue`` and ``timeout`` of ``task.options``.
        - ``priority``: see ``CeleryCalls(app, priority=…)``.
        - ``task_id``: the job's id, a UUID.
        - ``link``, ``link_error``: signatures to run after a success, or after a failure.
        """
        return self.signature(args, kwargs).apply_async(**options)

    def s(self, *args: Any, **kwargs: Any) -> Signature:
        """Return a signature. In a chain, the result of the step before is its first argument."""
        return self.signature(args, kwargs)

    def si(self, *args: Any, **kwargs: Any) -> Signature:
        """Return a signature that ignores the result of the step before."""
        return self.signature(args, kwargs, immutable=True)

    def signature(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        *,
        immutable: bool = False,
        **options: Unpack[ApplyKeywords],
    ) -> Signature:
        """Return a signature with options."""
        made = Signature(
            self._app, self._reader, self.name, args or (), kwargs, immutable=immutable
        )
        return made.set(**options)

    def AsyncResult(self, task_id: str | UUID) -> AsyncResult[R_co]:  # noqa: N802 -- Celery's name
        """Return the result of the job with this id."""
        return AsyncResult(task_id, app=self._app)

    # --- the task's own calls, for call sites that are cleaned up ---

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R_co]:
        """Call `Task.enqueue`."""
        return await self.task.enqueue(*args, **kwargs)

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> Job[R_co]:
        """Call `Task.enqueue_sync`."""
        return self.task.enqueue_sync(*args, **kwargs)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R_co]:
        """Call `Task.call`."""
        return self.task.call(*args, **kwargs)

    def options(self, **options: Unpack[CallKeywords]) -> BoundTask[P, R_co]:
        """Call `Task.options`."""
        return self.task.options(**options)

    def job(self, job_id: str | UUID) -> Job[R_co]:
        """Call `Task.job`."""
        return self.task.job(job_id)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            refuse_attribute(self, name, OF_TASKS)


class CeleryCalls:
    """Celery's calls for the tasks of an app.

        celery = CeleryCalls(app)

        @celery.task
        @app.task
        def add(x: int, y: int) -> int: ...

        add.delay(2, 2).get(timeout=10)

    The calls block, as Celery's do. In coroutines, use ``await add.enqueue(…)``.
    """

    def __init__(self, app: Windlass, *, priority: PriorityOrder | None = None) -> None:
        """Wrap ``app``. ``priority``: what ``priority=`` means in the code that moves.
        "lower_first" if it was written for Redis, "higher_first" for RabbitMQ.
        """
        self.app: Windlass = app
        """The Windlass app."""
        self._reader = OptionReader(priority, self._now)

    def _now(self) -> datetime:
        return parts_of(self.app).connections.seams.wall()  # asked each time: tests replace it

    def task(self, task: Task[P, R] | None = None, **options: Any) -> CeleryTask[P, R]:
        """Give a registered task Celery's calls: ``@celery.task`` above all other decorators. It
        takes no options.
        """
        if not isinstance(task, Task) or options:
            given = f"{next(iter(options))}=" if options else shown(task)
            message = (
                f"celery.task takes a task of the app, got {given}. Write @celery.task, without "
                f"options, above @app.task(…), which takes them"
            )
            raise DefinitionError(message)
        return CeleryTask(task, self.app, self._reader)

    def signature(
        self,
        name: str,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        *,
        immutable: bool = False,
        **options: Unpack[ApplyKeywords],
    ) -> Signature:
        """Return a signature of the task with this name. ``args`` need a task that is registered
        here.
        """
        made = Signature(self.app, self._reader, name, args or (), kwargs, immutable=immutable)
        return made.set(**options)

    def send_task(
        self,
        name: str,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[ApplyKeywords],
    ) -> AsyncResult[Any]:
        """Store a job of the task with this name, which may exist in the workers' code alone."""
        return self.signature(name, args, kwargs).apply_async(**options)

    def AsyncResult(self, task_id: str | UUID) -> AsyncResult[Any]:  # noqa: N802 -- Celery's name
        """Return the result of the job with this id."""
        return AsyncResult(task_id, app=self.app)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            refuse_attribute(self, name, OF_APPS)
