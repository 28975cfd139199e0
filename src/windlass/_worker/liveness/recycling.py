"""When a worker has done or eaten enough to be replaced by a fresh one."""

from __future__ import annotations

import sys
from pathlib import Path

from windlass._settings.settings import WorkerSettings

__all__ = ["bytes_used", "megabytes_used", "recycle_reason"]

_MIB = 1024 * 1024


def bytes_used() -> int | None:
    """Resident memory of this process; None where the system does not say."""
    if sys.platform != "linux":
        return None
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * _page_size()


def megabytes_used() -> float:
    """Return the same in megabytes; 0 where the system does not say."""
    return (bytes_used() or 0) / _MIB


def _page_size() -> int:
    import resource  # noqa: PLC0415 -- not on every platform

    return resource.getpagesize()


def recycle_reason(settings: WorkerSettings, claimed: int) -> str | None:
    """Return why this worker should stop and be replaced, or None."""
    if settings.max_jobs is not None and claimed >= settings.max_jobs:
        return f"it has run {claimed} jobs (max_jobs={settings.max_jobs})"
    if settings.max_megabytes is not None:
        used = megabytes_used()
        if used > settings.max_megabytes:
            return f"it uses {used:.0f} MiB (max_megabytes={settings.max_megabytes})"
    return None
