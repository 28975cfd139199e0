"""Schedules as code declares them and people change them, over one opened storage."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from windlass._core.job.job import JobId, NewJob
from windlass._core.schedule.rules import Once
from windlass._core.schedule.schedule import (
    Schedule,
    ScheduleRun,
    ScheduleState,
    TriggerAnswer,
    first_slot,
    job_of_schedule,
    merge_plans,
    read_state,
    trim_runs,
)
from windlass._storage.protocol.schedules import ScheduleRow, ScheduleStore, ScheduleWrite, Written
from windlass.errors import (
    InvalidArgument,
    ScheduleBusy,
    ScheduleExists,
    ScheduleUnknown,
    StoreBusy,
)

__all__ = [
    "DECLARED_FOR",
    "UNDECLARED",
    "UNINSTALLED",
    "ScheduleView",
    "Schedules",
    "TriggerAnswer",
    "UnreadableSchedule",
    "decoded",
    "encoded",
    "merge_plans",
    "trim_runs",
    "write_of",
]

DECLARED_FOR = timedelta(minutes=5)
"""A schedule of some code that no process has declared for so long does not fire."""
UNDECLARED = (
    "no running process declares it any more. Remove it if its code is gone; it continues "
    "when a process that declares it starts"
)
UNINSTALLED = "its plugin was uninstalled. It goes on when a process that installs it starts"
_TRIES = 20

Now = Callable[[], Awaitable[datetime]]


class ScheduleView(msgspec.Struct, frozen=True):
    """A stored schedule that can be read."""

    row: ScheduleRow
    state: ScheduleState

    def undeclared(self, now: datetime) -> bool:
        """Return whether code once had it, and no running process has it now."""
        # One that is new is written first and stamped then.
        declared = self.row.declared_at or self.state.changed_at
        return self.state.written is not None and (
            declared is None or now - declared > DECLARED_FOR
        )

    @property
    def lapsed(self) -> bool:
        """Check whether it is held, and a process that has it in its code may release it."""
        return self.state.held is not None and self.state.problem != UNINSTALLED

    def stalled(self, now: datetime) -> bool:
        """Return whether it should fire and has no next slot: a process that could not read it, an
        older one perhaps, has taken it out.
        """
        slotless = self.state.fires and self.row.next_at is None
        return slotless and first_slot(self.state.plan, now) is not None


class UnreadableSchedule(msgspec.Struct, frozen=True):
    """A stored schedule that cannot be read: it affects no other schedule."""

    row: ScheduleRow
    problem: str


def decoded(row: ScheduleRow) -> ScheduleView | UnreadableSchedule:
    """Decode a row, or return the reason why it cannot be decoded."""
    state = read_state(row.body)
    return UnreadableSchedule(row, state) if isinstance(state, str) else ScheduleView(row, state)


def encoded(state: ScheduleState) -> bytes:
    """Return the stored form."""
    return msgspec.json.encode(state)


def write_of(known: ScheduleView, state: ScheduleState, next_at: datetime | None) -> ScheduleWrite:
    """Return the write that turns a known schedule into ``state``."""
    return ScheduleWrite(
        name=known.row.name,
        revision=known.row.revision,
        body=encoded(state),
        next_at=next_at if state.fires else None,
    )


class Schedules:
    """Changes of schedules. Each is a compare-and-set: a writer that read an older state never
    overwrites a newer one.
    """

    def __init__(
        self, store: ScheduleStore, now: Now, new_ids: Callable[[int], Sequence[JobId]]
    ) -> None:
        """``now`` is the store's clock."""
        self._store = store
        self._now = now
        self._new_ids = new_ids

    # --- reading ---

    async def all(self) -> Sequence[ScheduleView | UnreadableSchedule]:
        """Return every stored schedule, removed ones too, by name."""
        return [decoded(row) for row in await self._store.rows()]

    async def get(self, name: str, *, removed: bool = False) -> ScheduleView:
        """Return one that is stored and readable; ``removed``: also if a person has removed it."""
        rows = {row.name: row for row in await self._store.rows([name])}
        found = decoded(rows[name]) if name in rows else None
        if isinstance(found, UnreadableSchedule):
            message = f"schedule {name!r} cannot be read: {found.problem}. Delete or redeclare it."
            raise InvalidArgument(message)
        if found is None or (found.state.removed and not removed):
            known = {row.name for row in await self._store.rows()}
            raise ScheduleUnknown(name, known - {name})
        return found

    # --- what code says ---

    async def declare(self, plans: dict[str, Schedule], *, by: str) -> None:
        """Bring in what code declares: new ones, and what has changed in the code since it last
        spoke. What a person has changed, paused or removed stays so.
        """
        for _ in range(_TRIES):
            rows = {row.name: row for row in await self._store.rows()}
            now = await self._now()
            writes = [
                write
                for name, plan in plans.items()
                if (write := self._declared(name, plan, rows.get(name), now, by)) is not None
            ]
            if any(write.revision for write in writes):
                # Before what is let go here can be held again.
                await self._store.declare(sorted(plans))
            answers = await self._store.write(writes) if writes else ()
            if all(answer.what is not Written.STALE for answer in answers):
                await self._store.declare(sorted(plans))
                return
        raise _contended("the schedules")

    def _declared(
        self, name: str, plan: Schedule, row: ScheduleRow | None, now: datetime, by: str
    ) -> ScheduleWrite | None:
        known = None if row is None else decoded(row)
        if row is None or not isinstance(known, ScheduleView):
            state = ScheduleState(plan=plan, written=plan, changed_by=by, changed_at=now)
            first = first_slot(plan, now)
            revision = 0 if row is None else row.revision
            return ScheduleWrite(name=name, revision=revision, body=encoded(state), next_at=first)
        state = known.state
        if state.written == plan and state.held is None and not known.stalled(now):
            return None
        # A schedule that an operator made under this name before the code had it counts as an
        # operator's change, too.
        new = state.plan if state.written is None else merge_plans(state.plan, state.written, plan)
        changed = new != state.plan
        moved = _moved(state, new)
        again = moved or (changed and bool(state.problem)) or known.stalled(now)
        state = msgspec.structs.replace(
            state,
            plan=new,
            written=plan,
            problem="" if changed or state.held is not None else state.problem,
            held=None,
            ended=state.ended and not moved,
            **({"changed_by": by, "changed_at": now} if changed else {}),
        )
        kept = known.state.held or row.next_at
        return write_of(known, state, first_slot(new, now) if again else kept)

    async def still_declared(self, names: Collection[str]) -> None:
        """Report again that code has these schedules. Those that were held meanwhile (the store was
        out of reach, the machine asleep), and those that lost their slot, continue.
        """
        await self._store.declare(sorted(names))
        now = await self._now()
        writes = [
            write_of(
                known,
                msgspec.structs.replace(known.state, problem="", held=None),
                known.state.held or first_slot(known.state.plan, now),
            )
            for known in await self.all()
            if isinstance(known, ScheduleView)
            and (
                (known.row.name in names and known.lapsed)
                # A process that can read a schedule made at run time may start it.
                or ((known.row.name in names or known.state.written is None) and known.stalled(now))
            )
        ]
        if writes:  # what is stale has been changed just now, and is looked at again in a minute
            await self._store.write(writes)

    # --- what people do ---

    async def create(self, name: str, plan: Schedule, *, by: str) -> ScheduleView:
        """Create a schedule; a name that is taken is refused, one that was removed is free."""
        rows = {row.name: row for row in await self._store.rows()}
        old = decoded(rows[name]) if name in rows else None
        if isinstance(old, ScheduleView) and not old.state.removed:
            raise ScheduleExists(name)
        now = await self._now()
        state = ScheduleState(plan=plan, changed_by=by, changed_at=now)
        write = ScheduleWrite(
            name=name,
            revision=0 if old is None else old.row.revision,
            body=encoded(state),
            next_at=first_slot(plan, now),
        )
        if await self._written(write) is not Written.WRITTEN:
            raise ScheduleExists(name)
        return await self.get(name)

    async def change(self, name: str, *, by: str, **fields: Any) -> ScheduleView:
        """Other numbers, by the names of `Schedule`'s fields."""

        def edited(known: ScheduleView, now: datetime) -> tuple[ScheduleState, datetime | None]:
            plan = msgspec.structs.replace(known.state.plan, **fields)
            again = _moved(known.state, plan)
            state = msgspec.structs.replace(
                known.state,
                plan=plan,
                ended=known.state.ended and not again,
                problem="",
                held=None,
            )
            again = again or bool(known.state.problem)
            return state, first_slot(plan, now) if again else known.row.next_at

        return await self._edit(name, edited, by=by)

    async def pause(self, name: str, *, by: str) -> ScheduleView:
        """Fire nothing until it is resumed."""

        def paused(known: ScheduleView, _: datetime) -> tuple[ScheduleState, datetime | None]:
            return msgspec.structs.replace(known.state, paused=True), None

        return await self._edit(name, paused, by=by)

    async def resume(self, name: str, *, by: str) -> ScheduleView:
        """Fire again, from the next slot on: what was paused was not missed. One that is held or
        broken is given another chance.
        """

        def resumed(known: ScheduleView, now: datetime) -> tuple[ScheduleState, datetime | None]:
            state = msgspec.structs.replace(known.state, paused=False, problem="", held=None)
            again = known.state.paused or known.row.next_at is None
            return state, first_slot(state.plan, now) if again else known.row.next_at

        return await self._edit(name, resumed, by=by)

    async def remove(self, name: str, *, by: str) -> ScheduleView:
        """Fire no more. Code that declares it does not bring it back."""

        def removed(known: ScheduleView, _: datetime) -> tuple[ScheduleState, datetime | None]:
            return msgspec.structs.replace(known.state, removed=True), None

        return await self._edit(name, removed, by=by)

    async def reset(self, name: str, *, by: str) -> ScheduleView:
        """Reset to the code's values, and drop an operator's change, pause or removal."""

        def back(known: ScheduleView, now: datetime) -> tuple[ScheduleState, datetime | None]:
            plan = known.state.written
            if plan is None:
                message = f"schedule {name!r} was created at run time: it has no values in the code"
                raise InvalidArgument(message)
            state = msgspec.structs.replace(
                known.state,
                plan=plan,
                removed=False,
                paused=False,
                ended=known.state.ended and not _moved(known.state, plan),
                problem="",
                held=None,
            )
            return state, first_slot(plan, now)

        return await self._edit(name, back, by=by, removed=True)

    async def trigger(self, name: str, *, by: str) -> TriggerAnswer | None:
        """Run it now, beside its slots; None: a chore, which its leader starts at once.

        ScheduleBusy where as many runs are active as may be. Where another job holds the unique key
        of its job, nothing is written, and the answer names that one.
        """
        for _ in range(_TRIES):
            known = await self.get(name)
            plan, now = known.state.plan, await self._now()
            if plan.job is None:
                if not known.state.fires:
                    message = f"{name} is a chore that does not fire now: resume it first"
                    raise InvalidArgument(message)
                write = write_of(known, known.state, now)
                if await self._written(write) is Written.WRITTEN:
                    return None
                continue
            (job_id,) = self._new_ids(1)
            job = job_of_schedule(name, plan, job_id)
            write = self._triggered(known, job, now, by)
            (answer,) = await self._store.write([write])
            match answer.what:
                case Written.WRITTEN:
                    return TriggerAnswer(job, created=True, expired=answer.expired)
                case Written.HELD:
                    return TriggerAnswer(job, created=False, holder=answer.holders[job_id])
                case Written.BUSY:
                    raise ScheduleBusy(name, len(write.active))
                case Written.STALE:
                    continue
        raise _contended(f"schedule {name!r}")

    def _triggered(self, known: ScheduleView, job: NewJob, now: datetime, by: str) -> ScheduleWrite:
        state = known.state
        runs = trim_runs([*state.runs, ScheduleRun(now, job.id, by=by)], state.plan)
        after = msgspec.structs.replace(state, runs=runs, fired=state.fired + 1)
        return msgspec.structs.replace(
            write_of(known, after, known.row.next_at),
            jobs=(job,),
            active=tuple(run.job for run in state.runs if run.job is not None and run.active),
            most_active=state.plan.most_active,
        )

    async def delete(self, name: str) -> None:
        """Forget it altogether: a broken one, or one that no code has any more."""
        for _ in range(_TRIES):
            rows = {row.name: row for row in await self._store.rows()}
            if name not in rows:
                raise ScheduleUnknown(name, list(rows))
            write = ScheduleWrite(name=name, revision=rows[name].revision, body=None)
            if await self._written(write) is Written.WRITTEN:
                return
        raise _contended(f"schedule {name!r}")

    async def _written(self, write: ScheduleWrite) -> Written:
        (answer,) = await self._store.write([write])
        return answer.what

    async def _edit(
        self,
        name: str,
        edit: Callable[[ScheduleView, datetime], tuple[ScheduleState, datetime | None]],
        *,
        by: str,
        removed: bool = False,
    ) -> ScheduleView:
        for _ in range(_TRIES):
            known = await self.get(name, removed=removed)
            now = await self._now()
            state, next_at = edit(known, now)
            state = msgspec.structs.replace(state, changed_by=by, changed_at=now)
            write = write_of(known, state, next_at)
            if await self._written(write) is Written.WRITTEN:
                return await self.get(name, removed=True)
        raise _contended(f"schedule {name!r}")


def _moved(state: ScheduleState, plan: Schedule) -> bool:
    """Return whether another plan has other slots. A one-time schedule that has fired has none
    left, unless it is given another instant.
    """
    old = state.plan
    if isinstance(plan.rule, Once) and state.ended:
        return plan.rule != old.rule
    return (plan.rule, plan.starts, plan.ends) != (old.rule, old.starts, old.ends)


def _contended(what: str) -> StoreBusy:
    return StoreBusy(f"{what} kept changing while it was being changed: try again")
