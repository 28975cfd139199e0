"""What people see when something goes wrong: what happened and what to do, no traces."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

import msgspec
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from windlass._web.api.problem import MEDIA_TYPE, Problem
from windlass._web.request import PageRequest, RequestTooLarge, RequestTooSlow
from windlass._web.security.concurrency import TooManyOwnReads, TooManyReads
from windlass._web.security.login_throttle import TooManyLoginAttempts
from windlass.errors import (
    AmbiguousId,
    BreakerUnknown,
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

_MISSING = (JobNotFound, LimitUnknown, BreakerUnknown, ScheduleUnknown, UnknownTask, PluginUnknown)
_CONFLICT = (WrongState, IdConflict, KeyBusy, KeyConflict, ScheduleBusy, ScheduleExists)
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
    405, "method", "Not like this", "This address does not take such a request."
)
UNAUTHENTICATED = PageError(401, "unauthenticated", "Log in first", "You are not logged in.")
CROSS_SITE = PageError(
    403,
    "cross_site",
    "This came from somewhere else",
    "The request did not come from a page of this dashboard, so nothing was done. "
    "Go back, reload the page and try again.",
)
STALE_FORM = PageError(
    403,
    "stale_form",
    "This form is too old",
    "You have logged in anew since this page was opened, so nothing was done. "
    "Go back, reload the page and try again.",
)
MISSING_TOKEN = PageError(
    403,
    "token_missing",
    "A token is missing",
    "A request that changes something needs the header X-Windlass-Token, with the token that "
    "GET /api/v1/me answers, unless it comes with `Authorization: Bearer …`: browsers add all "
    "other credentials by themselves, and another site could make them do so.",
)
WRONG_HOST = PageError(400, "host", "Wrong host", "This dashboard is not served under that name.")
URL_TOO_LONG = PageError(414, "too_long", "Too long", "This address is too long to be one of ours.")
HEADERS_TOO_LARGE = PageError(
    431, "large_head", "Too much at once", "The head of this request is too large."
)
CONFLICTING_LENGTHS = PageError(
    400, "two_lengths", "Not like this", "This request says in two ways how long it is."
)
CLIENT_DISCONNECTED = PageError(
    400, "broken_off", "Broken off", "The request did not come to its end."
)
BUSY = PageError(
    503,
    "busy",
    "Many pages are being made",
    "So that the workers keep the storage to themselves, only a few pages are made at a "
    "time. This one comes by itself in a moment.",
    retry_after=2,
)
TOO_MANY_READS = PageError(
    429,
    "too_many_reads",
    "Several of your pages are being made",
    "So that one person does not take the storage from the others, only a few pages are made "
    "for each at a time. This one comes by itself in a moment.",
    retry_after=2,
)
TOO_SLOW = PageError(
    503,
    "slow",
    "This takes too long",
    "The storage has not answered in time, so the question was given up. Jobs go on as ever. This "
    "page tries again by itself; a narrower filter may help.",
    retry_after=5,
)
STORAGE_UNAVAILABLE = PageError(
    503,
    "storage_unavailable",
    "The storage cannot be reached",
    "Workers run on with the jobs that they have, and store the outcomes when it is back. "
    "This page comes back by itself as soon as the storage does.",
    retry_after=5,
)
STORAGE_REPLACED = PageError(
    503,
    "storage_replaced",
    "The database has been moved or replaced",
    "The file that this dashboard opened is not in its place any more. It comes back by itself if "
    "the file does. If another one is there now, restart the process that serves this page.",
    retry_after=5,
)
INTERNAL_ERROR = PageError(
    500,
    "error",
    "Something went wrong here",
    "It is our mistake, not yours. The log of the process that serves this page says more.",
)


def too_many_actions(wait: int) -> PageError:
    """For somebody whose orders come faster than they may; ``wait``: seconds."""
    sentence = (
        f"So many orders came in such a short time that this one was not carried out. Send it "
        f"again in {wait} s. For many jobs there is one order for all that match."
    )
    return PageError(429, "too_fast", "One after the other", sentence, retry_after=wait)


def _guessed(wait: int) -> PageError:
    sentence = (
        f"Too many wrong tokens came from this address. Look whether yours is the right one, and "
        f"try again in {wait} s."
    )
    return PageError(429, "too_many_guesses", "Too many wrong tokens", sentence, retry_after=wait)


def page_error_of(error: Exception) -> PageError:
    """How an error is told. What nobody expected is logged, and told without its words."""
    match error:
        case RequestTooLarge():
            return PageError(413, "too_large", "Too large", str(error))
        case RequestTooSlow():
            return PageError(408, "too_slow", "Too slow", str(error))
        case ClientDisconnect():
            return CLIENT_DISCONNECTED  # nobody is there to read it
        case TooManyReads():
            return TOO_MANY_READS if isinstance(error, TooManyOwnReads) else BUSY
        case TooManyLoginAttempts():
            return _guessed(math.ceil(error.wait))
        case PageTimeout():
            log.warning("the dashboard gave up a page: the storage did not answer in time")
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
    """What is wrong with what was asked; None: nothing."""
    match error:
        case AmbiguousId():
            title = "Several jobs look like this"
            sentence = f"Several jobs may be meant by {error.job_id}. Take the whole id of one."
            return PageError(409, "ambiguous", title, sentence, candidates=error.candidates)
        case _ if isinstance(error, _MISSING):
            return PageError(404, "not_found", "Not here", str(error))
        case _ if isinstance(error, _CONFLICT):
            return PageError(409, "conflict", "Not any more", str(error))
        case _ if isinstance(error, _WRONG):
            return PageError(400, "invalid", "That does not fit", str(error))
        case _:
            return None


def error_response(visit: PageRequest, failure: PageError, *, as_json: bool) -> Response:
    """The failure as a response."""
    if as_json:
        response = _problem(visit, failure)
    else:
        response = visit.render_plain("failure.html", code=failure.code, failure=failure)
    if failure.retry_after is not None:
        response.headers["Retry-After"] = str(failure.retry_after)
    return response


def _problem(visit: PageRequest, failure: PageError) -> Response:
    """For programs, who are told apart what is no request at all and what does not fit."""
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
