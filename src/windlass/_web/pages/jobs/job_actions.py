"""Orders for jobs: one, those that were ticked, or all that match. Always asked first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from starlette.responses import Response

from windlass._admin.jobs.actions import NEEDS, edit_of
from windlass._admin.jobs.bulk import BulkReport, filter_in_words
from windlass._core.job.ids import is_full_id, short_id
from windlass._storage.protocol.actions import (
    Cancel,
    Delete,
    Discard,
    Edit,
    JobAction,
    Requeue,
    RunNow,
)
from windlass._storage.protocol.jobs import CancelAnswer
from windlass._storage.protocol.lists.job_list import JobFilter, ListOrder
from windlass._system.seams import new_job_id
from windlass._web.pages.jobs.filters import JobPageQuery, parse_query
from windlass._web.render.confirmation import ActionNotice, ActionPage, Confirmation
from windlass._web.request import PageRequest
from windlass._web.security.cost_limits import COUNT_TIMEOUT
from windlass.errors import InvalidArgument, JobNotFound, KeyConflict, WrongState

__all__ = ["CANCEL", "COPY", "DELETE", "DISCARD", "EDIT", "REQUEUE", "RUN_NOW", "JobActionPage"]

MAX_JOBS = 10_000
"""Jobs of one action: a request must end while its client still waits."""
_TICKED = 200


class JobConfirmation(Confirmation, frozen=True, kw_only=True):
    """The question, and the jobs that it is about."""

    facts: Sequence[str] = ()
    upto: int | None = None
    """All that match, as far as they are stored now: newer ones were not counted."""
    edits: bool = False
    children: bool = False
    """Ask whether the jobs below the job are meant, too."""


class JobActionPage(msgspec.Struct, frozen=True, kw_only=True):
    """One verb, for one job or many."""

    verb: str
    """Requeue"""
    told: str
    """requeued"""
    words: str
    """The effect in words, for one job or many."""
    sample: JobAction
    """The action without the values of a form."""
    one: Callable[[PageRequest, JobAction, str], Awaitable[str]]
    """Does it for one job; "" or what came of it instead."""
    read: Callable[[PageRequest], Awaitable[JobAction]] | None = None
    """Reads the form's values; None: the form has none."""
    danger: bool = False

    @property
    def kind(self) -> type[Any]:
        return type(self.sample)

    def of(self, what: str) -> str:
        """Requeue 3 jobs, run 3 jobs now."""
        verb, _, rest = self.verb.partition(" ")
        return f"{verb} {what} {rest}".rstrip()

    async def __call__(self, visit: PageRequest) -> Response:
        if not _ids(visit) and not _all(visit):
            words = "Select jobs first, or choose all that match."
            return visit.go(await _back(visit), notice=words, bad=True)
        action = ActionPage(ask=self._ask, act=self._act, template="jobs_confirm.html")
        return await action(visit)

    # --- the question ---

    async def _ask(self, visit: PageRequest) -> Confirmation:
        back = await _back(visit)
        if visit.method != "GET":  # only the way back is needed
            return Confirmation(title="", sentence="", button="", back=back)
        if _all(visit):
            return await self._ask_all(visit, back)
        ids = _ids(visit)
        what = f"{len(ids):,} jobs" if len(ids) > 1 else await _called(visit, ids[0])
        return JobConfirmation(
            title=f"{self.of(what)}?",
            sentence=self.words,
            facts=[_only(self.kind, len(ids))],
            button=self.of("job" if len(ids) == 1 else f"{len(ids):,} jobs"),
            back=back,
            danger=self.danger,
            edits=self.kind is Edit,
            children=self.kind is Cancel and len(ids) == 1,
        )

    async def _ask_all(self, visit: PageRequest, back: str) -> Confirmation:
        asked = parse_query(visit, await visit.admin.storage.now())
        # Of all jobs: what is stored from now on is not meant.
        newest = await visit.admin.jobs.find(JobFilter(order=ListOrder.NEWEST), limit=1)
        report = BulkReport(matched=0, dry_run=True)
        if asked.words:
            report = await visit.admin.jobs.bulk(
                self.sample, asked.wanted, dry_run=True, most=MAX_JOBS, within=COUNT_TIMEOUT
            )
        number = f"{report.matched:,}{'' if report.exact else ' or more'}"
        facts = [f"Jobs with {filter_in_words(asked.wanted)}.", _only(self.kind, 2)]
        if not report.exact:
            facts.append(f"At most {MAX_JOBS:,} jobs, the newest. Repeat it for the rest.")
        if not asked.words:
            facts = ["Choose a state, a queue or another filter first."]
        return JobConfirmation(
            title=f"{self.of(f'all {number} matching jobs')}?",
            sentence=self.words,
            facts=facts,
            button=self.of(f"{number} jobs"),
            back=back,
            danger=self.danger,
            upto=newest[0].seq + 1 if newest else None,
            edits=self.kind is Edit,
        )

    # --- the answer ---

    async def _act(self, visit: PageRequest) -> ActionNotice:
        order = self.sample if self.read is None else await self.read(visit)
        if _all(visit):
            return await self._act_all(visit, order)
        ids, done, instead, wrong = _ids(visit), 0, "", 0
        for job in ids:
            try:
                instead = await self.one(visit, order, job)
                done += 1
            except (JobNotFound, WrongState, KeyConflict):
                if len(ids) == 1:
                    raise
                wrong += 1
        if len(ids) == 1:
            notice = instead or f"The job is {self.told}."
        else:
            notice = f"{_jobs(done)} {self.told}."
        if wrong:
            needs = NEEDS[self.kind]
            notice += f" {_jobs(wrong)} not changed: not {needs}, or another job holds the key."
        return ActionNotice(notice, await _back(visit, gone=self.kind is Delete))

    async def _act_all(self, visit: PageRequest, order: JobAction) -> ActionNotice:
        asked = parse_query(visit, await visit.admin.storage.now())
        upto = (await visit.form()).get("upto", "")
        if not upto.isascii() or not upto.isdigit() or len(upto) > 18:
            message = "this form does not name its jobs; go back and choose again"
            raise InvalidArgument(message)
        wanted = msgspec.structs.replace(asked.wanted, before=int(upto), order=None)
        report = await visit.orders.jobs.bulk(order, wanted, most=MAX_JOBS)
        notice = f"{_jobs(report.done)} {self.told}."
        if report.requested:
            notice += f" {_jobs(report.requested)} running and asked to stop."
        if report.conflicts:
            notice += f" {_jobs(report.conflicts)} not changed: other jobs hold their unique keys."
        if report.matched >= MAX_JOBS:
            notice += " There may be more: repeat it for the rest."
        return ActionNotice(notice, asked.path())


