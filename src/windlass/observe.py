"""Public names for monitoring: the events of `on_transition`, and a filter that adds the job to log
records.
"""

from windlass._core.job.event import (
    Event,
    JobCoalesced,
    JobEnqueued,
    JobMoved,
    QueueCooled,
    WorkerChanged,
)
from windlass._observe.current_run import WithJob

__all__ = [
    "Event",
    "JobCoalesced",
    "JobEnqueued",
    "JobMoved",
    "QueueCooled",
    "WithJob",
    "WorkerChanged",
]
