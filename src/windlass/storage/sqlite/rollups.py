"""Rollups: what the accepted finishes of one operation add to their minute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TypeVar

import apsw
import msgspec

from windlass.core.instant import from_us
from windlass.core.rollup import Rollup, bucket_of, merge
from windlass.storage.queries import load
from windlass.storage.sqlite.rows import fetch, first

__all__ = ["Tallies", "read_rollups"]

_SQL = load("windlass.storage.sqlite.sql", "apply.sql")
_ROLLUP, _PUT, _ROLLUPS = _SQL["rollup"], _SQL["put_rollup"], _SQL["rollups"]

_MINUTE = 60_000_000
_Key = TypeVar("_Key", str, int)

_encode = msgspec.json.Encoder().encode
_counts_of = msgspec.json.Decoder(dict[str, int]).decode
_buckets_of = msgspec.json.Decoder(dict[int, int]).decode


class _Tally:
    """The finishes of one queue, task and worker."""

    __slots__ = ("run", "verbs", "wait")

    def __init__(self) -> None:
        self.verbs: list[str] = []
        self.wait: list[int] = []
        self.run: list[int] = []


class Tallies:
    """Collected while an operation decides, stored in its transaction."""

    def __init__(self, now: int) -> None:
        self._now = now
        self._tallies: dict[tuple[str, str, str], _Tally] = {}

    def add(  # noqa: PLR0917 -- one finish, spelled out; keywords cost on this path
        self, queue: str, task: str, worker: str, verb: str, due: int, started_at: int
    ) -> None:
        tally = self._tallies.get((queue, task, worker))
        if tally is None:
            tally = self._tallies[queue, task, worker] = _Tally()
        tally.verbs.append(verb)
        tally.wait.append(started_at - due)
        tally.run.append(self._now - started_at)

    def store(self, connection: apsw.Connection) -> None:
        minute = self._now - self._now % _MINUTE
        for (queue, task, worker), tally in self._tallies.items():
            counts: Counter[str] = Counter(tally.verbs)
            wait, run = Counter(map(bucket_of, tally.wait)), Counter(map(bucket_of, tally.run))
            before = first(connection, _ROLLUP, (minute, queue, task, worker))
            if before is not None:
                counts.update(_counts_of(before[0]))
                wait.update(_buckets_of(before[1]))
                run.update(_buckets_of(before[2]))
            connection.execute(
                _PUT, (minute, queue, task, worker, _text(counts), _text(wait), _text(run))
            )


def _text(counts: Mapping[_Key, int]) -> str:
    return _encode(counts).decode()


def read_rollups(connection: apsw.Connection, since: int, until: int) -> list[Rollup]:
    """One rollup per minute, queue and task, merged over the workers."""
    return merge(
        Rollup(
            minute=from_us(minute),
            queue=queue,
            task=task,
            counts=_counts_of(counts),
            wait=_buckets_of(wait),
            run=_buckets_of(run),
        )
        for minute, queue, task, counts, wait, run in fetch(connection, _ROLLUPS, (since, until))
    )
