"""Copies jobs, flows, limits, schedules, settings and history from one storage into another.

You can interrupt it at any point and run it again: records that are there already are left out. At
the end both sides are counted and compared.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import msgspec

from windlass._admin.copy.checks import JobChecksum, refuse_workers
from windlass._storage.protocol.actions import AuditNote, AuditRecord
from windlass._storage.protocol.admin import QueueCounts
from windlass._storage.protocol.copy import CopiedRecord
from windlass._storage.protocol.flows import FlowGraph
from windlass._storage.protocol.journal import EventRecord
from windlass._storage.protocol.schedules import ScheduleRow, ScheduleWrite, Written
from windlass._storage.protocol.storage import Storage
from windlass.errors import WindlassError

__all__ = ["CopyProgress", "CopyRefused", "CopyReport", "copy"]

_BITE = 500
_FLOWS_AT_ONCE = 50
"""Each brings its parts."""
_LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
_DAYS = 45
"""Rollups of the last days are read day by day, what is older (and merged by the hour) at once."""
_WHO, _WHAT = "windlass db copy", "db.copy"
_AGAIN = (
    "One of the storages was changed since the first run of this copy, which copies no job twice: "
    "empty the target, and copy again without workers and producers"
)

_RECOUNT = "Correct it there: windlass flows recount --repair"


class CopyRefused(WindlassError):
    """Nothing was written: see the text."""


class CopyProgress(msgspec.Struct, frozen=True):
    """How far it is."""

    part: str
    """jobs, rollups …, and at last: check"""
    done: int
    total: int | None
    """None: not counted."""


class CopyReport(msgspec.Struct, frozen=True, kw_only=True):
    """The number of copied records, and whether both sides hold the same."""

    source: str
    target: str
    jobs: int
    """In the source."""
    flows: int
    new: int
    """Of the jobs, stored by this run; the rest was there from an earlier one."""
    limits: int
    queues: int
    schedules: int
    rollups: int
    audits: int
    events: int
    checksum: str
    """Of all flows, and of all jobs with their history and logs, in any order."""
    problems: Sequence[str] = ()
    """Where the two sides differ; nothing, if all is well."""


Progress = Callable[[CopyProgress], None]


async def copy(
    source: Storage,
    target: Storage,
    *,
    resume: bool = False,
    progress: Progress = lambda _: None,
) -> CopyReport:
    """Copy everything. ``resume``: the target holds part of this copy, even if it does not say so.

    CopyRefused while workers are live on either side, or when the target holds other jobs.
    """
    if source.shared and source.describe() == target.describe():
        message = f"both are {source.describe()}: name another storage to copy to"
        raise CopyRefused(message)
    for storage in (source, target):
        await refuse_workers(storage, CopyRefused)
    begun = await _refuse_other_jobs(source, target, resume=resume)
    return await _Copy(source, target, progress).run(begun=begun)


def _subject(source: Storage) -> str:
    return f"copy of {source.describe()}"


async def _refuse_other_jobs(source: Storage, target: Storage, *, resume: bool) -> bool:
    """Return whether an earlier run has left its mark; CopyRefused where others have left jobs."""
    begun = bool(await target.orders.audits(limit=1, subject=_subject(source)))
    if not begun and not resume and await _holds_jobs(target):
        message = (
            f"{target.describe()} already has jobs, and not from this source: name an empty "
            f"storage. If they are from an earlier run of this copy, use --resume"
        )
        raise CopyRefused(message)
    return begun


async def _holds_jobs(storage: Storage) -> bool:
    return bool(await storage.moving.dump(after=0, limit=1))


def _id_of(subject: str) -> str:
    return JobChecksum.digest(subject.encode())[:32]


class _Copy:
    """One run."""

    def __init__(self, source: Storage, target: Storage, progress: Progress) -> None:
        self._source, self._target = source, target
        self._say = progress
        self._problems: list[str] = []

    async def run(self, *, begun: bool) -> CopyReport:
        # Before the mark, which is a record like them: the newest of them is to be the last.
        audits = await self._audits()
        if not begun:
            await self._mark()
        # Limits first, for jobs name them; their states last, for running jobs count.
        await self._secret()
        limits = await self._limits()
        queues = await self._queues()
        schedules = await self._schedules()
        # Flows before their members.
        here = JobChecksum()
        await self._flows(here)
        new = await self._jobs(here)
        await self._limit_states()
        rollups = await self._rollups()
        events = await self._events()
        await self._check(here)
        for storage in (self._source, self._target):
            await refuse_workers(storage, CopyRefused)
        return CopyReport(
            source=self._source.describe(),
            target=self._target.describe(),
            jobs=here.count,
            flows=here.flows,
            new=new,
            limits=limits,
            queues=queues,
            schedules=schedules,
            rollups=rollups,
            audits=audits,
            events=events,
            checksum=here.text,
            problems=tuple(self._problems),
        )

    async def _mark(self) -> None:
        """Say that this is a copy, and of what: by it the next run knows its own work."""
        subject = _subject(self._source)
        note = AuditNote(id=_id_of(subject), who=_WHO, what=_WHAT, subject=subject)
        record = AuditRecord(number=0, note=note, at=await self._target.now(), count=0)
        await self._target.moving.restore([record])

    # --- settings ---

    async def _secret(self) -> None:
        """Keys look the same there as here."""
        here, there = await self._source.admin.secret(), await self._target.admin.secret()
        if here and here != there and await self._target.admin.secret(here, old=there) != here:
            self._problems.append("the target's secret of keys changed meanwhile: copy again")

    async def _limits(self) -> int:
        specs = await self._source.limits.specs()
        await self._target.limits.define(specs)
        return len(specs)

    async def _limit_states(self) -> None:
        for spec in await self._source.limits.specs():
            states = await self._source.limits.states(spec.name)
            if states:
                await self._target.moving.restore(states)

    async def _queues(self) -> int:
        records = await self._source.queues.queues()
        if records:
            await self._target.moving.restore(records)
        return len(records)

    async def _schedules(self) -> int:
        rows = await self._source.schedules.rows()
        there = {row.name: row for row in await self._target.schedules.rows()}
        writes = [write for row in rows if (write := _write(row, there.get(row.name)))]
        answers = await self._target.schedules.write(writes) if writes else ()
        for write, answer in zip(writes, answers, strict=True):
            if answer.what is not Written.WRITTEN:
                self._problems.append(f"schedule {write.name!r} changed in the target meanwhile")
        if await self._source.schedules.paused() is not None:
            await self._target.schedules.pause()
        declared = [row.name for row in rows if row.declared_at is not None]
        if declared:
            await self._target.schedules.declare(declared)
        return len(rows)

    # --- jobs ---

    async def _flows(self, here: JobChecksum) -> None:
        async for chunk in _flows_of(self._source):
            await self._target.moving.restore(chunk)
            here.add_flows(chunk)
            self._say(CopyProgress("flows", here.flows, None))

    async def _jobs(self, here: JobChecksum) -> int:
        total = sum(_all_of(one) for one in await self._source.admin.counts())
        new, after = 0, 0
        self._say(CopyProgress("jobs", 0, total))
        while chunk := await self._source.moving.dump(after=after, limit=_BITE):
            after = chunk[-1].job.seq
            new += await self._target.moving.restore(chunk)
            here.add(chunk)
            self._say(CopyProgress("jobs", here.count, max(total, here.count)))
        return new

    async def _check(self, here: JobChecksum) -> None:
        """Read everything again where it is now."""
        there, after = JobChecksum(), 0
        async for flows in _flows_of(self._target):
            there.add_flows(flows)
        while chunk := await self._target.moving.dump(after=after, limit=_BITE):
            after = chunk[-1].job.seq
            there.add(chunk)
            self._say(CopyProgress("check", there.count, here.count))
        if there.count != here.count:
            counts = f"{here.count:,} jobs in the source, {there.count:,} in the target"
            self._problems.append(f"{counts}. {_AGAIN}")
        elif there.flows != here.flows:
            counts = f"{here.flows:,} flows in the source, {there.flows:,} in the target"
            self._problems.append(f"{counts}. {_AGAIN}")
        elif there.text != here.text:
            self._problems.append(f"the checksums of the jobs differ. {_AGAIN}")
        await self._recount()
        await self._compare_settings()

    async def _recount(self) -> None:
        """Hold the counts of flows against the jobs that arrived."""
        after: int | None = 0
        while after is not None:
            recounted = await self._target.flows.recount(after=after)
            self._problems += [f"{one}. {_RECOUNT}" for one in recounted.wrong]
            after = recounted.next

    async def _compare_settings(self) -> None:
        """Compare the settings. Further settings of the target are ignored: a deploy may have been
        there first.
        """
        here, there = [await _settings_of(one) for one in (self._source, self._target)]
        for name, value in here.items():
            if there.get(name) != value:
                self._problems.append(f"{name} differs in the target")

    # --- history ---

    async def _rollups(self) -> int:
        now = await self._source.now()
        day = timedelta(days=1)
        edges = [_LONG_AGO, *(now - day * back for back in range(_DAYS, -1, -1)), now + day]
        count = 0
        for number, (since, until) in enumerate(pairwise(edges)):
            rollups = await self._source.admin.rollups(since, until)
            for chunk in _in_chunks(rollups):
                await self._target.moving.restore(chunk)
            count += len(rollups)
            self._say(CopyProgress("rollups", number + 1, len(edges) - 1))
        return count

    async def _audits(self) -> int:
        found: list[AuditRecord] = []
        before: int | None = None
        while page := await self._source.orders.audits(limit=_BITE, before=before):
            found += page
            before = page[-1].number
        # The oldest first: the target numbers them as they come.
        for chunk in _in_chunks(found[::-1]):
            await self._target.moving.restore(chunk)
        self._say(CopyProgress("audits", len(found), len(found)))
        return len(found)

    async def _events(self) -> int:
        count = 0
        async for chunk in _events_of(self._source):
            count += await self._target.moving.restore(chunk)
            self._say(CopyProgress("events", count, None))
        return count


async def _flows_of(storage: Storage) -> AsyncIterator[Sequence[FlowGraph]]:
    after = 0
    while page := await storage.moving.dump_flows(after=after, limit=_FLOWS_AT_ONCE):
        yield page
        after = page[-1].flow.number


async def _events_of(storage: Storage) -> AsyncIterator[Sequence[EventRecord]]:
    """Yield events in pages by time. Those of one instant must fit on a page, so a page grows until
    they do.
    """
    since, until = _LONG_AGO, await storage.now() + timedelta(days=1)
    size = _BITE
    while page := await storage.journal.events(since, until, limit=size):
        if len(page) < size:
            yield page
            return
        last = page[-1].at
        whole = [event for event in page if event.at < last]
        if not whole:
            size *= 2
            continue
        yield whole
        since, size = last, _BITE


def _write(row: ScheduleRow, there: ScheduleRow | None) -> ScheduleWrite | None:
    if there is not None and (there.body, there.next_at) == (row.body, row.next_at):
        return None
    return ScheduleWrite(
        name=row.name,
        revision=0 if there is None else there.revision,
        body=row.body,
        next_at=row.next_at,
    )


async def _settings_of(storage: Storage) -> dict[str, object]:
    limits = {f"limit {spec.name!r}": spec for spec in await storage.limits.specs()}
    queues = {f"queue {one.queue!r}": one for one in await storage.queues.queues()}
    rows = await storage.schedules.rows()
    return {**limits, **queues, **{f"schedule {r.name!r}": (r.body, r.next_at) for r in rows}}


def _all_of(counts: QueueCounts) -> int:
    states = ("ready", "scheduled", "running", "succeeded", "failed", "cancelled", "discarded")
    return sum(getattr(counts, state) for state in states)


def _in_chunks(things: Sequence[CopiedRecord]) -> list[Sequence[CopiedRecord]]:
    return [things[start : start + _BITE] for start in range(0, len(things), _BITE)]
