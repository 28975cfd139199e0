"""What is written down about jobs besides their rows: log lines and events, gone with the row."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime

from windlass.storage.journal import EventRecord, LogChunk

__all__ = ["Diary"]


class Diary:
    """Log chunks and events by the number of their job's row. Runs under the database's lock."""

    def __init__(self) -> None:
        self._chunks: defaultdict[int, dict[tuple[int, int], LogChunk]] = defaultdict(dict)
        self._events: defaultdict[int, list[tuple[datetime, int, EventRecord]]] = defaultdict(list)
        self._kept = 0

    def keep_chunk(self, seq: int, chunk: LogChunk) -> None:
        """Keep a chunk, unless it is kept already."""
        self._chunks[seq].setdefault((chunk.claim.number, chunk.number), chunk)

    def chunks(self, seq: int) -> list[tuple[tuple[int, int], LogChunk]]:
        """Claim number and number of each, and the chunk, in that order."""
        return sorted(self._chunks[seq].items()) if seq in self._chunks else []

    def keep_event(self, seq: int, event: EventRecord) -> None:
        self._kept += 1
        self._events[seq].append((event.at, self._kept, event))

    def has_event(self, seq: int, event: EventRecord) -> bool:
        return any(event == kept for _, _, kept in self._events.get(seq, ()))

    def events(self) -> list[EventRecord]:
        """By instant, then as they were kept."""
        return [event for _, _, event in sorted(e for kept in self._events.values() for e in kept)]

    def forget(self, seq: int) -> None:
        """The job is deleted."""
        self._chunks.pop(seq, None)
        self._events.pop(seq, None)

    def prune_events(self, before: datetime, limit: int) -> int:
        """Forget the oldest events."""
        old = sorted(
            (at, number, seq)
            for seq, kept in self._events.items()
            for at, number, _ in kept
            if at < before
        )[:limit]
        gone = {number for _, number, _ in old}
        for seq in {seq for _, _, seq in old}:
            self._events[seq] = [kept for kept in self._events[seq] if kept[1] not in gone]
        return len(old)
