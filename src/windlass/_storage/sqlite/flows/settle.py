"""Settling: what becomes of the blocked jobs of parts that are due, and of cancelled flows."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from windlass._core.flows.part import Decision, MemberEnd, coming_back
from windlass._core.job.job import JobId
from windlass._core.job.state import State
from windlass._core.values.instants import LAST_US
from windlass._storage.shared.sql_files import load_sql
from windlass._storage.sqlite.flows.parts import (
    BLOCKED,
    SKIPPED,
    STOPPED,
    CountedPart,
    PartChanges,
)
from windlass._storage.sqlite.io.rows import (
    CODES,
    NEVER,
    RUNNING,
    WAITING,
    Row,
    fetch,
    first,
    seqs_text,
    value_of,
)
from windlass._storage.sqlite.jobs.unique_keys import find_holder, free_keys, take_key
from windlass._storage.sqlite.jobs.waiting_jobs import end_waiting, frees_key_at_end
from windlass._storage.sqlite.limits.lanes import LaneChanges

__all__ = [
    "SETTLED_AT_ONCE",
    "SETTLED_BY_APPLY",
    "cancel_flow",
    "is_unsettled",
    "reopen_flow",
    "settle",
    "store_and_settle",
    "sweep_from_start",
]

_ENDS = {MemberEnd.STOPPED: STOPPED, MemberEnd.SKIPPED: SKIPPED}
_SQL = load_sql("windlass._storage.sqlite.sql", "flows.sql")
_FIRST_DUE = _SQL["first_due"]
_IS_UNSETTLED, _UNSETTLED = _SQL["is_unsettled"], _SQL["unsettled"]
_LATE, _DUE_PART = _SQL["late"], _SQL["due_part"]
_SETTLEABLE, _PLACE, _END_BLOCKED = _SQL["settleable"], _SQL["place"], _SQL["end_blocked"]
_BLOCK_AGAIN, _LEAVE_ENDED = _SQL["block_again"], _SQL["leave_ended"]
_FORGET_DUE, _FIRST_BROKEN = _SQL["forget_due"], _SQL["first_broken"]
_SWEEPING, _SWEEPABLE = _SQL["sweeping"], _SQL["sweepable"]
_NEXT_SWEPT, _NOTE_SWEPT = _SQL["next_swept"], _SQL["note_swept"]
_CANCEL, _PART_IDS = _SQL["cancel"], _SQL["part_ids"]
_REQUEST_CANCEL = load_sql("windlass._storage.sqlite.sql", "jobs.sql")["request_cancel"]

SETTLED_AT_ONCE, SETTLED_BY_APPLY = 200, 100
"""Members of flows that one write settles at most, and one that also ends claims. Claims wait for
both."""


def is_unsettled(connection: apsw.Connection, now: int) -> bool:
    """Return whether `settle` has something to do."""
    return bool(connection.execute(_IS_UNSETTLED, (now,)).get)


def settle(connection: apsw.Connection, limit: int, now: int) -> int:
    """`FlowStore.settle` at the instant ``now``."""
    done = 0
    ((part, sweeping, late),) = fetch(connection, _UNSETTLED, (now,))
    if sweeping or late:
        for (flow,) in fetch(connection, _LATE, (now, limit)):
            cancel_flow(connection, flow, now)
        while done < limit and (sweep := first(connection, _SWEEPING)) is not None:
            done += _sweep(connection, sweep, limit - done, now)
        part = value_of(connection, _DUE_PART)
    while done < limit and part is not None:
        done += _settle_part(connection, part, limit - done, now)
        part = value_of(connection, _DUE_PART)
    return done


def store_and_settle(connection: apsw.Connection, changes: PartChanges, now: int) -> None:
    """Store changes of parts, and settle what they make due.

    Parts that open are written once, if nothing else waits to be settled. Whatever does may have
    to be settled before them, and is found in what is stored.
    """
    limit, others = SETTLED_BY_APPLY, is_unsettled(connection, now)
    changes.spread()
    while limit and not others and (due := changes.first_due()) is not None:
        part = changes.get(due)
        placed = _place(connection, changes, part, limit, now) if _opens(part) else 0
        changes.spread()
        limit, others = limit - placed, not placed
    changes.store()
    if others:
        settle(connection, limit, now)


def cancel_flow(connection: apsw.Connection, flow: int, now: int) -> None:
    """Mark a flow. Its members follow in portions."""
    sweep_from_start(connection, flow)
    changes = PartChanges(connection, now)
    changes.touch(part for (part,) in fetch(connection, _PART_IDS, (flow,)))
    changes.store()


def sweep_from_start(connection: apsw.Connection, flow: int) -> None:
    """Let the cancel of a flow reach all its members, again."""
    connection.execute(_CANCEL, (flow,))


def reopen_flow(connection: apsw.Connection, flow: int, now: int) -> None:
    """Let a retried flow run from this write on: block at least one of its members again.

    None is if others hold the keys of all of them.
    """
    while (part := value_of(connection, _FIRST_DUE, (flow,))) is not None:
        _settle_part(connection, part, SETTLED_BY_APPLY, now)


def _sweep(connection: apsw.Connection, sweep: Row, limit: int, now: int) -> int:
    """Cancel members that wait, and ask the workers of running ones."""
    flow, part, after = sweep
    rows = fetch(connection, _SWEEPABLE, (part, after, limit))
    running = [(seq,) for seq, state, _ in rows if state == RUNNING]
    connection.executemany(_REQUEST_CANCEL, running)
    waiting = [seq for seq, state, held in rows if state == WAITING and held is None]
    if waiting:
        lanes = LaneChanges(connection)
        end_waiting(connection, waiting, lanes, state=State.CANCELLED, reason=None, now=now)
        lanes.settle()
    if len(rows) == limit:
        connection.execute(_NOTE_SWEPT, (flow, part, rows[-1][0]))
    else:
        following = first(connection, _NEXT_SWEPT, (flow, part))
        connection.execute(_NOTE_SWEPT, (flow, following and following[0], 0))
    return max(len(rows), 1)


# --- parts --------------------------------------------------------------------------------------


def _settle_part(connection: apsw.Connection, number: int, limit: int, now: int) -> int:
    """Do what the part's numbers say with up to ``limit`` of its jobs."""
    changes = PartChanges(connection, now)
    part = changes.get(number)
    if _opens(part):
        done = _place(connection, changes, part, limit, now)
    elif _comes_back(part):
        done = _block_again(connection, changes, part, limit, now)
    else:
        done = _end_blocked(connection, changes, part, limit, now)
    changes.store()
    if not done:
        # Its counts are wrong, which a recount finds. It must not stop the others.
        connection.execute(_FORGET_DUE, (part.id,))
    return done


