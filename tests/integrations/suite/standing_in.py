"""Our backend in the places of Django's dummy and immediate ones."""

from __future__ import annotations

from contextlib import suppress
from contextvars import Context
from datetime import timedelta
from typing import Any

from windlass._app.parts import parts_of
from windlass._core.job.state import TERMINAL
from windlass.errors import ResultError
from windlass.integrations.django import get_app
from windlass.integrations.django.tasks import WindlassBackend

__all__ = ["Enqueuing", "Running"]


class Enqueuing(WindlassBackend):
    """For the dummy: jobs are stored, and nothing runs them."""

    @property
    def results(self) -> list[Any]:
        """What is stored."""
        app = get_app()
        every = app.blocking.run(app.admin.jobs.find(), anywhere=True)
        return [self.get_result(job.id) for job in every]

    def clear(self) -> None:
        """Remove what is stored."""
        get_app().blocking.run(_remove_all())


async def _remove_all() -> None:
    app = get_app()
    for job in await app.admin.jobs.find():
        await app.admin.jobs.cancel(job.id)
    store = (await parts_of(app).storage()).maintenance
    for state in TERMINAL:
        await store.prune(state=state, older_than=timedelta(0), limit=1000)


class Running(WindlassBackend):
    """For the immediate one: a worker has run the job when the call returns."""

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        result: Any = super().enqueue(task, args, kwargs)
        # Without the context of the caller, whose thread asgiref would wait for.
        Context().run(get_app().blocking.run, _until_ended(result.id))
        result.refresh()
        return result


async def _until_ended(job: str) -> None:
    app = get_app()
    async with app.worker(queues=[(await app.admin.jobs.get(job)).queue]):
        with suppress(ResultError):
            await app.job(job).result(timeout=30)
