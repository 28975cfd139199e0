"""Schedules: their reports, and operators' changes to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
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
    """A `ScheduleStore` whose writes carry the audit record of one action."""

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

    async def pause(self, *, audit: AuditNote | None = None) -> None:
        await self._store.pause(audit=audit or self._note)

    async def resume(self, *, audit: AuditNote | None = None) -> None:
        await self._store.resume(audit=audit or self._note)

    async def paused(self) -> datetime | None:
        return await self._store.paused()


class ScheduleOptions(TypedDict, total=False):
    """Options of a schedule beside its rule, as for ``@app.schedule``."""

    missed: Literal["skip", "one", "all"]
    most_missed: int
    overlap: Overlap
    jitter: timedelta | float
    starts: datetime | None
    ends: datetime | None


class ScheduleChanges(ScheduleOptions, total=False):
    """Options of a schedule that can be changed."""

    rule: Rule


def _active(row: ScheduleRow) -> tuple[bytes, tuple[JobId, ...]]:
    """Return a row's body, and its runs that had not ended when it was written."""
    known = decoded(row)
    runs = known.state.runs if isinstance(known, ScheduleView) else ()
    return row.body, tuple(run.job for run in runs if run.active and run.job is not None)


class ScheduleAdmin:
    """``app.admin.schedules``: list, create, change, pause and trigger schedules."""

    def __init__(self, session: AdminSession) -> None:
        self._session = session
        self._seen_runs: Mapping[str, tuple[bytes, tuple[JobId, ...]]] = {}
        """By name, of the last `fingerprint`."""

    async def list(
        self, *, removed: bool = False, names: Sequence[str] | None = None
    ) -> Sequence[ScheduleReport]:
        """List schedules, by name. ``removed``: removed ones, too. ``names``: only these, removed
        or not.

        A report costs more than its row. Where there are thousands, ask for `states` first, and
        then for some of them by name.
        """
        storage = await self._session.storage()
        found = [decoded(row) for row in await storage.schedules.rows(names)]
        chosen = [one for one in found if removed or names is not None or not _removed(one)]
        return await reports_of(storage, chosen, await storage.now())

    async def page(
        self, *, after: str = "", limit: int = 100, removed: bool = False
    ) -> tuple[Sequence[ScheduleReport], str | None]:
        """List the first schedules behind a name, by name. The second value is the name to
        continue after; None: these were the last.
        """
        storage = await self._session.storage()
        chosen: Sequence[ScheduleView | UnreadableSchedule] = ()
        more = True
        while more and len(chosen) <= limit:
            rows = await storage.schedules.page(after, limit + 1)
            found = map(decoded, rows)
            chosen = (*chosen, *(one for one in found if removed or not _removed(one)))
            more, after = len(rows) > limit, rows[-1].name if rows else after
        chosen, rest = chosen[:limit], chosen[limit:]
        reports = await reports_of(storage, chosen, await storage.now())
        return reports, chosen[-1].row.name if rest and chosen else None

    async def states(self) -> Sequence[tuple[str, ScheduleWord]]:
        """List name and state of every schedule, removed ones included, in one read."""
        rows = await (await self._session.storage()).schedules.rows()
        return [(row.name, schedule_state_of(decoded(row))) for row in rows]

    async def get(self, name: str) -> ScheduleReport:
        """Return one schedule; ScheduleUnknown."""
        storage = await self._session.storage()
        for row in await storage.schedules.rows([name]):
            if not _removed(found := decoded(row)):
                return (await reports_of(storage, [found], await storage.now()))[0]
        known = await self._edits(storage, storage.schedules).get(name)
        return (await reports_of(storage, [known], await storage.now()))[0]

    async def fingerprint(self) -> Sequence[object]:
        """Return a value that compares unequal once a schedule has changed or fired, or one of its
        runs has ended. It costs a small part of `list`, for a page that asks again and again.
        """
        storage = await self._session.storage()
        rows = await storage.schedules.rows()
        # Most rows are the same as at the last call: only those that have changed are decoded.
        seen = self._seen_runs
        active = [
            known if (known := seen.get(row.name)) and known[0] == row.body else _active(row)
            for row in rows
        ]
        self._seen_runs = {row.name: one for row, one in zip(rows, active, strict=True)}
        runs = [job for _, jobs in active for job in jobs]
        ended = await storage.jobs.settled(runs[-_WATCHED:]) if runs else ()
        return (
            await storage.schedules.paused(),
            [(row.name, row.revision, row.next_at) for row in rows],
            [(job.id, job.state) for job in ended],
        )

    async def preview(self, rule: Rule, most: int = AHEAD) -> Sequence[datetime]:
        """Compute when a rule would fire next. Nothing is stored."""
        return next_slots(rule, await (await self._session.storage()).now(), most)

    async def create(
        self,
        name: str,
        rule: Rule,
        call: Call[Any],
        *,
        breaker: bool = True,
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleReport:
        """Create a schedule at run time. ``options``: as for ``@app.schedule``; ScheduleExists."""
        check_schedule_name(name)
        given: dict[str, Any] = {**options}
        _check_options(given)
        storage, settings = await self._session.storage(), self._session.settings
        outline = Schedule(rule=rule, **given)
        plan, specs = plan_schedule(name, outline, call, settings, breaker=breaker)
        await LimitDefinitions(storage.limits).keep(specs)
        await self._recorded(storage, "create", name).create(name, plan, by=self._session.who)
        return await self.get(name)

    async def change(
        self, name: str, *, call: Call[Any] | None = None, **options: Unpack[ScheduleChanges]
    ) -> ScheduleReport:
        """Change a schedule's options or its call. The change overrides the code over every
        restart and deploy, until `reset`.
        """
        given: dict[str, Any] = {**options}
        _check_options(given)
        if not given and call is None:
            options_of = ", ".join(_EDITABLE)
            message = f"nothing to change on schedule {name!r}: give call, {options_of}"
            raise InvalidArgument(message)
        storage = await self._session.storage()
        edits = self._recorded(storage, "change", name, ", ".join(given) or "call")
        known = await edits.get(name)
        outline = msgspec.structs.replace(known.state.plan, **given)
        if call is not None:
            given["job"] = await self._another_job(storage, name, outline, call)
        elif outline.overlap == "queue":
            await LimitDefinitions(storage.limits).keep([turn_limit(name)])
        await edits.change(name, by=self._session.who, **given)
        return await self.get(name)

    async def pause(self, name: str) -> ScheduleReport:
        """Pause a schedule until it is resumed. A restart keeps it paused."""
        edits = self._recorded(await self._session.storage(), "pause", name)
        await edits.pause(name, by=self._session.who)
        return await self.get(name)

    async def resume(self, name: str) -> ScheduleReport:
        """Let a paused schedule fire again, from the next slot on."""
        edits = self._recorded(await self._session.storage(), "resume", name)
        await edits.resume(name, by=self._session.who)
        return await self.get(name)

    async def pause_all(self) -> None:
        """Pause every schedule until `resume_all`, on all workers. A restart keeps them paused.

        The maintenance of Windlass itself continues, and `trigger` still runs a schedule.
        """
        note = self._session.note("schedules.pause_all", "all schedules")
        await (await self._session.storage()).schedules.pause(audit=note)

    async def resume_all(self) -> None:
        """Let schedules fire again, except those that are paused by name.

        Slots that passed meanwhile are missed slots: each schedule treats them by its ``missed``
        option.
        """
        note = self._session.note("schedules.resume_all", "all schedules")
        await (await self._session.storage()).schedules.resume(audit=note)

    async def paused(self) -> datetime | None:
        """Return since when all schedules are paused; None if they are not."""
        return await (await self._session.storage()).schedules.paused()

    async def trigger(self, name: str) -> Inserted | None:
        """Run a schedule now, beside its slots. The answer names the job; None for a chore of
        Windlass itself, which has no job.

        While another job holds the unique key, no job is made and no action is recorded. The
        answer then names that job, with ``created=False``.
        """
        storage, bus = await self._session.storage(), self._session.bus
        edits = self._recorded(storage, "trigger", name)
        made = await edits.trigger(name, by=self._session.who)
        if made is None:
            return None
        if not made.created:
            return Inserted(made.holder or made.job.id, created=False)
        if bus.heard:
            bus.publish(enqueued_event(made.job))
        await publish_expired_events(storage, bus, made.expired)
        return Inserted(made.job.id, created=True)

    async def remove(self, name: str, *, cancel_runs: bool = False) -> None:
        """Remove a schedule. It stays removed when code that declares it starts again.

        ``cancel_runs``: cancel its waiting and running jobs.
        """
        storage = await self._session.storage()
        edits = self._recorded(storage, "remove", name)
        known = await edits.remove(name, by=self._session.who)
        active = [run.job for run in known.state.runs if run.active and run.job is not None]
        if cancel_runs and active:
            answers = zip(active, await storage.jobs.cancel(active), strict=True)
            ended = [job for job, answer in answers if answer is CancelAnswer.CANCELLED]
            await publish_action_events(storage, self._session.bus, Verb.CANCEL, ended)

    async def reset(self, name: str) -> ScheduleReport:
        """Set a schedule back to the code's values. A removed one fires again."""
        edits = self._recorded(await self._session.storage(), "reset", name)
        await edits.reset(name, by=self._session.who)
        return await self.get(name)

    async def delete(self, name: str) -> None:
        """Delete a schedule with its history. Code that declares it creates it again; `remove` does
        not allow that.
        """
        await self._recorded(await self._session.storage(), "delete", name).delete(name)

    async def _another_job(
        self, storage: Storage, name: str, outline: Schedule, call: Call[Any]
    ) -> NewJob | None:
        old, settings = outline.job, self._session.settings
        if old is None:
            message = f"{name} is a chore of Windlass: it has no call"
            raise InvalidArgument(message)
        breaker = any(use.name == breaker_name(old.task) for use in old.limits)
        plan, specs = plan_schedule(name, outline, call, settings, breaker=breaker)
        await LimitDefinitions(storage.limits).keep(specs)
        return plan.job

    def _edits(self, storage: Storage, store: ScheduleStore) -> Schedules:
        return Schedules(store, storage.now, self._session.new_ids)

    def _recorded(self, storage: Storage, verb: str, name: str, detail: str = "") -> Schedules:
        """Edit schedules so that the audit record is stored with the first write."""
        note = self._session.note(f"schedules.{verb}", f"schedule {name}", detail)
        return self._edits(storage, AuditedScheduleStore(storage.schedules, note))


def _check_options(options: Mapping[str, Any]) -> None:
    for name in options:
        if name not in _EDITABLE:
            message = f"{name!r} is no option of a schedule.{suggestion(name, _EDITABLE)}"
            raise InvalidArgument(message)


def _removed(found: ScheduleView | UnreadableSchedule) -> bool:
    return isinstance(found, ScheduleView) and found.state.removed
