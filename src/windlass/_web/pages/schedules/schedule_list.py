"""Schedules: what fires when, how it went, and what people order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec
from starlette.responses import Response

from windlass._core.schedule.describe import describe_outcome
from windlass._core.schedule.schedule import ScheduleRun
from windlass._core.stats.rollup import minute_of
from windlass._web.render.confirmation import ActionNotice, ActionPage, Confirmation
from windlass._web.render.forms import page_path
from windlass._web.render.paging import page_rows
from windlass._web.request import PageRequest
from windlass.admin import ScheduleReport

if TYPE_CHECKING:
    from windlass.admin import Admin, AuditRecord

__all__ = [
    "FORGET",
    "PAUSE",
    "PAUSE_ALL",
    "REMOVE",
    "RESET",
    "RESUME",
    "RESUME_ALL",
    "RUN",
    "ScheduleListRow",
    "page_of",
    "read_live_state",
    "schedules",
]

_PAGE = "/schedules"
_COLOURS = {
    "succeeded": "green",
    "failed": "red",
    "running": "blue",
    "waiting": "blue",
    "cancelled": "grey",
    "discarded": "grey",
    "gone": "grey",
}
_ORDER = ("broken", "held", "active", "paused", "ended", "removed")


class RunCell(msgspec.Struct, frozen=True):
    """One run of the history strip."""

    run: ScheduleRun
    colour: str
    outcome: str
    words: str


class ScheduleListRow(msgspec.Struct, frozen=True):
    """One schedule as the pages show it."""

    report: ScheduleReport
    now: datetime

    @property
    def name(self) -> str:
        return self.report.name

    @property
    def task(self) -> str:
        plan = self.report.plan
        return "" if plan is None or plan.job is None else plan.job.task

    @property
    def last(self) -> ScheduleRun | None:
        return self.report.runs[0] if self.report.runs else None

    @property
    def late(self) -> bool:
        """Return whether its slot has come and no worker has fired it."""
        return self.report.next_at is not None and self.report.next_at < self.now

    @property
    def cells(self) -> Sequence[RunCell]:
        """Its runs, oldest first, as one reads a line."""
        return [_cell(run) for run in reversed(self.report.runs)]

    @property
    def problem(self) -> str:
        """As a sentence."""
        said = self.report.problem
        return f"{said[:1].upper()}{said[1:]}{'' if said.endswith('.') else '.'}" if said else ""

    @property
    def editable(self) -> bool:
        return self.report.plan is not None and self.report.state != "removed"


def _cell(run: ScheduleRun) -> RunCell:
    outcome = run.outcome or "waiting"
    by = f", by {run.by}" if run.by else ""
    # A chore makes no job: its outcome is its own text.
    of_chore = "red" if outcome.startswith("failed") else "green"
    if run.job is None and outcome.startswith("left out"):
        of_chore = "grey"
    colour = of_chore if run.job is None else _COLOURS.get(outcome, "grey")
    described = describe_outcome(outcome)
    return RunCell(run, colour, described, f"{described}{by}")


async def schedules(visit: PageRequest) -> Response:
    """Return the page."""
    now = await visit.admin.storage.now()
    removed = visit.asked("removed") == "yes"
    states = await visit.admin.schedules.states()
    gone = sum(state == "removed" for _, state in states)
    shown = sorted(
        (_ORDER.index(state), name) for name, state in states if (state == "removed") is removed
    )
    part = page_rows(visit, [name for _, name in shown])
    reports = {one.name: one for one in await visit.admin.schedules.list(names=part.rows)}
    all_paused = await visit.admin.schedules.paused()
    return await visit.render(
        "schedules.html",
        now=now,
        rows=[ScheduleListRow(reports[name], now) for name in part.rows if name in reports],
        part=part,
        removed=removed,
        all_paused=all_paused,
        paused_by=None if all_paused is None else await _who_paused_all(visit),
        tabs=[
            (f"Current {len(states) - gone:,}", visit.url(_PAGE), not removed),
            (f"Removed {gone:,}", visit.url(_PAGE, removed="yes"), removed),
        ],
        any_removed=bool(gone),
    )


async def _who_paused_all(visit: PageRequest) -> AuditRecord | None:
    orders = await visit.admin.audit.list(limit=20, subject="all schedules")
    return next((one for one in orders if one.note.what == "schedules.pause_all"), None)


async def read_live_state(admin: Admin) -> object:
    """Read the changed, fired and ended schedules; the state of a breaker follows, once a minute at
    least.
    """
    return await admin.schedules.fingerprint(), minute_of(await admin.storage.now())


def page_of(schedule: str) -> str:
    """Everything about one schedule."""
    return page_path("/schedules/one", schedule=schedule)


# --- orders ---------------------------------------------------------------------------------------


def _back(visit: PageRequest) -> str:
    return page_of(visit.needed("schedule")) if visit.asked("back") == "schedule" else _PAGE


def _order(
    title: str,
    button: str,
    *,
    sentence: str,
    act: Callable[[Admin, str], Awaitable[str]],
    danger: bool = False,
    gone: bool = False,
) -> ActionPage:
    """``act`` says what was done; ``gone``: afterwards the schedule has no page."""

    async def ask(visit: PageRequest) -> Confirmation:
        name = visit.needed("schedule")
        return Confirmation(
            title=title.format(name=name),
            sentence=sentence,
            button=button,
            back=_back(visit),
            danger=danger,
        )

    async def carry_out(visit: PageRequest) -> ActionNotice:
        notice = await act(visit.orders, visit.needed("schedule"))
        return ActionNotice(notice, _PAGE if gone else _back(visit))

    return ActionPage(ask=ask, act=carry_out)


async def _run(admin: Admin, name: str) -> str:
    job = await admin.schedules.trigger(name)
    if job is None:
        return f"Schedule {name} runs now."
    if not job.created:
        return f"Schedule {name} enqueued no job: job {job.id} holds its unique key."
    return f"Schedule {name} runs now: job {job.id}."


async def _pause(admin: Admin, name: str) -> str:
    await admin.schedules.pause(name)
    return f"Schedule {name} is paused."


async def _resume(admin: Admin, name: str) -> str:
    await admin.schedules.resume(name)
    return f"Schedule {name} is resumed from its next slot on."


async def _reset(admin: Admin, name: str) -> str:
    await admin.schedules.reset(name)
    return f"Schedule {name} is reset to the code."


async def _remove(admin: Admin, name: str) -> str:
    await admin.schedules.remove(name)
    return f"Schedule {name} is removed."


async def _forget(admin: Admin, name: str) -> str:
    await admin.schedules.delete(name)
    return f"Schedule {name} is deleted."


def _order_for_all(
    title: str, button: str, *, sentence: str, act: Callable[[Admin], Awaitable[str]]
) -> ActionPage:
    async def ask(_: PageRequest) -> Confirmation:
        return Confirmation(title=title, sentence=sentence, button=button, back=_PAGE)

    async def carry_out(visit: PageRequest) -> ActionNotice:
        return ActionNotice(await act(visit.orders), _PAGE)

    return ActionPage(ask=ask, act=carry_out)


async def _pause_all(admin: Admin) -> str:
    await admin.schedules.pause_all()
    return "All schedules are paused."


async def _resume_all(admin: Admin) -> str:
    await admin.schedules.resume_all()
    return "All schedules are resumed, except those that are paused by name."


PAUSE_ALL = _order_for_all(
    "Pause all schedules?",
    "Pause all schedules",
    sentence="No schedule fires on any worker until you resume them, also after restarts. Jobs "
    "that are already enqueued run. The maintenance of Windlass itself continues.",
    act=_pause_all,
)
RESUME_ALL = _order_for_all(
    "Resume all schedules?",
    "Resume all schedules",
    sentence="Schedules fire again. Slots that passed meanwhile are treated as missed slots, by "
    "the rule of each schedule. Schedules that are paused by name stay paused.",
    act=_resume_all,
)
RUN = _order(
    "Run {name} now?",
    "Run now",
    sentence="Starts one run, in addition to its slots.",
    act=_run,
)
PAUSE = _order(
    "Pause schedule {name}?",
    "Pause schedule",
    sentence="It does not fire until it is resumed, also after restarts. Running jobs finish. "
    "Slots during the pause are skipped.",
    act=_pause,
)
RESUME = _order(
    "Resume schedule {name}?",
    "Resume schedule",
    sentence="It fires again from its next slot on.",
    act=_resume,
)
RESET = _order(
    "Reset schedule {name} to the code?",
    "Reset to code",
    sentence="Undoes all changes made here: the schedule uses the values of the code again. A "
    "removed schedule is restored.",
    act=_reset,
)
REMOVE = _order(
    "Remove schedule {name}?",
    "Remove schedule",
    sentence="It does not fire any more, even if the code declares it. You can restore it from the "
    "list of removed schedules. Running jobs finish.",
    act=_remove,
    danger=True,
    gone=True,
)
FORGET = _order(
    "Delete schedule {name}?",
    "Delete schedule",
    sentence="Deletes the schedule and its history. If the code declares it, it comes back when a "
    "worker starts.",
    act=_forget,
    danger=True,
    gone=True,
)
