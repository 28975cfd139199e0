"""Errors: failed jobs by what went wrong and where, and what to do about a whole group."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import msgspec
from starlette.responses import Response

from windlass._admin.jobs.bulk import BulkReport
from windlass._core.job.state import State
from windlass._core.stats.rollup import minute_of
from windlass._storage.protocol.actions import Discard, JobAction, Requeue
from windlass._storage.protocol.admin import ErrorGroup
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._web.render.confirmation import ActionNotice, ActionPage, Confirmation
from windlass._web.render.forms import page_path
from windlass._web.render.paging import page_rows
from windlass._web.request import PageRequest
from windlass._web.security.cost_limits import COUNT_TIMEOUT
from windlass.errors import InvalidArgument

if TYPE_CHECKING:
    from windlass.admin import Admin

__all__ = ["DISCARD", "REQUEUE", "errors", "read_live_state"]

_PAGE = "/errors"
RANGES: dict[str, tuple[timedelta | None, str]] = {
    "1h": (timedelta(hours=1), "1 h"),
    "24h": (timedelta(hours=24), "24 h"),
    "7d": (timedelta(days=7), "7 days"),
    "": (None, "All"),
}
_MOST = 5_000
"""Jobs of one action: a client waits for the answer."""


class ErrorScope(msgspec.Struct, frozen=True):
    """The filter of the page; the same words are in the query of every action."""

    queue: str
    task: str
    span: str

    @classmethod
    def of(cls, visit: PageRequest) -> ErrorScope:
        span = visit.asked("range")
        queue, task = visit.asked("queue").strip(), visit.asked("task").strip()
        return cls(queue, task, span if span in RANGES else "")

    def since(self, now: datetime) -> datetime | None:
        length, _ = RANGES[self.span]
        return None if length is None else now - length

    @property
    def query(self) -> dict[str, str]:
        said = {"queue": self.queue, "task": self.task, "range": self.span}
        return {name: value for name, value in said.items() if value}

    @property
    def narrow(self) -> bool:
        return bool(self.query)


class GroupRow(msgspec.Struct, frozen=True):
    """One group as the page shows it, and where its orders are."""

    group: ErrorGroup
    scope: ErrorScope

    @property
    def query(self) -> dict[str, str]:
        """Which group it is. ``frame`` is said even when it is empty: that is a group, too."""
        return {"error": self.group.kind, "place": f"at {self.group.frame}", **self.scope.query}


async def errors(visit: PageRequest) -> Response:
    """Return the page."""
    now = await visit.admin.storage.now()
    scope = ErrorScope.of(visit)
    found = await visit.admin.errors.groups(
        queue=scope.queue or None, task=scope.task or None, since=scope.since(now)
    )
    part = page_rows(visit, found.groups)
    return await visit.render(
        "errors.html",
        now=now,
        scope=scope,
        rows=[GroupRow(group, scope) for group in part.rows],
        part=part,
        total=sum(group.count for group in found.groups),
        complete=found.complete,
        ranges=[
            (words, visit.changed(range=name or None, page=None), name == scope.span)
            for name, (_, words) in RANGES.items()
        ],
    )


async def read_live_state(admin: Admin) -> object:
    """Return how many have failed, and what happened last: grouping them all would cost
    too much.
    """
    now = await admin.storage.now()
    lately = await admin.stats.rollups(minute_of(now), now + timedelta(minutes=1))
    failed = [(one.queue, one.failed) for one in await admin.queues.counts()]
    return failed, sum(rollup.counts.get("fail", 0) for rollup in lately)


# --- orders for a group ---------------------------------------------------------------------------


class GroupConfirmation(Confirmation, frozen=True, kw_only=True):
    """The confirmation for a group. It names its end time: jobs that fail later are not meant."""

    until: str


def _group(visit: PageRequest, now: datetime, until: datetime) -> JobFilter:
    scope = ErrorScope.of(visit)
    return JobFilter(
        states=[State.FAILED],
        error=visit.needed("error"),
        frame=visit.needed("place").removeprefix("at "),
        queue=scope.queue or None,
        task=scope.task or None,
        finished_from=scope.since(now),
        finished_until=until,
    )


def _back(visit: PageRequest) -> str:
    return page_path(_PAGE, **ErrorScope.of(visit).query)


def _those(visit: PageRequest, matching: JobFilter) -> str:
    scope = ErrorScope.of(visit)
    said = [
        f"All jobs that failed with {matching.error}",
        f"in {matching.frame}" if matching.frame else "",
        f"on queue {scope.queue}" if scope.queue else "",
        f"of task {scope.task}" if scope.task else "",
        f"in the last {RANGES[scope.span][1]}" if scope.span else "",
    ]
    return f"{' '.join(filter(None, said))}."


def _jobs(report: BulkReport) -> str:
    least = "" if report.exact else "at least "
    return f"{least}{report.matched:,} job{'' if report.matched == 1 else 's'}"


async def _until(visit: PageRequest, now: datetime) -> datetime:
    """Return the instant the question was asked at, as its form carries it."""
    if visit.method == "GET":
        return now + timedelta(microseconds=1)
    try:
        return datetime.fromisoformat((await visit.form()).get("until", "")).astimezone(UTC)
    except (ValueError, OverflowError):  # the latter: beyond the calendar
        message = "this form does not name its jobs; go back and try again"
        raise InvalidArgument(message) from None


def _order(
    verb: str, order: JobAction, *, sentence: str, told: str, danger: bool = False
) -> ActionPage:
    async def ask(visit: PageRequest) -> Confirmation:
        now = await visit.admin.storage.now()
        until = await _until(visit, now)
        matching = _group(visit, now, until)
        report = await visit.admin.jobs.bulk(order, matching, dry_run=True, within=COUNT_TIMEOUT)
        return GroupConfirmation(
            title=f"{verb} {_jobs(report)}?",
            sentence=f"{_those(visit, matching)} {sentence}",
            button=f"{verb} {_jobs(report)}",
            back=_back(visit),
            danger=danger,
            until=until.isoformat(),
        )

    async def act(visit: PageRequest) -> ActionNotice:
        now = await visit.admin.storage.now()
        matching = _group(visit, now, await _until(visit, now))
        report = await visit.orders.jobs.bulk(order, matching, most=_MOST)
        return ActionNotice(_told(report, told), _back(visit))

    return ActionPage(ask=ask, act=act, template="errors_order.html")


def _told(report: BulkReport, verb: str) -> str:
    jobs = f"{report.done:,} job{'' if report.done == 1 else 's'} {verb}."
    if report.conflicts:
        jobs += f" {report.conflicts:,} not changed: other jobs hold their unique keys."
    if report.skipped:
        jobs += f" {report.skipped:,} skipped because of their state or their flow."
    if report.matched >= _MOST:
        jobs += " There may be more: repeat it for the rest."
    return jobs


REQUEUE = _order(
    "Requeue",
    Requeue(),
    sentence="They run again with all attempts, ready at once.",
    told="requeued",
)
DISCARD = _order(
    "Discard",
    Discard("discarded with its group of errors"),
    sentence="Marks these failures as done. You can still requeue the jobs until their retention "
    "ends.",
    told="discarded",
    danger=True,
)