def _opens(part: CountedPart) -> bool:
    """Return whether its blocked jobs may start, and all of them are blocked."""
    return part.decision is Decision.OPEN and not _comes_back(part)


def _comes_back(part: CountedPart) -> bool:
    """Return whether jobs of it were stopped or skipped, and are to be blocked again."""
    return any(getattr(part.counts, end) for end in coming_back(part.decision))


def _place(
    connection: apsw.Connection, changes: PartChanges, part: CountedPart, limit: int, now: int
) -> int:
    """Let blocked jobs wait for their due time."""
    connection.execute(_PLACE, (part.id, now, LAST_US, part.started, limit))
    placed = connection.changes()
    changes.add(part.id, blocked=-placed)
    return placed


def _members(connection: apsw.Connection, part: CountedPart, state: int, limit: int) -> list[Row]:
    return fetch(connection, _SETTLEABLE, (part.id, state, limit))


def _seqs(rows: Sequence[Row]) -> str:
    return seqs_text([row[0] for row in rows])


def _end_blocked(
    connection: apsw.Connection, changes: PartChanges, part: CountedPart, limit: int, now: int
) -> int:
    """Stop or skip blocked jobs."""
    rows = [] if part.decision is Decision.WAIT else _members(connection, part, BLOCKED, limit)
    ended = -len(rows)
    if part.decision is Decision.SKIP:
        values = (CODES[State.DISCARDED], SKIPPED, now, "not needed")
        changes.add(part.id, open=ended, blocked=ended, skipped=len(rows))
    else:
        values = (CODES[State.CANCELLED], STOPPED, now, _reason(connection, part))
        changes.add(part.id, open=ended, blocked=ended, stopped=len(rows))
    connection.execute(_END_BLOCKED, (_seqs(rows), *values, LAST_US))
    free_keys(connection, [(key, seq) for seq, key, window, _ in rows if frees_key_at_end(window)])
    return len(rows)


def _reason(connection: apsw.Connection, part: CountedPart) -> str:
    if part.cancelled:
        return "its flow was cancelled"
    before = first(connection, _FIRST_BROKEN, (part.id,))
    return "what it waits for failed" if before is None else f"after {before[0]}, which failed"


def _block_again(
    connection: apsw.Connection, changes: PartChanges, part: CountedPart, limit: int, now: int
) -> int:
    """Block jobs that were stopped or skipped: what did that is undone."""
    done = 0
    for end in coming_back(part.decision):
        rows = _members(connection, part, _ENDS[end], limit - done)
        held = [row for row in rows if row[1] is not None and not _retake(connection, row, now)]
        back = [row for row in rows if row not in held]
        connection.execute(_BLOCK_AGAIN, (_seqs(back), NEVER))
        changes.add(part.id, open=len(back), blocked=len(back), cancelled=len(held))
        changes.add(part.id, **{end.value: -len(rows)})
        done += len(rows)
    return done


def _retake(connection: apsw.Connection, row: Row, now: int) -> bool:
    """Let a job hold its key again. If another one took it, it stays ended, as a failure."""
    seq, key, _, period = row
    holder = find_holder(connection, key, now)
    if holder is None:
        take_key(connection, key, seq, period=period, now=now)
    elif holder.seq != seq:
        reason = f"its key is held by job {JobId(holder.id.hex())}"
        connection.execute(_LEAVE_ENDED, (seq, reason))
        return False
    return True
