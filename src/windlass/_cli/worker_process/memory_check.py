"""``windlass worker`` on ``memory://``: refused where no code could give it a job."""

from __future__ import annotations

import logging

from windlass._app.app import Windlass
from windlass._app.parts import parts_of
from windlass._schedules.declarations import is_built_in
from windlass._storage.protocol.storage import Storage
from windlass.errors import ConfigError

__all__ = ["check_memory"]

log = logging.getLogger("windlass")


async def check_memory(
    app: Windlass, storage: Storage, *, supervised: bool, allowed: bool = False
) -> None:
    """Refuse a storage that only this process sees, unless this process enqueues jobs itself.

    It does if the app has a schedule or a lifespan, or if importing the app enqueued a job.
    ``allowed``: the user says that other code of the process does.
    """
    if storage.shared:
        return
    if supervised:
        message = (
            "memory:// belongs to one process: several workers would not share their jobs. "
            "Use sqlite:///jobs.db, or leave out --processes."
        )
        raise ConfigError(message)
    if not (allowed or _enqueues(app) or await _has_jobs(storage)):
        message = (
            "memory:// exists only in this process, so this worker would never get a job: the app "
            "has no schedule and no lifespan that could enqueue one. Use sqlite:///jobs.db, or "
            "app.worker() in the program that enqueues. If other code of this process enqueues "
            "jobs, add --allow-memory."
        )
        raise ConfigError(message)
    log.warning(
        "memory:// exists only in this process: no other program can enqueue jobs, and all "
        "jobs are lost when it ends. Use sqlite:///jobs.db, or app.worker() in your program."
    )


def _enqueues(app: Windlass) -> bool:
    parts = parts_of(app)
    scheduled = any(not is_built_in(declared.name) for declared, _ in parts.schedules)
    return scheduled or parts.hooks.has_lifespans


async def _has_jobs(storage: Storage) -> bool:
    return any(queue.ready or queue.scheduled for queue in await storage.admin.counts())