def _jobs(number: int) -> str:
    return "1 job" if number == 1 else f"{number:,} jobs"


def _only(kind: type[Any], many: int) -> str:
    """Say which of the jobs it applies to."""
    if kind is Delete:
        many_words = "Running jobs are asked to stop instead."
        return many_words if many > 1 else "This cannot be undone."
    if many == 1:
        return f"For a job that is {NEEDS[kind]}."
    return f"Applies to jobs that are {NEEDS[kind]}. Others are not changed."


# --- which jobs -----------------------------------------------------------------------------------


def _all(visit: PageRequest) -> bool:
    return visit.asked("scope") == "all"


def _ids(visit: PageRequest) -> list[str]:
    """Return the selected jobs, each once. A shortened id may name one."""
    ids = list(dict.fromkeys(visit.request.query_params.getlist("job")))[:_TICKED]
    if len(ids) > 1 and not all(map(is_full_id, ids)):
        message = "an action on several jobs needs whole ids or a filter: select the jobs again"
        raise InvalidArgument(message)
    return ids


async def _called(visit: PageRequest, job_id: str) -> str:
    job = await visit.admin.jobs.get(job_id)
    return f"{job.task} {short_id(job.id)}"


async def _back(visit: PageRequest, *, gone: bool = False) -> str:
    """Return the page of the one job, where it came from there, or the list with its filters."""
    ids = _ids(visit)
    if visit.asked("from") == "job" and len(ids) == 1 and not gone:
        return f"/jobs/{(await visit.admin.jobs.get(ids[0])).id}"
    if visit.asked("from") == "job":
        return "/jobs"
    asked: JobPageQuery = parse_query(visit, await visit.admin.storage.now())
    return asked.path()


# --- the verbs ------------------------------------------------------------------------------------


