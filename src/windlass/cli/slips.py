"""Options of a worker that are probably a slip of the pen, checked against the app."""

from __future__ import annotations

import logging

from windlass.app import Windlass
from windlass.config import WorkerSettings
from windlass.errors import ConfigError, suggestion

__all__ = ["check_queues"]

log = logging.getLogger("windlass")


def check_queues(settings: WorkerSettings, app: Windlass) -> None:
    """Refuse a weight for a queue that is not served; warn of a queue that no task names."""
    for queue in settings.weights or {}:
        if queue not in settings.served:
            near = suggestion(queue, settings.served)
            message = f"--weight {queue}=… is for a queue that is not served.{near}"
            raise ConfigError(message)
    named = {task.settings.queue or app.settings.default_queue for task in app.tasks}
    named |= app.more_queues
    for queue in settings.served:
        if queue not in named and (near := suggestion(queue, named - set(settings.served))):
            log.warning("no task names the queue %r.%s", queue, near)
