"""Schedules: what people see of them, and what they do to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict, Unpack

import msgspec

from windlass.admin.audited import Audited
from windlass.admin.desk import Desk
from windlass.core.breaker import BreakerState
from windlass.core.event import enqueued
from windlass.core.job import NewJob
from windlass.core.redact import redacted_json, redacted_text, secret_names, secret_values
from windlass.core.rules import Manual, Rule
from windlass.core.schedule import Overlap, Run, Schedule, next_slots, planned_slots
from windlass.core.state import State, Verb
from windlass.core.words import in_words
from windlass.declared import check_schedule_name, planned, turn_limit
from windlass.errors import InvalidArgument, suggestion
from windlass.limits import Definitions, breaker_name
from windlass.schedules import UNDECLARED, Broken, Known, Schedules, decoded
from windlass.storage.protocol import CancelAnswer, Inserted, Storage
from windlass.task import Call
from windlass.telling import tell_expired, tell_ordered

__all__ = ["ScheduleDesk", "ScheduleReport"]

_AHEAD = 5
_WATCHED = 500
"""Runs that had not ended when their schedules were written."""
_ACTIVE = (State.WAITING, State.RUNNING)
_EDITABLE = ("rule", "missed", "most_missed", "overlap", "jitter", "starts", "ends")


class ScheduleOptions(TypedDict, total=False):
    """What can be said of a schedule beside its rule, as in ``@app.schedule``."""

    missed: Literal["skip", "one", "all"]
    most_missed: int
    overlap: Overlap
    jitter: timedelta | float
    starts: datetime | None
    ends: datetime | None


class ScheduleChanges(ScheduleOptions, total=False):
    """What can be changed of one."""

    rule: Rule


class ScheduleReport(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as people see it."""

    name: str
    state: Literal["active", "paused", "ended", "removed", "held", "broken"]
    problem: str = ""
    """Why it is held or broken, or will be held, and what to do."""
    words: str = ""
    """Its rule in plain words."""
    plan: Schedule | None = None
    """None: it cannot be read."""
    next_at: datetime | None = None
    upcoming: Sequence[datetime] = ()
    """The next five slots, as things stand."""
    runs: Sequence[Run] = ()
    """The latest first; an outcome of ``waiting`` or ``running`` is not one yet."""
    failures: int = 0
    """Runs in a row that failed."""
    fired: int = 0
    left_out: int = 0
    breaker: BreakerState | None = None
    """Of its task, where it has one."""
    declared: bool = False
    """Whether it comes from code."""
    changed: Mapping[str, tuple[str, str]] = {}
    """Where a person's word holds: what the code says, and what holds."""
    changed_by: str = ""
    changed_at: datetime | None = None


