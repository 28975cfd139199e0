"""A backend for Django Tasks: ``django.tasks`` of Django 6, else the django-tasks package.

A Django task is a task of the app under its import path, so that workers, limits, metrics and
``explain`` know it by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from django import VERSION

from windlass.integrations.django._backend import Backend
from windlass.integrations.django._interface import BUILT_IN, Interface, interface_of

__all__ = ["WindlassBackend"]

if TYPE_CHECKING or VERSION >= (6,):
    from django.tasks.backends.base import BaseTaskBackend

    class WindlassBackend(Backend, BaseTaskBackend):
        """``{"BACKEND": "windlass.integrations.django.tasks.WindlassBackend"}`` in ``TASKS``.

        ``OPTIONS`` are those of ``@app.task`` for every task of this backend, such as
        ``{"max_attempts": 1, "timeout": 60}``, and ``transactional``.
        """

        interface: ClassVar[Interface] = interface_of(BUILT_IN)
else:
    from windlass.integrations.django.django_tasks import WindlassBackend
