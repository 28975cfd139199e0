"""The job that an address names."""

from __future__ import annotations

from windlass.core.ids import id_as_stored, is_whole, likenesses
from windlass.core.job import JobId
from windlass.errors import JobNotFound
from windlass.web.visit import Visit

__all__ = ["asked_job"]


async def asked_job(visit: Visit) -> JobId:
    """The whole id of the job in the address, where it may be shortened. What cannot be an id is
    not looked for.
    """
    job: str = visit.request.path_params["job"]
    if not is_whole(id_as_stored(job).lower()) and not likenesses(job):
        raise JobNotFound(job[:64])
    return await visit.admin.resolve(job)