class ScheduleDesk(Desk):
    """The part of ``app.admin`` that is about schedules."""

    async def schedules(self, *, removed: bool = False) -> Sequence[ScheduleReport]:
        """Every schedule, by name; ``removed``: also those that were removed."""
        storage = await self._storage()
        now = await storage.now()
        return [
            await self._report(storage, found, now)
            for found in await self._book(storage).all()
            if removed or isinstance(found, Broken) or not found.state.removed
        ]

    async def schedule(self, name: str) -> ScheduleReport:
        """One of them; ScheduleUnknown."""
        storage = await self._storage()
        for found in await self._book(storage).all():
            if found.row.name == name and (isinstance(found, Broken) or not found.state.removed):
                return await self._report(storage, found, await storage.now())
        known = await self._book(storage).get(name)
        return await self._report(storage, known, await storage.now())

    async def schedule_marks(self) -> Sequence[object]:
        """Something that compares unequal once any schedule has changed, has fired, or a run of
        it has ended: for whoever keeps looking, at a small part of the cost of `schedules`.
        """
        storage = await self._storage()
        rows = await storage.schedules.rows()
        runs = [
            run.job
            for row in rows
            if isinstance(known := decoded(row), Known)
            for run in known.state.runs
            if run.active and run.job is not None
        ]
        ended = await storage.jobs.settled(runs[-_WATCHED:]) if runs else ()
        return (
            [(row.name, row.revision, row.next_at) for row in rows],
            [(job.id, job.state) for job in ended],
        )

    async def preview(self, rule: Rule, most: int = _AHEAD) -> Sequence[datetime]:
        """When a rule would fire next: a look before it is used."""
        return next_slots(rule, await (await self._storage()).now(), most)

    async def create_schedule(
        self,
        name: str,
        rule: Rule,
        call: Call[Any],
        *,
        breaker: bool = True,
        by: str = "",
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleReport:
        """A schedule made at run time: ``options`` as for ``@app.schedule``; ScheduleExists."""
        check_schedule_name(name)
        given: dict[str, Any] = {**options}
        _check_options(given)
        storage = await self._storage()
        outline = Schedule(rule=rule, **given)
        plan, specs = planned(name, outline, call, self._settings, breaker=breaker)
        await Definitions(storage.limits).keep(specs)
        await self._ordering(storage, "create", name).create(name, plan, by=by or self._who)
        return await self.schedule(name)

    async def change_schedule(
        self,
        name: str,
        *,
        call: Call[Any] | None = None,
        by: str = "",
        **options: Unpack[ScheduleChanges],
    ) -> ScheduleReport:
        """Other numbers for a schedule, or another call. They hold, whatever the code says, over
        every restart and deploy, until `reset_schedule`.
        """
        given: dict[str, Any] = {**options}
        _check_options(given)
        if not given and call is None:
            message = f"say what to change of schedule {name!r}: call, {', '.join(_EDITABLE)}"
            raise InvalidArgument(message)
        storage = await self._storage()
        book = self._ordering(storage, "change", name, ", ".join(given) or "call")
        known = await book.get(name)
        outline = msgspec.structs.replace(known.state.plan, **given)
        if call is not None:
            given["job"] = await self._another_job(storage, name, outline, call)
        elif outline.overlap == "queue":
            await Definitions(storage.limits).keep([turn_limit(name)])
        await book.change(name, by=by or self._who, **given)
        return await self.schedule(name)

    async def _another_job(
        self, storage: Storage, name: str, outline: Schedule, call: Call[Any]
    ) -> NewJob | None:
        old = outline.job
        if old is None:
            message = f"{name} is a chore of Windlass itself: it makes no calls"
            raise InvalidArgument(message)
        breaker = any(use.name == breaker_name(old.task) for use in old.limits)
        plan, specs = planned(name, outline, call, self._settings, breaker=breaker)
        await Definitions(storage.limits).keep(specs)
        return plan.job

    async def pause_schedule(self, name: str, *, by: str = "") -> ScheduleReport:
        """Fire nothing until it is resumed; over every restart."""
        await self._ordering(await self._storage(), "pause", name).pause(name, by=by or self._who)
        return await self.schedule(name)

    async def resume_schedule(self, name: str, *, by: str = "") -> ScheduleReport:
        """Fire again, from the next slot on."""
        await self._ordering(await self._storage(), "resume", name).resume(name, by=by or self._who)
        return await self.schedule(name)

    async def trigger_schedule(self, name: str, *, by: str = "") -> Inserted | None:
        """Run it now, beside its slots; the answer is the job, None for a chore of our own.

        While another job holds the unique key of its job, nothing is made and nothing is recorded:
        the answer then is that one, with ``created=False``.
        """
        storage = await self._storage()
        made = await self._ordering(storage, "trigger", name).trigger(name, by=by or self._who)
        if made is None:
            return None
        if not made.created:
            return Inserted(made.holder or made.job.id, created=False)
        if self._bus.heard:
            self._bus.publish(enqueued(made.job))
        await tell_expired(storage, self._bus, made.expired)
        return Inserted(made.job.id, created=True)

    async def remove_schedule(self, name: str, *, cancel_runs: bool = False, by: str = "") -> None:
        """Fire no more, also when code that declares it starts again; ``cancel_runs``: cancel what
        is waiting or running of it.
        """
        storage = await self._storage()
        known = await self._ordering(storage, "remove", name).remove(name, by=by or self._who)
        active = [run.job for run in known.state.runs if run.active and run.job is not None]
        if cancel_runs and active:
            answers = zip(active, await storage.jobs.cancel(active), strict=True)
            ended = [job for job, answer in answers if answer is CancelAnswer.CANCELLED]
            await tell_ordered(storage, self._bus, Verb.CANCEL, ended)

    async def reset_schedule(self, name: str, *, by: str = "") -> ScheduleReport:
        """Back to what the code says, also if it was removed."""
        await self._ordering(await self._storage(), "reset", name).reset(name, by=by or self._who)
        return await self.schedule(name)

    async def delete_schedule(self, name: str) -> None:
        """Forget a schedule altogether. Code that declares it brings it back: see `remove`."""
        await self._ordering(await self._storage(), "delete", name).delete(name)

    def _book(self, storage: Storage) -> Schedules:
        return Schedules(storage.schedules, storage.now, self._new_ids)

    def _ordering(self, storage: Storage, verb: str, name: str, detail: str = "") -> Schedules:
        """The same, for an order that is recorded with what it writes."""
        note = self._note(f"schedules.{verb}", f"schedule {name}", detail)
        return Schedules(Audited(storage.schedules, note), storage.now, self._new_ids)

    async def _report(
        self, storage: Storage, found: Known | Broken, now: datetime
    ) -> ScheduleReport:
        if isinstance(found, Broken):
            fix = "Delete it, or declare it anew"
            problem = f"it cannot be read: {found.problem}. {fix}"
            return ScheduleReport(name=found.row.name, state="broken", problem=problem)
        runs = await self._live(storage, found.state.runs)
        ended = {run.job: run.outcome for run in runs if run.job and run.outcome not in _ACTIVE}
        state, plan = found.state.settled(ended), found.state.plan
        return ScheduleReport(
            name=found.row.name,
            state=_word(found),
            # Told before its slot comes: that may be in a year.
            problem=state.problem or (UNDECLARED if found.undeclared(now) else ""),
            words=in_words(plan.rule),
            plan=_hidden(plan),
            next_at=found.row.next_at,
            upcoming=_ahead(found),
            runs=runs,
            failures=state.failures,
            fired=state.fired,
            left_out=state.left_out,
            breaker=await _breaker(storage, plan),
            declared=state.written is not None,
            changed=_changed(plan, state.written),
            changed_by=state.changed_by,
            changed_at=state.changed_at,
        )

    async def _live(self, storage: Storage, runs: Sequence[Run]) -> list[Run]:
        """The latest first, with what the jobs themselves say where they are still stored."""
        ids = [run.job for run in runs if run.job is not None]
        stored = dict(zip(ids, await storage.admin.get(ids), strict=True)) if ids else {}
        told: list[Run] = []
        for run in reversed(runs):
            job = None if run.job is None else stored.get(run.job)
            if job is not None:
                run = msgspec.structs.replace(  # noqa: PLW2901 -- the same run, as it is now
                    run, outcome=job.state.value, ended_at=job.finished_at
                )
            elif run.active:
                run = msgspec.structs.replace(run, outcome="gone")  # noqa: PLW2901
            told.append(run)
        return told


def _check_options(options: Mapping[str, Any]) -> None:
    for name in options:
        if name not in _EDITABLE:
            message = f"{name!r} is no option of a schedule.{suggestion(name, _EDITABLE)}"
            raise InvalidArgument(message)


def _word(
    found: Known,
) -> Literal["active", "paused", "ended", "removed", "held", "broken"]:
    state = found.state
    if state.removed:
        return "removed"
    if state.paused:
        return "paused"
    if state.held is not None:
        return "held"
    if state.problem:
        return "broken"
    # Made with dates that are over, it has never had a slot.
    slotless = found.row.next_at is None and not isinstance(state.plan.rule, Manual)
    return "ended" if state.ended or slotless else "active"


def _ahead(found: Known) -> list[datetime]:
    """Also from a slot that is overdue: those behind it follow it, not the present."""
    next_at = found.row.next_at
    if next_at is None or found.state.plan.follows:
        return [] if next_at is None else [next_at]
    rest = planned_slots(found.state.plan, next_at, _AHEAD)
    return [next_at, *[slot for slot in rest if slot > next_at]][:_AHEAD]


def _changed(plan: Schedule, written: Schedule | None) -> Mapping[str, tuple[str, str]]:
    if written is None:
        return {}
    code, now = _shown(written), _shown(plan)
    secrets = [*_secrets(plan), *_secrets(written)]
    return {
        name: (
            redacted_text(code.get(name, ""), secrets),
            redacted_text(now.get(name, ""), secrets),
        )
        for name in {**code, **now}
        if code.get(name) != now.get(name)
    }


def _secrets(plan: Schedule) -> Sequence[str]:
    job = plan.job
    return () if job is None else secret_values(job.payload, secret_names(job.tags))


def _hidden(plan: Schedule) -> Schedule:
    """What it gives to its jobs, without secrets."""
    job = plan.job
    if job is None:
        return plan
    payload = redacted_json(job.payload, secret_names(job.tags), _secrets(plan))
    return msgspec.structs.replace(plan, job=msgspec.structs.replace(job, payload=payload))


def _shown(plan: Schedule) -> dict[str, str]:
    """Everything that can differ, in words: of the job each field, its payload as arguments."""
    told = {
        name: in_words(plan.rule) if name == "rule" else str(getattr(plan, name))
        for name in Schedule.__struct_fields__
        if name != "job"
    }
    if plan.job is not None:
        told |= {name: str(getattr(plan.job, name)) for name in NewJob.__struct_fields__}
        told["arguments"] = plan.job.payload.decode(errors="replace")
        del told["payload"]
    return told


async def _breaker(storage: Storage, plan: Schedule) -> BreakerState | None:
    if plan.job is None:
        return None
    name = breaker_name(plan.job.task)
    if not any(use.name == name for use in plan.job.limits):
        return None
    states = await storage.limits.states(name)
    return next((state.breaker for state in states if state.breaker is not None), BreakerState())
