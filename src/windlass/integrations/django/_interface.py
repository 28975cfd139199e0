"""Django Tasks as one value: ``django.tasks`` of Django 6, or the django-tasks package."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

from windlass.errors import MissingDependency

if TYPE_CHECKING:
    from django.dispatch import Signal
    from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus

    AnyTask: TypeAlias = Task[..., Any]
    AnyResult: TypeAlias = TaskResult[..., Any]
else:
    AnyTask = AnyResult = Any

__all__ = ["BUILT_IN", "PACKAGE", "AnyResult", "AnyTask", "Interface", "interface_of", "put"]

BUILT_IN = "django.tasks"
PACKAGE = "django_tasks"


@dataclass(frozen=True, kw_only=True)
class Interface:
    """The names from one of the packages that a backend needs."""

    package: str
    context: type[TaskContext[..., Any]]
    error: type[TaskError]
    result: type[TaskResult[..., Any]]
    status: type[TaskResultStatus]
    invalid: type[Exception]
    unknown: type[Exception]
    enqueued: Signal
    started: Signal
    finished: Signal


def interface_of(package: str) -> Interface:
    """Import the names from ``package``."""
    try:
        base, exceptions, signals = (
            import_module(f"{package}.{part}") for part in ("base", "exceptions", "signals")
        )
    except ImportError as error:
        needed = "Django Tasks before Django 6" if package == PACKAGE else package
        raise MissingDependency(needed, "django-tasks") from error
    return Interface(
        package=package,
        context=base.TaskContext,
        error=base.TaskError,
        result=base.TaskResult,
        status=base.TaskResultStatus,
        invalid=getattr(exceptions, "InvalidTask", None) or exceptions.InvalidTaskError,
        unknown=exceptions.TaskResultDoesNotExist,
        enqueued=signals.task_enqueued,
        started=signals.task_started,
        finished=signals.task_finished,
    )


def put(result: AnyResult, **changes: object) -> None:
    """Change a result. Results are frozen for all code but their backend."""
    for name, value in changes.items():
        object.__setattr__(result, name, value)
