"""Public names for logging: a filter that adds the job to log records."""

from windlass._observe.current_run import WithJob

__all__ = ["WithJob"]
