"""Starting flows, settling their parts, and what operators do to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

from windlass._core.flows.flow import (
    RETRIED_AT_ONCE,
    FlowRecord,
    FlowState,
    NewFlow,
    PartKind,
)
from windlass._core.flows.part import MemberEnd, ended_as
from windlass._core.job.job import FlowId, NewJob
from windlass._storage.memory.admin.actions import MemoryActions
from windlass._storage.memory.flows.added import AddedFlows, add_jobs, open_flow
from windlass._storage.memory.flows.rows import MemoryFlow, MemoryPart
from windlass._storage.memory.flows.settle import FlowRules
from windlass._storage.memory.io.database import MemoryDatabase
from windlass._storage.memory.io.rows import JobRow
from windlass._storage.memory.jobs.room import require_room
from windlass._storage.protocol.actions import ActionResult, AuditNote
from windlass._storage.protocol.flows import (
    AddAnswer,
    FlowAction,
    FlowCounts,
    FlowFilter,
    FlowGraph,
    Member,
    Recounted,
    StartedFlow,
)
from windlass.errors import IdConflict, KeyConflict

__all__ = ["MemoryFlows"]


class MemoryFlows:
    """A `FlowStore`."""

    portion = 20_000

    def __init__(self, database: MemoryDatabase, rules: FlowRules, actions: MemoryActions) -> None:
        self._db = database
        self._rules = rules
        self._actions = actions
        self._added = AddedFlows(database, rules)

    # --- starting -------------------------------------------------------------------------------

    async def start(self, flows: Sequence[NewFlow]) -> Sequence[StartedFlow]:
        return self.start_all(flows)

    def start_all(self, flows: Sequence[NewFlow]) -> Sequence[StartedFlow]:
        """Store flows, all or none."""
        with self._db.moment() as now:
            self._require(flows, now)
            answers = [self._start(flow, now) for flow in flows]
        self._db.wake()
        return answers

    def preview(self, flow: NewFlow) -> StartedFlow | None:
        """Return the answer to a flow that would not be stored; raise what `start` would."""
        with self._db.moment() as now:
            self._require([flow], now)
            return self._stored(flow, now)

    def _require(self, flows: Sequence[NewFlow], now: datetime) -> None:
        jobs = [job for flow in self._new(flows, now) for _, job in flow.jobs]
        require_room(self._db, jobs, now)
        self._db.gates.require(jobs)
        self._require_free(jobs, now)

    def _stored(self, flow: NewFlow, now: datetime) -> StartedFlow | None:
        """Return the answer to a flow that is not to be stored."""
        if flow.id in self._db.flows.by_id or flow.id in self._db.flows.added:
            return StartedFlow(flow.id, created=True, repeated=True)
        holder = None if flow.key is None else self._db.flows.keys.get(flow.key)
        if holder is None or holder.gives_key_up(now):
            return None
        return StartedFlow(holder.asked.id, created=False)

    def _new(self, flows: Sequence[NewFlow], now: datetime) -> list[NewFlow]:
        """Return the flows that are to be stored. Of those with one id or key it is the first."""
        new: list[NewFlow] = []
        ids, keys = set[FlowId](), set[str]()
        for flow in flows:
            if flow.id not in ids and flow.key not in keys and self._stored(flow, now) is None:
                new.append(flow)
                ids.add(flow.id)
                if flow.key is not None:
                    keys.add(flow.key)
        return new

    def _require_free(self, jobs: Sequence[NewJob], now: datetime) -> None:
        """Refuse ids that are stored and keys that are held, also by a job of the same call."""
        seen, keys = set[str](), dict[str, NewJob]()
        for job in jobs:
            if job.id in self._db.by_id or job.id in seen:
                raise IdConflict(job.id)
            seen.add(job.id)
            if job.unique is not None:
                row = self._db.holder(job.unique.key, now)
                holder = keys.setdefault(job.unique.key, job if row is None else row.asked)
                if holder is not job:
                    raise KeyConflict(job.unique.key, holder.id)

    def _start(self, asked: NewFlow, now: datetime) -> StartedFlow:
        stored = self._stored(asked, now)  # again: an earlier one of the call may hold the key
        if stored is not None:
            return stored
        holder = None if asked.key is None else self._db.flows.keys.get(asked.key)
        if holder is not None:
            self._rules.cancel(holder, now)
        flow = self._db.flows.add(asked, now)
        self._add_jobs(flow, asked.jobs, now)
        open_flow(self._db, self._rules, flow, now)
        return StartedFlow(asked.id, created=True)

    def _add_jobs(
        self, flow: MemoryFlow, jobs: Sequence[tuple[int, NewJob]], now: datetime
    ) -> None:
        """Store jobs, all of them blocked."""
        add_jobs(self._db, flow, jobs, now)

    async def extend(
        self,
        flow: FlowId,
        jobs: Sequence[tuple[int, NewJob]],
        *,
        last: bool,
    ) -> bool:
        with self._db.moment() as now:
            found = self._db.flows.by_id.get(flow)
            if found is None:
                return False
            if any(job.id in self._db.by_id for _, job in jobs[:1]):
                return True  # a repeated call
            if found.cancelled or not found.sealed:
                return not found.cancelled
            given = [job for _, job in jobs]
            require_room(self._db, given, now)
            self._db.gates.require(given)
            self._require_free(given, now)
            self._add_jobs(found, jobs, now)
            found.extend(now)
            if last:
                self._unseal(found, now)
        self._db.wake()
        return True

    def _unseal(self, flow: MemoryFlow, now: datetime) -> None:
        flow.unseal(now)
        for part in flow.parts:
            self._db.flows.spread(part, now)

    async def add(self, flow: FlowId, new: NewFlow) -> AddAnswer:
        with self._db.moment() as now:
            found = self._db.flows.by_id.get(flow)
            if found is None:
                return AddAnswer.UNKNOWN
            if (joined := self._db.flows.added.get(new.id)) is not None and joined[0] is found:
                return AddAnswer.REPEATED
            if self._stored(new, now) is not None:
                raise IdConflict(new.id)
            if not found.takes_more(now):
                return AddAnswer.ENDED
            if found.sealed:
                return AddAnswer.SEALED
            self._require([new], now)
            end = next(part for part in found.parts if part.asked.kind is PartKind.END)
            self._added.join(new, end, now)
        self._db.wake()
        return AddAnswer.ADDED

    async def settle(self, limit: int) -> int:
        with self._db.moment() as now:
            done = self._rules.settle(limit, now)
            while done < limit and self._db.flows.retrying:
                flow = next(iter(self._db.flows.retrying.values()))
                done += self._retry_some(flow, limit - done, now)
        if done:
            self._db.wake()
        return done

    # --- actions --------------------------------------------------------------------------------

    async def act(
        self, flows: Sequence[FlowId], action: FlowAction, note: AuditNote
    ) -> Sequence[ActionResult]:
        with self._db.moment() as now:
            given = self._db.audits.answers(note)
            if given is not None:
                return given
            answers = [self._obey(flow, action, now) for flow in flows]
            effects = answers.count(ActionResult.DONE)
            if effects:
                self._db.audits.keep(note, effects, now, answers)
        self._db.wake()
        return answers

    def _obey(self, wanted: FlowId, action: FlowAction, now: datetime) -> ActionResult:
        flow = self._db.flows.by_id.get(wanted)
        if flow is None:
            return ActionResult.UNKNOWN
        if action == "retry":
            return self._retry(flow, now)
        if flow.state is not FlowState.RUNNING:
            return ActionResult.WRONG_STATE
        self._rules.cancel(flow, now)
        return ActionResult.DONE

    def _retry(self, flow: MemoryFlow, now: datetime) -> ActionResult:
        if flow.sealed or flow.state in (FlowState.RUNNING, FlowState.SUCCEEDED):
            return ActionResult.WRONG_STATE
        if flow.asked.key is not None and flow.asked.key in self._db.flows.keys:
            return ActionResult.CONFLICT
        flow.mark_cancelled(cancelled=False)
        self._db.flows.sweeping.pop(flow.asked.id, None)  # what the cancel has not reached goes on
        flow.note_retry((min(part.rank for part in flow.parts), 0))
        self._db.flows.retrying[flow.asked.id] = flow
        for part in flow.parts:
            self._db.flows.spread(part, now)
        self._retry_some(flow, RETRIED_AT_ONCE, now)
        return ActionResult.DONE

    def _retry_some(self, flow: MemoryFlow, limit: int, now: datetime) -> int:
        """Let up to ``limit`` further members of a retried flow come back; how many it met."""
        met = 0
        for part in [part for part in flow.in_order() if flow.is_returning(part)]:
            some = flow.not_retried(part)[: limit - met]
            for seq in some:
                if seq not in part.stopped and seq not in part.skipped:
                    self._actions.requeue_one(self._db.rows[seq], now)
            met += len(some)
            if met == limit:
                flow.note_retry((part.rank, some[-1]))
                return met
            flow.note_retry((part.rank + 1, 0))
            self._db.flows.spread(part, now)
        flow.note_retry(None)
        self._db.flows.retrying.pop(flow.asked.id, None)
        self._rules.reopen(flow, now)
        return max(met, 1)

    # --- looking --------------------------------------------------------------------------------

    async def members(
        self, flow: FlowId, part: int, *, after: int = 0, limit: int = 500
    ) -> Sequence[Member]:
        with self._db.view():
            found, first = self._db.flows.added.get(flow, (self._db.flows.by_id.get(flow), 0))
            part += first
            if found is None or not 0 <= part < len(found.parts):
                return []
            rows = [self._db.rows[seq] for seq in found.parts[part].members if seq > after]
            given = [row for row in rows if row.flow is not None and not row.flow.added]
            return [_member(row) for row in given[:limit]]

    async def find(
        self, wanted: FlowFilter, *, before: int | None = None, limit: int = 50
    ) -> Sequence[FlowRecord]:
        with self._db.view():
            found = [
                flow.to_record()
                for flow in reversed(self._db.flows.by_id.values())
                if (before is None or flow.number < before) and _fits(flow, wanted)
            ]
            return found[:limit]

    async def counts(self, *, cap: int) -> FlowCounts:
        with self._db.view():
            flows = self._db.flows.by_id.values()
            found = Counter(flow.state for flow in flows)
            blocked = sum(part.counts.blocked for flow in flows for part in flow.parts)
            return FlowCounts(
                **{state.value: min(found[state], cap) for state in FlowState},
                blocked=min(blocked, cap),
                oldest=min((flow.created_at for flow in self._db.flows.running()), default=None),
                cap=cap,
            )

    async def states(self, flows: Sequence[FlowId]) -> Sequence[FlowState | None]:
        with self._db.view():
            found = [self._db.flows.by_id.get(flow) for flow in flows]
            return [None if flow is None else flow.state for flow in found]

    async def graph(self, flow: FlowId) -> FlowGraph | None:
        with self._db.view():
            found = self._db.flows.by_id.get(flow)
            if found is None:
                return None
            return FlowGraph(found.to_record(), [part.to_record() for part in found.parts])

    # --- keeping --------------------------------------------------------------------------------

    async def prune(self, *, state: FlowState, older_than: timedelta, limit: int) -> int:
        with self._db.moment() as now:
            deleted = 0
            for flow in [*self._db.flows.by_id.values()]:
                if flow.state is not state or flow.ended_at is None:
                    continue
                if flow.ended_at < now - older_than and deleted < limit and not _is_busy(flow):
                    deleted += self._delete(flow)
            return deleted

    def _delete(self, flow: MemoryFlow) -> int:
        seqs = [seq for part in flow.parts for seq in part.members]
        self._db.flows.remove(flow)
        for seq in seqs:
            self._db.remove(self._db.rows[seq])
        return len(seqs)

    async def recount(self, *, after: int = 0, limit: int = 100, repair: bool = False) -> Recounted:
        with self._db.moment() as now:
            flows = [flow for flow in self._db.flows.by_id.values() if flow.number > after][:limit]
            wrong = [said for flow in flows for said in self._recount(flow, repair, now)]
            more = len(flows) == limit
            return Recounted(wrong, flows[-1].number if more else None)

    def _recount(self, flow: MemoryFlow, repair: bool, now: datetime) -> list[str]:  # noqa: FBT001
        wrong: list[str] = []
        for part in flow.parts:
            found = Counter(self._category(part, self._db.rows[seq]) for seq in part.members)
            open_ = found["blocked"] + found["open"]
            counted = {**{str(e): found[e] for e in MemberEnd}, "open": open_}
            counted |= {"blocked": found["blocked"], "total": len(part.members)}
            for name, count in counted.items():
                stored = getattr(part.counts, name)
                if stored != count:
                    wrong.append(
                        f"flow {flow.asked.id}, {part.asked.name}: {name} is {stored}, "
                        f"and {count} jobs are"
                    )
                    if repair:
                        part.counts.put(name, count)
            if repair:
                self._db.flows.spread(part, now)
        return wrong

    def _category(self, part: MemoryPart, row: JobRow) -> str:
        if not row.is_terminal():
            return "blocked" if row.blocked else "open"
        if row.seq in part.stopped:
            return MemberEnd.STOPPED
        if row.seq in part.skipped:
            return MemberEnd.SKIPPED
        return ended_as(row.state)


def _member(row: JobRow) -> Member:
    settled = row.to_settled()
    return Member(
        row.seq,
        row.asked.id,
        row.state,
        row.blocked,
        settled.result,
        settled.error_kind,
        settled.error_message,
        settled.reason,
    )


def _is_busy(flow: MemoryFlow) -> bool:
    """Return whether callbacks of an ended flow have not ended."""
    return any(p.counts.open for p in flow.parts if p.asked.kind is PartKind.CALLBACK)


def _fits(flow: MemoryFlow, wanted: FlowFilter) -> bool:
    asked = flow.asked
    return (
        (wanted.states is None or flow.state in wanted.states)
        and (wanted.name is None or asked.name == wanted.name)
        and (wanted.key is None or asked.key == wanted.key)
        and (wanted.tenant is None or asked.tenant == wanted.tenant)
    )
