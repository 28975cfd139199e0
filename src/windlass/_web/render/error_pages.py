"""Error pages for people: what happened and what to do, no traces."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

import msgspec
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from windlass._web.api.problem import MEDIA_TYPE, Problem
from windlass._web.flows import FlowActionRefused
from windlass._web.request import PageRequest, RequestTooLarge, RequestTooSlow
from windlass._web.security.concurrency import TooManyOwnReads, TooManyReads
from windlass._web.security.login_throttle import TooManyLoginAttempts
from windlass.errors import (
    AmbiguousId,
    BreakerUnknown,
    FlowNotFound,
    IdConflict,
    InvalidArgument,
    JobNotFound,
    KeyBusy,
    KeyConflict,
    LimitUnknown,
    PayloadError,
    PluginUnknown,
    ScheduleBusy,
    ScheduleExists,
    ScheduleUnknown,
    StorageError,
    StorageReplaced,
    UnknownTask,
    WindlassError,
    WrongState,
)

__all__ = ["PageError", "PageTimeout", "error_response", "page_error_of", "too_many_actions"]

log = logging.getLogger("windlass")

_MISSING = (
    JobNotFound,
    FlowNotFound,
    LimitUnknown,
    BreakerUnknown,
    ScheduleUnknown,
    UnknownTask,
    PluginUnknown,
)
_CONFLICT = (
    WrongState,
    FlowActionRefused,
    IdConflict,
    KeyBusy,
    KeyConflict,
    ScheduleBusy,
    ScheduleExists,
)
_WRONG = (InvalidArgument, PayloadError)
_UNFIT = 422


class PageTimeout(Exception):
    """A page that was given up, since it took too long."""


class PageError(msgspec.Struct, frozen=True):
    """An answer that is not the one asked for."""

    code: int
    word: str
    """For machines; stays as it is from release to release."""
    title: str
    sentence: str
    retry_after: int | None = None
    """Seconds. The page asks again by itself."""
    candidates: Sequence[str] = ()
    """Ids of jobs, where several may be meant."""


NOT_FOUND = PageError(404, "not_found", "No such page", "There is nothing at this address.")
METHOD_NOT_ALLOWED = PageError(
    405, "method", "Method not allowed", "This address does not accept this method."
)
UNAUTHENTICATED = PageError(401, "unauthenticated", "Log in first", "You are not logged in.")
CROSS_SITE = PageError(
    403,
    "cross_site",
    "Request from another site",
    "The request did not come from a page of this dashboard, so nothing was changed. "
    "Go back, reload the page and try again.",
)
STALE_FORM = PageError(
    403,
    "stale_form",
    "This page is out of date",
    "You logged in again after this page was opened, so nothing was changed. "
    "Go back, reload the page and try again.",
)
MISSING_TOKEN = PageError(
    403,
    "token_missing",
    "Token missing",
    "A request that changes something needs the header X-Windlass-Token, with the token from "
    "GET /api/v1/me, or `Authorization: Bearer …`. This protects against requests from other "
    "sites, because browsers add all other credentials themselves.",
)
WRONG_HOST = PageError(400, "host", "Wrong host", "This dashboard is not served under that name.")
URL_TOO_LONG = PageError(414, "too_long", "Address too long", "This address is too long.")
HEADERS_TOO_LARGE = PageError(
    431, "large_head", "Headers too large", "The headers of this request are too large."
)
CONFLICTING_LENGTHS = PageError(
    400, "two_lengths", "Two lengths", "Both Content-Length and Transfer-Encoding are set."
)
CLIENT_DISCONNECTED = PageError(
    400, "broken_off", "Request aborted", "The request ended before it was complete."
)
BUSY = PageError(
    503,
    "busy",
    "The dashboard is busy",
    "Only a few pages are built at a time, so that workers can use the storage. This page loads "
    "again in a moment.",
    retry_after=2,
)
TOO_MANY_READS = PageError(
    429,
    "too_many_reads",
    "Too many of your pages are loading",
    "Only a few pages are built for each user at a time. This page loads again in a moment.",
    retry_after=2,
)
TOO_SLOW = PageError(
    503,
    "slow",
    "The storage is too slow",
    "The storage did not answer in time. Jobs are not affected. This page loads again in a "
    "moment; a narrower filter may help.",
    retry_after=5,
)
STORAGE_UNAVAILABLE = PageError(
    503,
    "storage_unavailable",
    "The storage cannot be reached",
    "Workers continue with their running jobs, and store the outcomes when the storage is back. "
    "This page reconnects automatically.",
    retry_after=5,
)
STORAGE_REPLACED = PageError(
    503,
    "storage_replaced",
    "The database was moved or replaced",
    "The file that this dashboard opened is missing. Put it back and this page reconnects. If a "
    "new file is there, restart the process that serves this page.",
    retry_after=5,
)
INTERNAL_ERROR = PageError(
    500,
    "error",
    "Internal error",
    "This is an error of Windlass. The log of the process that serves this page has details.",
)


def too_many_actions(wait: int) -> PageError:
    """Build the error for a user who acts too often; ``wait``: seconds."""
    sentence = (
        f"You sent too many actions in a short time, so this one was not carried out. Send it "
        f"again in {wait} s. To change many jobs, use one action on all that match."
    )
    return PageError(429, "too_fast", "Too many actions", sentence, retry_after=wait)


def _guessed(wait: int) -> PageError:
    sentence = (
        f"Too many wrong tokens came from this address. Check yours, and try again in {wait} s."
    )
    return PageError(429, "too_many_guesses", "Too many wrong tokens", sentence, retry_after=wait)


def page_error_of(error: Exception) -> PageError:
    """Return the page for an error. An unexpected one is logged, and its text is not shown."""
    match error:
        case RequestTooLarge():
            return PageError(413, "too_large", "Request too large", str(error))
        case RequestTooSlow():
            return PageError(408, "too_slow", "Request too slow", str(error))
        case ClientDisconnect():
            return CLIENT_DISCONNECTED  # the client has gone
        case TooManyReads():
            return TOO_MANY_READS if isinstance(error, TooManyOwnReads) else BUSY
        case TooManyLoginAttempts():
            return _guessed(math.ceil(error.wait))
        case PageTimeout():
            log.warning("a page of the dashboard timed out: the storage did not answer in time")
            return TOO_SLOW
        case StorageReplaced():
            log.warning("the dashboard has lost its storage: %s", error)
            return STORAGE_REPLACED
        case StorageError() | TimeoutError() | ConnectionError():
            log.warning("the dashboard cannot reach the storage: %s", error)
            return STORAGE_UNAVAILABLE
        case WindlassError() if (told := _of_the_question(error)) is not None:
            return told
        case _:
            log.error("a page of the dashboard failed", exc_info=error)
            return INTERNAL_ERROR


def _of_the_question(error: WindlassError) -> PageError | None:
    """Return the page for an error of the request; None for any other error."""
    match error:
        case AmbiguousId():
            title = "Several jobs match"
            sentence = f"Several jobs match {error.job_id}. Choose one by its whole id."
            return PageError(409, "ambiguous", title, sentence, candidates=error.candidates)
        case _ if isinstance(error, _MISSING):
            return PageError(404, "not_found", "Not found", str(error))
        case _ if isinstance(error, _CONFLICT):
            return PageError(409, "conflict", "Not possible now", str(error))
        case _ if isinstance(error, _WRONG):
            return PageError(400, "invalid", "Invalid value", str(error))
        case _:
            return None


def error_response(visit: PageRequest, failure: PageError, *, as_json: bool) -> Response:
    """Return the failure as a response."""
    if as_json:
        response = _problem(visit, failure)
    else:
        response = visit.render_plain("failure.html", code=failure.code, failure=failure)
    if failure.retry_after is not None:
        response.headers["Retry-After"] = str(failure.retry_after)
    return response


def _problem(visit: PageRequest, failure: PageError) -> Response:
    """Render it for programs. They get another code for a value that does not fit."""
    code = _UNFIT if failure.word == "invalid" else failure.code
    told = Problem(
        title=failure.title,
        status=code,
        detail=failure.sentence,
        code=failure.word,
        candidates=failure.candidates or msgspec.UNSET,
    )
    response = visit.json(told, code=code)
    response.headers["Content-Type"] = MEDIA_TYPE
    return response
