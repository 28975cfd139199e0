"""Schedules: what people see of them, and what they do to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, Literal, TypedDict, Unpack

import msgspec

from windlass._admin.schedule_reports import (
    AHEAD,
    ScheduleReport,
    ScheduleWord,
    reports_of,
    schedule_state_of,
)
from windlass._admin.session import AdminSession
from windlass._client.job_events import publish_action_events, publish_expired_events
from windlass._core.job.event import enqueued_event
from windlass._core.job.job import JobId, NewJob
from windlass._core.job.state import Verb
from windlass._core.schedule.rules import Rule
from windlass._core.schedule.schedule import Overlap, Schedule, next_slots
from windlass._schedules.declarations import check_schedule_name, plan_schedule, turn_limit
from windlass._schedules.edits import Schedules, ScheduleView, UnreadableSchedule, decoded
from windlass._storage.protocol.actions import AuditNote
from windlass._storage.protocol.jobs import CancelAnswer, Inserted
from windlass._storage.protocol.schedules import (
    DueSchedules,
    ScheduleAnswer,
    ScheduleRow,
    ScheduleStore,
    ScheduleWrite,
)
from windlass._storage.protocol.storage import Storage
from windlass._tasks.limits import LimitDefinitions, breaker_name
from windlass._tasks.task import Call
from windlass.errors import InvalidArgument, suggestion

__all__ = ["AuditedScheduleStore", "ScheduleAdmin", "ScheduleReport"]

_WATCHED = 500
"""Runs that had not ended when their schedules were written."""
_EDITABLE = ("rule", "missed", "most_missed", "overlap", "jitter", "starts", "ends")


class AuditedScheduleStore:
    """A `ScheduleStore` whose writes carry the record of one order."""

    def __init__(self, store: ScheduleStore, note: AuditNote) -> None:
        """``note`` is stored once, with the first write that takes effect."""
        self._store = store
        self._note = note

    async def rows(self, names: Sequence[str] | None = None) -> Sequence[ScheduleRow]:
        return await self._store.rows(names)

    async def page(self, after: str, limit: int) -> Sequence[ScheduleRow]:
        return await self._store.page(after, limit)

    async def due(self, limit: int) -> DueSchedules:
        return await self._store.due(limit)

    async def write(self, writes: Sequence[ScheduleWrite]) -> Sequence[ScheduleAnswer]:
        noted = [msgspec.structs.replace(write, audit=self._note) for write in writes]
        return await self._store.write(noted)

    async def declare(self, names: Sequence[str]) -> None:
        await self._store.declare(names)


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


def _active(row: ScheduleRow) -> tuple[bytes, tuple[JobId, ...]]:
    """What a row says, and its runs that had not ended when it was written."""
    known = decoded(row)
    runs = known.state.runs if isinstance(known, ScheduleView) else ()
    return row.body, tuple(run.job for run in runs if run.active and run.job is not None)


class ScheduleAdmin(AdminSession):
    """The part of ``app.admin`` that is about schedules."""

    _seen_runs: Mapping[str, tuple[bytes, tuple[JobId, ...]]] = MappingProxyType({})
    """By name, of the last `schedule_marks`."""

    async def schedules(
        self, *, removed: bool = False, names: Sequence[str] | None = None
    ) -> Sequence[ScheduleReport]:
        """Every schedule, by name; ``removed``: also those that were removed. ``names``: only
        these, removed or not. A report costs more than its row: where there are thousands, ask
        `schedule_states` first, and then for a page of them.
        """
        storage = await self._storage()
        found = [decoded(row) for row in await storage.schedules.rows(names)]
        chosen = [one for one in found if removed or names is not None or not _removed(one)]
        return await reports_of(storage, chosen, await storage.now())

    async def schedule_page(
        self, *, after: str = "", limit: int = 100, removed: bool = False
    ) -> tuple[Sequence[ScheduleReport], str | None]:
        """The first schedules behind a name, by name, and the name to go on after; None: these were
        the last.
        """
        storage = await self._storage()
        chosen: list[ScheduleView | UnreadableSchedule] = []
        more = True
        while more and len(chosen) <= limit:
            rows = await storage.schedules.page(after, limit + 1)
            found = map(decoded, rows)
            chosen += [one for one in found if removed or not _removed(one)]
            more, after = len(rows) > limit, rows[-1].name if rows else after
        chosen, rest = chosen[:limit], chosen[limit:]
        reports = await reports_of(storage, chosen, await storage.now())
        return reports, chosen[-1].row.name if rest and chosen else None

    async def schedule_states(self) -> Sequence[tuple[str, ScheduleWord]]:
        """Name and state of every schedule, removed ones too, by name: one read."""
        rows = await (await self._storage()).schedules.rows()
        return [(row.name, schedule_state_of(decoded(row))) for row in rows]

    async def schedule(self, name: str) -> ScheduleReport:
        """One of them; ScheduleUnknown."""
        storage = await self._storage()
        for row in await storage.schedules.rows([name]):
            if not _removed(found := decoded(row)):
                return (await reports_of(storage, [found], await storage.now()))[0]
        known = await self._book(storage).get(name)
        return (await reports_of(storage, [known], await storage.now()))[0]

    async def schedule_marks(self) -> Sequence[object]:
        """Something that compares unequal once any schedule has changed, has fired, or a run of
        it has ended: for whoever keeps looking, at a small part of the cost of `schedules`.
        """
        storage = await self._storage()
        rows = await storage.schedules.rows()
        # Who keeps looking meets the same rows again: only those that have changed are decoded.
        seen = self._seen_runs
        active = [
            known if (known := seen.get(row.name)) and known[0] == row.body else _active(row)
            for row in rows
        ]
        self._seen_runs = {row.name: one for row, one in zip(rows, active, strict=True)}
        runs = [job for _, jobs in active for job in jobs]
        ended = await storage.jobs.settled(runs[-_WATCHED:]) if runs else ()
        return (
            [(row.name, row.revision, row.next_at) for row in rows],
            [(job.id, job.state) for job in ended],
        )

    async def preview(self, rule: Rule, most: int = AHEAD) -> Sequence[datetime]:
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
        plan, specs = plan_schedule(name, outline, call, self._settings, breaker=breaker)
        await LimitDefinitions(storage.limits).keep(specs)
        await self._ordering(storage, "create", name, by=by).create(name, plan, by=by or self._who)
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
        book = self._ordering(storage, "change", name, ", ".join(given) or "call", by=by)
        known = await book.get(name)
        outline = msgspec.structs.replace(known.state.plan, **given)
        if call is not None:
            given["job"] = await self._another_job(storage, name, outline, call)
        elif outline.overlap == "queue":
            await LimitDefinitions(storage.limits).keep([turn_limit(name)])
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
        plan, specs = plan_schedule(name, outline, call, self._settings, breaker=breaker)
        await LimitDefinitions(storage.limits).keep(specs)
        return plan.job

    async def pause_schedule(self, name: str, *, by: str = "") -> ScheduleReport:
        """Fire nothing until it is resumed; over every restart."""
        await self._ordering(await self._storage(), "pause", name, by=by).pause(
            name, by=by or self._who
        )
        return await self.schedule(name)

    async def resume_schedule(self, name: str, *, by: str = "") -> ScheduleReport:
        """Fire again, from the next slot on."""
        await self._ordering(await self._storage(), "resume", name, by=by).resume(
            name, by=by or self._who
        )
        return await self.schedule(name)

    async def trigger_schedule(self, name: str, *, by: str = "") -> Inserted | None:
        """Run it now, beside its slots; the answer is the job, None for a chore of our own.

        While another job holds the unique key of its job, nothing is made and nothing is recorded:
        the answer then is that one, with ``created=False``.
        """
        storage = await self._storage()
        made = await self._ordering(storage, "trigger", name, by=by).trigger(
            name, by=by or self._who
        )
        if made is None:
            return None
        if not made.created:
            return Inserted(made.holder or made.job.id, created=False)
        if self._bus.heard:
            self._bus.publish(enqueued_event(made.job))
        await publish_expired_events(storage, self._bus, made.expired)
        return Inserted(made.job.id, created=True)

    async def remove_schedule(self, name: str, *, cancel_runs: bool = False, by: str = "") -> None:
        """Fire no more, also when code that declares it starts again; ``cancel_runs``: cancel what
        is waiting or running of it.
        """
        storage = await self._storage()
        known = await self._ordering(storage, "remove", name, by=by).remove(
            name, by=by or self._who
        )
        active = [run.job for run in known.state.runs if run.active and run.job is not None]
        if cancel_runs and active:
            answers = zip(active, await storage.jobs.cancel(active), strict=True)
            ended = [job for job, answer in answers if answer is CancelAnswer.CANCELLED]
            await publish_action_events(storage, self._bus, Verb.CANCEL, ended)

    async def reset_schedule(self, name: str, *, by: str = "") -> ScheduleReport:
        """Back to what the code says, also if it was removed."""
        await self._ordering(await self._storage(), "reset", name, by=by).reset(
            name, by=by or self._who
        )
        return await self.schedule(name)

    async def delete_schedule(self, name: str) -> None:
        """Forget a schedule altogether. Code that declares it brings it back: see `remove`."""
        await self._ordering(await self._storage(), "delete", name).delete(name)

    def _book(self, storage: Storage) -> Schedules:
        return Schedules(storage.schedules, storage.now, self._new_ids)

    def _ordering(
        self, storage: Storage, verb: str, name: str, detail: str = "", *, by: str = ""
    ) -> Schedules:
        """The same, for an order that is recorded with what it writes; ``by``: under this name."""
        actor = self.acting(by) if by else self
        note = actor._note(f"schedules.{verb}", f"schedule {name}", detail)  # noqa: SLF001
        return Schedules(AuditedScheduleStore(storage.schedules, note), storage.now, self._new_ids)


def _check_options(options: Mapping[str, Any]) -> None:
    for name in options:
        if name not in _EDITABLE:
            message = f"{name!r} is no option of a schedule.{suggestion(name, _EDITABLE)}"
            raise InvalidArgument(message)


def _removed(found: ScheduleView | UnreadableSchedule) -> bool:
    return isinstance(found, ScheduleView) and found.state.removed
