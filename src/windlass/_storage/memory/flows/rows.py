"""Flows and parts as they are stored, and how the end of a member travels through the graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Literal

import msgspec

from windlass._core.flows.flow import (
    SEALED_FOR,
    SEALED_KEEPS_KEY,
    FlowRecord,
    FlowState,
    NewFlow,
    NewPart,
    PartKind,
    PartRecord,
)
from windlass._core.flows.part import (
    NOTHING,
    Counts,
    Decision,
    Gate,
    MemberEnd,
    Tidings,
    decide,
    is_due,
    ranks_of,
    standings,
    tidings,
)
from windlass._core.job.job import FlowId
from windlass._core.values.instants import add_clamped
from windlass._storage.memory.flows.copied import asked_of

__all__ = ["FlowRows", "MemoryFlow", "MemoryPart"]


class MemoryPart(msgspec.Struct, eq=False, kw_only=True):
    """A part: its jobs by seq, counted, and what it knows of the parts before it."""

    flow: MemoryFlow
    number: int
    asked: NewPart
    feeds: list[tuple[int, bool]] = []
    """The parts that wait for it, and whether a failure here counts there."""
    counts: Counts
    gate: Gate
    told: Tidings = NOTHING
    rank: int = 0
    """Its place in the order of the graph."""
    members: list[int] = []
    """In the order in which they were given."""
    blocked: dict[int, None] = {}
    stopped: dict[int, None] = {}
    skipped: dict[int, None] = {}

    @property
    def decision(self) -> Decision:
        asked = self.asked
        return decide(asked.kind, asked.when, self.gate, cancelled=self.flow.cancelled)

    @property
    def tidings(self) -> Tidings:
        asked, flow = self.asked, self.flow
        return tidings(
            asked.kind,
            asked.when,
            self.gate,
            self.counts,
            cancelled=flow.cancelled,
            returning=flow.is_returning(self),
        )

    @property
    def is_due(self) -> bool:
        asked, cancelled = self.asked, self.flow.cancelled
        return is_due(asked.kind, asked.when, self.gate, self.counts, cancelled=cancelled)

    @property
    def is_cancelled(self) -> bool:
        """Return whether its jobs must not start any more."""
        return self.flow.cancelled and self.asked.kind is PartKind.JOBS

    def learn(self, before: Tidings, after: Tidings, *, strict: bool) -> None:
        """Count what a part before this one tells now, in place of what it told."""
        self.gate.learn(before, after, strict=strict)

    def learn_added(self, before: Tidings, after: Tidings) -> None:
        """Count what a flow that its jobs added tells now, in place of what it told."""
        self.gate.learn_added(before, after)

    def expect_flow(self, more: int = 1) -> None:
        """Count a flow that a job adds. The part is not over before it."""
        self.gate.expect_added(more)

    def tell(self, what: Tidings) -> None:
        self.told = what

    def expect(self, more: int) -> None:
        """Count jobs that are about to join."""
        self.counts.add("total", more)
        self.counts.add("open", more)

    def block(self, seq: int) -> None:
        self.blocked[seq] = None
        self.counts.add("blocked", 1)

    def unblock(self, seq: int) -> None:
        del self.blocked[seq]
        self.counts.add("blocked", -1)

    def count(self, seq: int, ended: MemberEnd, by: int) -> None:
        """Count a member that ended (``by`` 1), or is back (-1)."""
        self.counts.add(ended, by)
        self.counts.add("open", -by)
        if ended is MemberEnd.STOPPED or ended is MemberEnd.SKIPPED:
            held = self.settled(ended)
            if by > 0:
                held[seq] = None
            else:
                del held[seq]

    def settled(self, ended: MemberEnd) -> dict[int, None]:
        """Return the members that were stopped, or skipped."""
        return self.stopped if ended is MemberEnd.STOPPED else self.skipped

    def discard(self) -> None:
        """Count a failed member as cancelled: it was discarded."""
        self.counts.add("failed", -1)
        self.counts.add("cancelled", 1)

    def restore(self, stored: PartRecord, gate: Gate, told: Tidings) -> None:
        """Stand as in another storage. Its jobs come later."""
        counted = {name: getattr(stored, name) for name in Counts.__struct_fields__}
        self.counts, self.gate, self.told = Counts(**counted), gate, told

    def take(self, seq: int, held: Literal["blocked", "stopped", "skipped"] | None) -> None:
        """Take a job of another storage, which is counted already."""
        self.members.append(seq)
        if held is not None:
            getattr(self, held)[seq] = None

    def to_record(self) -> PartRecord:
        asked = self.asked
        return PartRecord(
            number=self.number,
            name=asked.name,
            kind=asked.kind,
            task=asked.task,
            when=asked.when,
            after=asked.after,
            added=asked.added,
            **msgspec.structs.asdict(self.counts),
        )


class MemoryFlow(msgspec.Struct, eq=False, kw_only=True):
    """A flow with its parts."""

    number: int
    asked: NewFlow
    """Without its jobs."""
    created_at: datetime
    expires_at: datetime | None
    parts: list[MemoryPart] = []
    state: FlowState = FlowState.RUNNING
    ended_at: datetime | None = None
    cancelled: bool = False
    sealed: bool = False
    swept: int = 0
    """The number of members that a cancel has reached."""
    retry: tuple[int, int] | None = None
    """The rank of the part, and the job there, that a retry has reached."""

    def end(self, state: FlowState, at: datetime) -> None:
        self.state, self.ended_at = state, at

    def restore(self, record: FlowRecord) -> None:
        self.state, self.ended_at = record.state, record.ended_at
        self.cancelled, self.expires_at = record.cancel_requested, record.expires_at

    def run_again(self, now: datetime) -> None:
        """Let an ended flow continue. It has all its time again."""
        if self.ended_at is not None:
            self.state, self.ended_at = FlowState.RUNNING, None
            self.expires_at = _instant_after(now, self.asked.expires)

    def extend(self, now: datetime) -> None:
        """Give a sealed flow time for its next jobs."""
        self.expires_at = _instant_after(now, SEALED_FOR)

    def unseal(self, now: datetime) -> None:
        self.sealed, self.expires_at = False, _instant_after(now, self.asked.expires)

    @property
    def is_held(self) -> bool:
        """Return whether nothing of it may happen before it is whole."""
        return self.sealed and not self.cancelled

    def gives_key_up(self, now: datetime) -> bool:
        """Return whether another flow may take its key: the rest of it does not come."""
        spare = SEALED_FOR - SEALED_KEEPS_KEY
        return self.is_held and self.expires_at is not None and self.expires_at <= now + spare

    def takes_more(self, now: datetime) -> bool:
        """Return whether flows may be added from outside."""
        late = self.expires_at is not None and self.expires_at <= now
        return self.state is FlowState.RUNNING and not self.cancelled and not late

    def mark_cancelled(self, *, cancelled: bool) -> None:
        self.cancelled, self.swept, self.retry = cancelled, 0, None

    def is_returning(self, part: MemoryPart) -> bool:
        """Return whether a retry has not reached all jobs of a part."""
        is_member = part.asked.kind is PartKind.JOBS
        return is_member and self.retry is not None and part.rank >= self.retry[0]

    def in_order(self) -> list[MemoryPart]:
        """Return the parts in the order of the graph."""
        return sorted(self.parts, key=lambda part: part.rank)

    def not_retried(self, part: MemoryPart) -> list[int]:
        """Return the jobs of a part that a retry has not reached."""
        retry = self.retry
        return [seq for seq in part.members if retry is not None and (part.rank, seq) > retry]

    def note_retry(self, reached: tuple[int, int] | None) -> None:
        """Note how far a retry has come."""
        self.retry = reached

    def sweep(self, reached: int) -> None:
        self.swept = reached

    def members(self) -> list[int]:
        """Return the jobs that count for the flow."""
        return [
            seq for part in self.parts if part.asked.kind is PartKind.JOBS for seq in part.members
        ]

    def to_record(self) -> FlowRecord:
        asked = self.asked
        counts = [p.counts for p in self.parts if p.asked.kind is PartKind.JOBS]
        names = ("total", "open", "succeeded", "failed", "cancelled", "stopped", "skipped")
        return FlowRecord(
            id=asked.id,
            number=self.number,
            name=asked.name,
            state=self.state,
            created_at=self.created_at,
            ended_at=self.ended_at,
            key=asked.key,
            cancel_requested=self.cancelled,
            sealed=self.sealed,
            expires_at=self.expires_at,
            expires=asked.expires,
            tenant=asked.tenant,
            **{name: sum(getattr(one, name) for one in counts) for name in names},
        )


class FlowRows:
    """All flows. Runs under the database's lock."""

    def __init__(self) -> None:
        self.by_id: dict[FlowId, MemoryFlow] = {}
        self.keys: dict[str, MemoryFlow] = {}
        """Of running flows."""
        self.due: dict[tuple[FlowId, int], MemoryPart] = {}
        """Parts with jobs to place, to end, or to block again."""
        self.added: dict[FlowId, tuple[MemoryFlow, int]] = {}
        """Flows that joined others, by their own ids: the other flow, and their first part."""
        self.sweeping: dict[FlowId, MemoryFlow] = {}
        """Cancelled flows with members that the cancel has not reached."""
        self.retrying: dict[FlowId, MemoryFlow] = {}
        """Flows with members that a retry has not reached."""
        self._last = 0

    def add(self, asked: NewFlow, now: datetime) -> MemoryFlow:
        """Keep a flow. Its parts have no jobs yet."""
        self._last += 1
        flow = MemoryFlow(
            number=self._last,
            asked=msgspec.structs.replace(asked, jobs=()),
            created_at=now,
            expires_at=_instant_after(now, SEALED_FOR if asked.sealed else asked.expires),
            sealed=asked.sealed,
        )
        self.append(flow, asked.parts, ranks_of(asked.parts))
        self.by_id[asked.id] = flow
        if asked.key is not None:
            self.keys.setdefault(asked.key, flow)
        return flow

    def append(self, flow: MemoryFlow, parts: Sequence[NewPart], ranks: Sequence[int]) -> None:
        """Add parts to a flow, without jobs."""
        for part, rank in zip(parts, ranks, strict=True):
            gate, number = Gate(waiting=len(part.after)), len(flow.parts)
            flow.parts.append(
                MemoryPart(
                    flow=flow, number=number, asked=part, counts=Counts(), gate=gate, rank=rank
                )
            )
            for edge in part.after:
                before = flow.parts[edge.part]
                before.feeds.append((number, edge.strict))
                # A part that was there may have ended, or failed, already.
                flow.parts[number].learn(NOTHING, before.told, strict=edge.strict)
            if part.added is not None:
                self.added[part.added.id] = flow, part.added.first
                flow.parts[part.added.counts_for].expect_flow()

    def restore(self, record: FlowRecord, parts: Sequence[PartRecord]) -> None:
        """Keep a flow as it was in another storage, without its jobs."""
        flow = self.add(asked_of(record, parts), record.created_at)
        flow.restore(record)
        where = standings(record, parts)
        for part, stored, (gate, told, _) in zip(flow.parts, parts, where, strict=True):
            part.restore(stored, gate, told)
            self.look(part)
        if record.state is not FlowState.RUNNING:
            self.free_key(flow)
        elif record.cancel_requested:
            self.sweeping[record.id] = flow
            if record.sealed:
                self.free_key(flow)

    def resume_retry(self, wanted: FlowId, rank: int, now: datetime) -> None:
        """Continue the retry of a restored flow with the part of this rank."""
        flow = self.retrying[wanted] = self.by_id[wanted]
        flow.note_retry((rank, 0))
        for part in flow.parts:
            self.spread(part, now)

    def remove(self, flow: MemoryFlow) -> None:
        del self.by_id[flow.asked.id]
        self.sweeping.pop(flow.asked.id, None)
        self.retrying.pop(flow.asked.id, None)
        for part in flow.parts:
            self.due.pop((flow.asked.id, part.number), None)
            if part.asked.added is not None:
                del self.added[part.asked.added.id]
        self.free_key(flow)

    def spread(self, part: MemoryPart, now: datetime) -> None:
        """Pass on what has changed at a part, as far as parts without jobs pass it on themselves.

        Nothing else happens to jobs here: parts that are due now are remembered.
        """
        changed = [] if part.flow.is_held else [part]
        while changed:
            part = changed.pop()
            flow, before, after = part.flow, part.told, part.tidings
            if before != after:
                part.tell(after)
                for number, strict in part.feeds:
                    follower = flow.parts[number]
                    follower.learn(before, after, strict=strict)
                    changed.append(follower)
                if part.asked.added is not None:
                    counted = flow.parts[part.asked.added.counts_for]
                    counted.learn_added(before, after)
                    changed.append(counted)
                if part.asked.kind is PartKind.END:
                    self._end(flow, after, now)
            self.look(part)

    def look(self, part: MemoryPart) -> None:
        """Remember the part if something is to be done about its jobs."""
        place = part.flow.asked.id, part.number
        if part.is_due and not part.flow.is_held:
            self.due[place] = part
        else:
            self.due.pop(place, None)

    def _end(self, flow: MemoryFlow, end: Tidings, now: datetime) -> None:
        if not end.over:
            flow.run_again(now)
            if flow.asked.key is not None:
                self.keys.setdefault(flow.asked.key, flow)
            return
        failed = FlowState.CANCELLED if flow.cancelled else FlowState.FAILED
        flow.end(failed if end.broken else FlowState.SUCCEEDED, now)
        self.free_key(flow)

    def free_key(self, flow: MemoryFlow) -> None:
        """Let others have the key of a flow, if it holds it."""
        key = flow.asked.key
        if key is not None and self.keys.get(key) is flow:
            del self.keys[key]

    def running(self) -> Iterator[MemoryFlow]:
        return (flow for flow in self.by_id.values() if flow.state is FlowState.RUNNING)


def _instant_after(now: datetime, span: timedelta | None) -> datetime | None:
    return None if span is None else add_clamped(now, span)
