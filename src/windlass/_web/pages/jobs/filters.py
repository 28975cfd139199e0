"""Which jobs an address asks for: every filter of the admin, by its own name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

import msgspec

from windlass._core.job.job import JobId
from windlass._core.job.state import Shown
from windlass._storage.protocol.lists.job_list import Cursor, JobFilter, ListOrder
from windlass._storage.protocol.lists.list_order import default_order
from windlass._web.request import PageRequest
from windlass.errors import InvalidArgument

__all__ = ["FOLDED", "INSTANTS", "STATES", "WORDS", "JobPageQuery", "parse_query"]

WORDS = {
    "queue": "Queue",
    "task": "Task",
    "tag": "Tag",
    "tenant": "Tenant",
    "principal": "Principal",
    "key": "Unique key",
    "correlation_id": "Correlation id",
    "error": "Error class",
    "frame": "Raised at",
    "worker": "Worker",
    "parent": "Enqueued by job",
    "flow": "Flow",
}
INSTANTS = {
    "created_from": "Enqueued from",
    "created_until": "Enqueued before",
    "finished_from": "Finished from",
    "finished_until": "Finished before",
}
STATES = tuple(Shown)
_WAITING = (Shown.SCHEDULED, Shown.READY, Shown.RETRYING)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_TRAIL = 30
"""Pages back that an address remembers …"""
FOLDED = "~"
"""The filters between them."""
_BY_TIME = re.compile(r"-?[0-9]{1,18}\.[0-9a-f]{1,100}")


class JobPageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The query, as a filter and as it was written."""

    wanted: JobFilter
    words: Mapping[str, str]
    """Every filter that was given, by its name in the address."""
    state: str = ""
    before: Cursor | None = None
    trail: tuple[Cursor, ...] = ()
    """The cursors of the pages before, from the first on; 0: the first page."""

    @property
    def order(self) -> ListOrder:
        """The order of the list, also where the address does not say it."""
        return self.wanted.order or default_order(self.wanted)

    @property
    def narrow(self) -> bool:
        """Whether anything but state and queue is asked: then the counts of queues do not tell."""
        return any(name not in {"state", "queue"} for name in self.words)

    @property
    def further(self) -> bool:
        """Whether the fields that are folded away say something."""
        return any(name not in {"state", "queue", "task", "text"} for name in self.words)

    def path(self) -> str:
        """Return the first page of these jobs, in their usual order."""
        return "/jobs" + (f"?{urlencode(self.words, errors='replace')}" if self.words else "")


def parse_query(visit: PageRequest, now: datetime) -> JobPageQuery:
    """Read the query; InvalidArgument says which word of it cannot be understood."""
    words = {
        name: visit.asked(name).strip()
        for name in ("state", *WORDS, *INSTANTS, "text")
        if visit.asked(name).strip()
    }
    instants = {name: _instant(name, words[name], now) for name in INSTANTS if name in words}
    named = {name: words[name] for name in WORDS if name in words and name != "parent"}
    state = words.get("state", "")
    wanted = JobFilter(
        shown=_shown(state),
        parent=JobId(words["parent"]) if "parent" in words else None,
        text=words.get("text"),
        order=_order(visit.asked("order").strip()),
        **named,  # type: ignore[arg-type]
        **instants,  # type: ignore[arg-type]
    )
    before = _cursor(visit.asked("before"))
    trail = tuple(
        cursor
        for part in visit.asked("trail").split(FOLDED)[-_TRAIL:]
        if (cursor := _cursor(part)) is not None
    )
    return JobPageQuery(wanted=wanted, words=words, state=state, before=before, trail=trail)


def _shown(state: str) -> list[Shown] | None:
    if not state:
        return None
    if state == "waiting":
        return list(_WAITING)
    try:
        return [Shown(state)]
    except ValueError:
        known = ", ".join(STATES)
        message = f"there is no state {state[:40]!r}; use one of: {known}"
        raise InvalidArgument(message) from None


def _order(word: str) -> ListOrder | None:
    if not word:
        return None
    try:
        return ListOrder(word)
    except ValueError:
        known = ", ".join(ListOrder)
        message = f"there is no order {word[:40]!r}; use one of: {known}"
        raise InvalidArgument(message) from None


def _cursor(text: str) -> Cursor | None:
    if _BY_TIME.fullmatch(text) is not None:
        return text
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None


def _instant(name: str, text: str, now: datetime) -> datetime:
    """Parse ``2030-12-24T08:00``, which is UTC unless it says otherwise, or how long
    ago: ``2h``.
    """
    number, unit = text[:-1], text[-1:]
    if unit in _UNITS and number.isascii() and number.isdigit() and len(number) <= 6:
        try:
            return now - timedelta(**{_UNITS[unit]: int(number)})
        except OverflowError:
            text = f"{text} (before the calendar begins)"
    try:
        found = datetime.fromisoformat(text)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):  # the latter: its offset leads beyond the calendar
        title = INSTANTS[name].lower()
        message = (
            f"{title!r} is {text[:60]!r}, which is not a time: write 2030-12-24T08:00 (UTC), or "
            f"how long ago: 15m, 2h, 7d"
        )
        raise InvalidArgument(message) from None
