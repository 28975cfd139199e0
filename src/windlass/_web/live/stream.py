"""Files, and the stream of changes."""

from __future__ import annotations

from starlette.responses import Response, StreamingResponse

from windlass._web.live.changes import (
    MAX_ANONYMOUS_STREAMS,
    MAX_STREAMS_PER_PERSON,
    RETRY_AFTER_SECONDS,
    parse_parts,
)
from windlass._web.render import error_pages
from windlass._web.render.error_pages import PageError, error_response
from windlass._web.request import PageRequest
from windlass._web.security.authentication import ANONYMOUS, rate_limit_key

__all__ = ["asset", "live"]

_OWN = PageError(
    429,
    "too_many_own_streams",
    "Too many of your pages are open",
    "This page has no live updates for now. Close other pages, or reload this one.",
    retry_after=RETRY_AFTER_SECONDS,
)
_FULL = PageError(
    503,
    "too_many_streams",
    "Too many pages are open",
    "This page has no live updates for now. Reload it to see changes.",
    retry_after=RETRY_AFTER_SECONDS,
)


async def asset(visit: PageRequest) -> Response:
    """Return one of the files that were installed with us."""
    found = visit.dashboard.assets.respond(visit.request, visit.request.path_params["name"])
    return found or error_response(visit, error_pages.NOT_FOUND, as_json=False)


async def live(visit: PageRequest) -> Response:
    """Stream the parts that have changed, as it happens."""
    if visit.request.method == "HEAD":
        return Response(media_type="text/event-stream")
    door, live, entry = visit.dashboard.door, visit.dashboard.live, visit.entry
    who = "" if entry is None else rate_limit_key(visit.request, entry)
    each = (
        MAX_ANONYMOUS_STREAMS
        if entry is not None and entry.person.name == ANONYMOUS
        else MAX_STREAMS_PER_PERSON
    )
    if live.full_for(who, each):
        return error_response(visit, _OWN, as_json=True)
    if live.full:
        return error_response(visit, _FULL, as_json=True)

    async def still() -> bool:
        return await door.find(visit.request) is not None

    stream = live.listen(
        parse_parts(visit.asked("parts")),
        who=who,
        each=each,
        still=still,
        look_again=door.look_again,
    )
    # A proxy that buffers would keep every event until the stream ends.
    return StreamingResponse(
        stream, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"}
    )