async def _requeue(visit: PageRequest, _: JobAction, job: str) -> str:
    await visit.orders.jobs.requeue(job)
    return "The job is requeued."


async def _discard(visit: PageRequest, _: JobAction, job: str) -> str:
    await visit.orders.jobs.discard(job)
    return ""


async def _cancel(visit: PageRequest, order: JobAction, job: str) -> str:
    children = "children" in await visit.form()
    match await visit.orders.jobs.cancel(job, children=children):
        case CancelAnswer.REQUESTED:
            return "The job is running. Its worker was asked to stop it."
        case CancelAnswer.UNKNOWN:
            raise JobNotFound(job)
        case CancelAnswer.TOO_LATE:
            raise WrongState(
                job, (await visit.admin.jobs.get(job)).state, "cancel", NEEDS[type(order)]
            )
        case _:
            return ""


async def _run_now(visit: PageRequest, order: JobAction, job: str) -> str:
    if not await visit.orders.jobs.run_now(job):
        raise WrongState(
            job, (await visit.admin.jobs.get(job)).state, "run now", NEEDS[type(order)]
        )
    return "The job is due now."


async def _delete(visit: PageRequest, _: JobAction, job: str) -> str:
    if await visit.orders.jobs.delete(job):
        return ""
    return "The job is running and was asked to stop. Delete it when it has ended."


async def _edit(visit: PageRequest, order: JobAction, job: str) -> str:
    if isinstance(order, Edit):
        await visit.orders.jobs.edit(job, due=order.due, priority=order.priority, queue=order.queue)
    return ""


async def _edit_of(visit: PageRequest) -> Edit:
    form = {name: value.strip() for name, value in (await visit.form()).items()}
    priority, due = form.get("priority", ""), form.get("due", "")
    if priority and (len(priority) > 9 or not priority.removeprefix("-").isdecimal()):
        message = f"a priority must be a whole number, got {priority[:20]!r}"
        raise InvalidArgument(message)
    return edit_of(
        due=_due(due) if due else None,
        priority=int(priority) if priority else None,
        queue=form.get("queue") or None,
    )


def _due(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):  # the latter: its offset leads beyond the calendar
        message = f"{text[:60]!r} is not a time: write 2030-12-24T08:00, in UTC"
        raise InvalidArgument(message) from None


REQUEUE = JobActionPage(
    verb="Requeue",
    told="requeued",
    words="Runs again with all attempts, ready at once.",
    sample=Requeue(),
    one=_requeue,
)
DISCARD = JobActionPage(
    verb="Discard",
    told="discarded",
    words="Marks a failure as done. You can still requeue the job until its retention ends.",
    sample=Discard("discarded by an operator"),
    one=_discard,
)
CANCEL = JobActionPage(
    verb="Cancel",
    told="cancelled",
    words="Waiting jobs will not run. Running jobs are asked to stop, which may take a moment.",
    sample=Cancel(),
    one=_cancel,
    danger=True,
)
RUN_NOW = JobActionPage(
    verb="Run now",
    told="due now",
    words="Makes scheduled and retrying jobs due now. Limits, pauses and breakers still apply.",
    sample=RunNow(),
    one=_run_now,
)
DELETE = JobActionPage(
    verb="Delete",
    told="deleted",
    words="Deletes arguments, result, errors, history and log. Only the audit entry stays.",
    sample=Delete(),
    one=_delete,
    danger=True,
)
EDIT = JobActionPage(
    verb="Edit",
    told="changed",
    words="Fields that you leave empty are not changed.",
    sample=Edit(),
    read=_edit_of,
    one=_edit,
)


# --- a copy: what only one job can be asked for ---------------------------------------------------


async def _ask_copy(visit: PageRequest) -> Confirmation:
    job = visit.needed("job")
    return Confirmation(
        title=f"Run {await _called(visit, job)} again?",
        sentence="Enqueues a new job with the same arguments. This job is not changed.",
        button="Run again",
        back=f"/jobs/{job}",
        key=new_job_id(),
    )


async def _copy(visit: PageRequest) -> ActionNotice:
    key = (await visit.form()).get("key") or None
    new = await visit.orders.jobs.requeue(visit.needed("job"), as_new=True, key=key)
    return ActionNotice("Enqueued this new job.", f"/jobs/{new.id}")


COPY = ActionPage(ask=_ask_copy, act=_copy)
