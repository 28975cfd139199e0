"""Failed jobs by exception and place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from windlass._core.job.job import JobId
from windlass._core.values.instants import instant_of, to_us
from windlass._storage.protocol.admin import ErrorGroup, ErrorLook
from windlass._storage.redis.admin.listed_jobs import pairs
from windlass._storage.redis.io.database import Argument, RedisDatabase
from windlass._storage.redis.io.scripts import script

__all__ = ["RedisErrorGroups"]

_FAILED, _FAILED_QUEUES, _FAULTS = script("failed"), script("failed_queues"), script("faults")

_AT_ONCE = 500
"""Jobs one script looks at."""
_LEAST = 50
"""Jobs that are asked for of one queue, however many queues there are."""
_LONGEST = 500
"""Characters of a text."""


class _FailedRow(NamedTuple):
    at: int
    id: bytes


class _FailedJob(NamedTuple):
    """One failed job, as much of it as its group tells."""

    at: int
    seq: int
    id: bytes
    queue: str
    task: str
    kind: str
    frame: str
    text: str


class RedisErrorGroups:
    """`AdminStore.errors`."""

    def __init__(self, database: RedisDatabase) -> None:
        self._db = database

    async def look(
        self, queue: str | None, task: str | None, since: datetime | None, look: int
    ) -> ErrorLook:
        lines: list[bytes] = await self._db.run_aside(_FAILED_QUEUES, queue or "")
        failed = await self._newest(lines, since, look + 1)
        faults: list[_FailedJob] = []
        for start in range(0, min(len(failed), look), _AT_ONCE):
            faults += await self._faults(failed[start : min(start + _AT_ONCE, look)], task)
        return ErrorLook(_grouped(faults), complete=len(failed) <= look)

    async def _newest(
        self, names: Sequence[bytes], since: datetime | None, most: int
    ) -> list[_FailedRow]:
        """Return the jobs that failed last: at most this number, of all lines together."""
        chunk = max(_LEAST, min(_AT_ONCE, most // max(1, len(names))))
        lines: dict[bytes, list[_FailedRow]] = {name: [] for name in names}
        further, newest = list(names), list[_FailedRow]()
        while further:
            asked: list[Argument] = ["-inf" if since is None else to_us(since), chunk]
            for name in further:
                asked += (name, len(lines[name]))
            found = await self._db.run_aside(_FAILED, *asked)
            short = set[bytes]()
            for name, line in zip(further, found, strict=True):
                lines[name] += [_FailedRow(int(float(at)), job) for job, at in pairs(line)]
                if len(line) < 2 * chunk:
                    short.add(name)
            newest = sorted((job for line in lines.values() for job in line), reverse=True)[:most]
            # The next jobs of a line are older than those read: is there room for them?
            least = newest[-1].at if len(newest) == most else None
            further = [
                name
                for name in further
                if name not in short and (least is None or lines[name][-1].at > least)
            ]
        return newest

    async def _faults(self, failed: Sequence[_FailedRow], task: str | None) -> list[_FailedJob]:
        rows = await self._db.run_aside(_FAULTS, task or "", *(job.id for job in failed))
        return [
            _FailedJob(job.at, row[0], job.id, *(text.decode(errors="replace") for text in row[1:]))
            for job, row in zip(failed, rows, strict=True)
            if row  # else it has been requeued by now, or is another task's
        ]


def _grouped(faults: Iterable[_FailedJob]) -> list[ErrorGroup]:
    """Return those with the last failure first."""
    groups: dict[tuple[str, str], list[_FailedJob]] = {}
    for fault in sorted(faults, reverse=True):
        groups.setdefault((fault.kind, fault.frame), []).append(fault)
    return [
        ErrorGroup(
            kind=kind,
            frame=frame,
            count=len(group),
            first=instant_of(group[-1].at),
            last=instant_of(group[0].at),
            job=JobId(group[0].id.hex()),
            text=group[0].text[:_LONGEST],
            tasks=sorted({fault.task for fault in group}),
            queues=sorted({fault.queue for fault in group}),
        )
        for (kind, frame), group in groups.items()
    ]
