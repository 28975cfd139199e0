"""The backend for Django Tasks, whichever of the two packages they come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, TypeVar

from django.apps import apps
from django.core.checks import CheckMessage
from django.db import transaction
from django.utils import timezone

from windlass._app.parts import parts_of
from windlass._core.values.handler import importable_module
from windlass._system.seams import new_job_id
from windlass._tasks.task import Call
from windlass.integrations.django import get_app
from windlass.integrations.django._commit import Way, database_of, enqueue_inside, way_of
from windlass.integrations.django._interface import AnyResult, AnyTask, Interface, put
from windlass.integrations.django._project import PROJECT
from windlass.integrations.django._results import enqueued_at, read_as
from windlass.integrations.django._worker_tasks import adopt

if TYPE_CHECKING:
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskResult
else:
    BaseTaskBackend = object

__all__ = ["Backend"]

P = ParamSpec("P")
R = TypeVar("R")


class Backend(BaseTaskBackend):
    """The shared part of both backends, besides the base class of their package."""

    interface: ClassVar[Interface]
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def validate_task(self, task: AnyTask) -> None:
        super().validate_task(task)
        # Django calls this for every task when it is defined: workers learn of the task here.
        if PROJECT.meet(task.module_path):
            options = {key: value for key, value in self.options.items() if key != "transactional"}
            # Later: a module that is being imported must not import the app's, which may be
            # importing it.
            PROJECT.when_known(lambda app: adopt(app, task, self, options))

    def enqueue(
        self, task: Task[P, R], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> TaskResult[P, R]:
        self.validate_task(task)
        # Django's own rules decide what the arguments become and which are refused.
        make: type[Any] = self.interface.result
        result: TaskResult[P, R] = make(
            task=task,
            id="",
            status=self.interface.status.READY,
            enqueued_at=None,
            started_at=None,
            finished_at=None,
            last_attempted_at=None,
            args=list(args),
            kwargs=dict(kwargs),
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        ours = get_app().tasks[importable_module(task.module_path)]
        chosen = ours.options(
            priority=-task.priority, queue=task.queue_name, at=_aware(task.run_after)
        )
        self._store(chosen.call(result.args, result.kwargs), result)
        return result

    def _store(self, call: Call[Any], result: AnyResult) -> None:
        app, alias = get_app(), database_of(self.options)
        way, enqueue = way_of(app, alias), parts_of(app).producer.enqueue_call_sync
        if alias is None or way is Way.NOW:
            self._stored(result, enqueue(call).id)
        elif way is Way.INSIDE:
            self._stored(result, enqueue_inside(app, call, alias).id)
        else:
            chosen = new_job_id()
            put(result, id=chosen)
            transaction.on_commit(
                lambda: self._stored(result, enqueue(call, job_id=chosen).id),
                using=alias,
            )

    def _stored(self, result: AnyResult, job_id: str) -> None:
        put(result, id=job_id, enqueued_at=enqueued_at(get_app(), job_id))
        self.interface.enqueued.send(type(self), task_result=result)

    def get_result(self, result_id: str) -> AnyResult:
        work = read_as(result_id, self.interface)
        return get_app().blocking.run(work, instead="task.aget_result(...)", anywhere=True)

    def check(self, **_: Any) -> list[CheckMessage]:
        """Check the settings, if the Windlass app is not in INSTALLED_APPS."""
        from windlass.integrations.django import _checks  # noqa: PLC0415 -- it knows backends

        if apps.is_installed("windlass.integrations.django") or self.alias != _checks.first_alias():
            return []
        return [_checks.not_installed(self.alias), *_checks.check_settings()]


def _aware(due: datetime | None) -> datetime | None:
    return timezone.make_aware(due) if due is not None and timezone.is_naive(due) else due
