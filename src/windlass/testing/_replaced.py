"""Other functions in place of an app's tasks, for as long as a test lasts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from windlass._app.app import Windlass
from windlass._app.parts import parts_of
from windlass._tasks.decorators import plain_function
from windlass._tasks.task import Task
from windlass.testing._isolation import PlainContext

__all__ = ["replaced"]


def replaced(
    app: Windlass, task: Task[..., Any] | str, function: Callable[..., Any]
) -> PlainContext[Task[..., Any]]:
    """Run ``function`` for the jobs of ``task``, a task or its name.

        with replaced(app, charge, fake_charge): ...

    Your code enqueues the task as before. The function takes the task's arguments, after a
    `Context` if it wants one, and may be plain or async. It runs in this process with the options
    of the task. At the end the task runs its own function again.
    """
    name = task.name if isinstance(task, Task) else task
    return PlainContext("replaced", lambda: app.tasks.replaced(_stand_in(app, name, function)))


def _stand_in(app: Windlass, name: str, function: Callable[..., Any]) -> Task[..., Any]:
    # A child process would import the app and run the task's own function.
    options = msgspec.structs.replace(app.tasks[name].settings, run_in="auto")
    return Task(plain_function(function), options, parts_of(app).producer)
