"""Orders with fields: what is wrong is said beside them, and what was typed stays.

Durations, backoffs and rates are written as on the command line.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from urllib.parse import urlencode

import msgspec
from starlette.responses import Response

from windlass._observe.log import printable
from windlass._web.render.confirmation import ActionNotice, Confirmation
from windlass._web.request import PageRequest
from windlass.errors import InvalidArgument, StorageError, WindlassError

__all__ = [
    "FormPage",
    "FormValues",
    "format_instant",
    "page_path",
    "parse_count",
    "parse_instant",
    "redirect_with_notice",
]

log = logging.getLogger("windlass")

FormValues = Mapping[str, str]
"""The fields of a form by name."""


class FormPage(msgspec.Struct, frozen=True, kw_only=True):
    """The page of one order that has fields. GET shows them as things stand, POST changes them."""

    ask: Callable[[PageRequest], Awaitable[Confirmation]]
    filled: Callable[[PageRequest], Awaitable[FormValues]]
    act: Callable[[PageRequest, FormValues], Awaitable[ActionNotice]]
    template: str
    """It extends ``form.html`` and fills its block ``fields``."""

    async def __call__(self, visit: PageRequest) -> Response:
        question, fields = await self.ask(visit), await self.filled(visit)
        if visit.method == "GET":
            return await visit.render(self.template, question=question, fields=fields, wrong="")
        given = {**fields, **await visit.form()}
        try:
            done = await self.act(visit, given)
        except StorageError:
            raise  # whether it was done is not known: the calm page says so
        except WindlassError as error:
            return await visit.render(
                self.template, code=422, question=question, fields=given, wrong=str(error)
            )
        return redirect_with_notice(visit, done)


def redirect_with_notice(visit: PageRequest, done: ActionNotice) -> Response:
    """To the page that shows it."""
    who = visit.person.name if visit.person is not None else "nobody"
    log.info("dashboard: %s", printable(f"{who}: {done.notice}"))
    return visit.go(done.path, notice=done.notice)


def page_path(path: str, **query: str) -> str:
    """Return a page of ours without the mount, for `Confirmation.back` and `ActionNotice.path`."""
    return f"{path}?{urlencode(query, errors='replace')}" if query else path


def parse_count(text: str, what: str) -> int:
    """Read a whole number from a form."""
    try:
        return int(text.replace(",", ""))
    except ValueError:
        message = f"{what} must be a whole number such as 5, got {text!r}"
        raise InvalidArgument(message) from None


def parse_instant(text: str, what: str) -> datetime | None:
    """Read an instant from a form, in UTC unless it has an offset; None if it is empty."""
    if not text.strip():
        return None
    try:
        found = datetime.fromisoformat(text.strip())
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):  # the latter: its offset leads beyond the calendar
        message = f"{what} must be a time such as 2030-12-24 08:00, got {text!r}"
        raise InvalidArgument(message) from None


def format_instant(at: datetime | None) -> str:
    """Return an instant as `parse_instant` takes it."""
    if at is None:
        return ""
    return at.astimezone(UTC).replace(tzinfo=None).isoformat(sep=" ", timespec="auto")
