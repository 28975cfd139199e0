"""Finding the run of a schedule before a job of it, when the job's handler asks for it."""

from __future__ import annotations

from collections.abc import Sequence

from windlass._core.job.job import JobId
from windlass._core.schedule.previous_run import PreviousRun, describe_run, run_before
from windlass._core.schedule.schedule import ScheduleState
from windlass._schedules.edits import UnreadableSchedule, decoded
from windlass._storage.protocol.schedules import ScheduleRow, ScheduleStore
from windlass._storage.protocol.storage import Storage

__all__ = ["find_previous_run"]

_PAGE = 500


async def find_previous_run(
    storage: Storage, job: JobId, likely: Sequence[str]
) -> PreviousRun | None:
    """Return the run before ``job``; None: it is the first, or no schedule made it.

    A job does not carry the name of its schedule. ``likely`` schedules are read first: those that
    code declares for its task. Others are read in pages.
    """
    state = await _schedule_of(storage.schedules, job, likely)
    run = None if state is None else run_before(state, job)
    if run is None or run.job is None:
        return None
    (record,) = await storage.admin.get([run.job])
    return describe_run(run, run.job, record)


async def _schedule_of(
    store: ScheduleStore, job: JobId, likely: Sequence[str]
) -> ScheduleState | None:
    rows = await store.rows(likely) if likely else ()
    found = _made(rows, job)
    after = ""
    while found is None and (rows := await store.page(after, _PAGE)):
        found, after = _made(rows, job), rows[-1].name
    return found


def _made(rows: Sequence[ScheduleRow], job: JobId) -> ScheduleState | None:
    for known in map(decoded, rows):
        if isinstance(known, UnreadableSchedule):
            continue
        if any(run.job == job for run in known.state.runs):
            return known.state
    return None
