"""What is no page: files, and the stream of changes."""

from __future__ import annotations

from starlette.responses import Response, StreamingResponse

from windlass.web import failures
from windlass.web.doors import NAMELESS, who_asks
from windlass.web.failures import Failure, refuse
from windlass.web.live import CROWD, EACH, FULL_FOR, parts_of
from windlass.web.visit import Visit

__all__ = ["asset", "live"]

_OWN = Failure(
    429,
    "too_many_own_streams",
    "Many of your pages are open",
    "This page does not update by itself for now. Close some of the others, or reload it to see "
    "what is new.",
    retry_after=FULL_FOR,
)
_FULL = Failure(
    503,
    "too_many_streams",
    "Too many pages are open",
    "This page does not update by itself for now; reload it to see what is new.",
    retry_after=FULL_FOR,
)


async def asset(visit: Visit) -> Response:
    """One of the files that were installed with us."""
    found = visit.dashboard.assets.respond(visit.request, visit.request.path_params["name"])
    return found or refuse(visit, failures.NO_PAGE, as_json=False)


async def live(visit: Visit) -> Response:
    """Which parts have changed, as it happens."""
    if visit.request.method == "HEAD":
        return Response(media_type="text/event-stream")
    door, live, entry = visit.dashboard.door, visit.dashboard.live, visit.entry
    who = "" if entry is None else who_asks(visit.request, entry)
    each = CROWD if entry is not None and entry.person.name == NAMELESS else EACH
    if live.full_for(who, each):
        return refuse(visit, _OWN, as_json=True)
    if live.full:
        return refuse(visit, _FULL, as_json=True)

    async def still() -> bool:
        return await door.find(visit.request) is not None

    stream = live.listen(
        parts_of(visit.asked("parts")),
        who=who,
        each=each,
        still=still,
        look_again=door.look_again,
    )
    # A proxy that buffers would keep every event until the stream ends.
    return StreamingResponse(
        stream, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"}
    )
