"""A backend for the django-tasks package: for ``from django_tasks import task``."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from windlass.integrations.django._backend import Backend
from windlass.integrations.django._interface import PACKAGE, Interface, interface_of

_INTERFACE = interface_of(PACKAGE)

if TYPE_CHECKING:
    from django.tasks.backends.base import BaseTaskBackend
else:
    from django_tasks.backends.base import BaseTaskBackend

__all__ = ["WindlassBackend"]


class WindlassBackend(Backend, BaseTaskBackend):
    """``{"BACKEND": "windlass.integrations.django.django_tasks.WindlassBackend"}`` in ``TASKS``.

    ``OPTIONS`` are those of `windlass.integrations.django.tasks.WindlassBackend`.
    """

    interface: ClassVar[Interface] = _INTERFACE
