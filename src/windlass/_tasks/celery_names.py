"""Names that tasks have in Celery, and an error that says what to write here."""

from __future__ import annotations

from typing import NoReturn

__all__ = ["CeleryName"]


class CeleryName:
    """A method of Celery's tasks that `Task` does not have. Other attributes cost nothing more, as
    they would with ``__getattr__``.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, task: object, owner: type) -> NoReturn:
        """AttributeError, so that ``hasattr`` works."""
        message = (
            f"a task has no {self._name!r}: write task.enqueue_sync(...), or "
            f"await task.enqueue(...). To keep Celery's calls for now, put @celery.task of "
            f"windlass.integrations.celery above @app.task"
        )
        raise AttributeError(message, name=self._name, obj=task)
