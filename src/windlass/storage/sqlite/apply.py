"""Ending claims: the fence, the cancel request, and everything that follows in one transaction."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from windlass.core.instant import span_us
from windlass.core.state import FINISHING, State, Verb
from windlass.core.transition import Transition
from windlass.storage.protocol import Answer, Verdict
from windlass.storage.queries import load
from windlass.storage.sqlite.gates import gates_of, release
from windlass.storage.sqlite.keys import free_keys
from windlass.storage.sqlite.lanes import Lanes, open_gates
from windlass.storage.sqlite.rollups import Tallies
from windlass.storage.sqlite.rows import (
    CODES,
    RUNNING,
    Row,
    fetch,
    known_id,
    limits_of,
    seqs_text,
)
from windlass.storage.sqlite.waiting import frees_key_at_end

__all__ = ["HISTORY", "apply", "delete"]

_SQL = load("windlass.storage.sqlite.sql", "apply.sql")
_CLAIMS, _SUCCEED, _SUCCEED_ONE = _SQL["claims"], _SQL["succeed"], _SQL["succeed_one"]
_END, _END_WITH_ERROR = _SQL["end"], _SQL["end_with_error"]
_REMEMBER, _FORGET_OLD = _SQL["remember"], _SQL["forget_old"]
_DELETE_JOBS, _DELETE_HISTORY = _SQL["delete_jobs"], _SQL["delete_history"]

HISTORY = 32
"""Ended claims that a job remembers."""

_TOGETHER = 4
"""Successes with one result that are worth a statement of their own."""

_APPLIED = {verb: Answer(Verdict.APPLIED, verb) for verb in FINISHING}
_REPEATED = {verb.value: Answer(Verdict.REPEATED, verb) for verb in FINISHING}
_REFUSED, _UNKNOWN = Answer(Verdict.REFUSED), Answer(Verdict.UNKNOWN)


def apply(connection: apsw.Connection, transitions: Sequence[Transition], now: int) -> list[Answer]:
    """`JobStore.apply` at the instant ``now``."""
    seqs = [transition.claim.seq for transition in transitions]
    if len(set(seqs)) == len(seqs):
        return _apply(connection, transitions, seqs, now)
    # One job twice in a batch: each must see what the one before it did.
    return [
        answer
        for transition, seq in zip(transitions, seqs, strict=True)
        for answer in _apply(connection, [transition], [seq], now)
    ]


def _apply(
    connection: apsw.Connection, transitions: Sequence[Transition], seqs: Sequence[int], now: int
) -> list[Answer]:
    """Judge each on its own, then write all together."""
    rows: dict[int, Row] = {row[0]: row for row in fetch(connection, _CLAIMS, (seqs_text(seqs),))}
    endings = _Endings(connection, now)
    answers: list[Answer] = []
    for transition in transitions:
        claim = transition.claim
        row = rows.get(claim.seq)
        if row is None or row[1] != known_id(claim.job):
            answers.append(_UNKNOWN)
        elif row[2] != RUNNING or row[3] != claim.number:
            answers.append(_answer_late(row, transition))
        else:
            verb = transition.verb
            if row[4] and transition.if_cancelled is not None:
                verb = transition.if_cancelled
            endings.accept(row, transition, verb)
            answers.append(_APPLIED[verb])
    endings.store()
    return answers


def _answer_late(row: Row, transition: Transition) -> Answer:
    number, verb, by = row[15:18]
    if number == transition.claim.number and by == transition.by:
        return _REPEATED[verb]
    return _REFUSED


class _Endings:
    """The accepted transitions of one operation."""

    def __init__(self, connection: apsw.Connection, now: int) -> None:
        self._connection, self._now = connection, now
        self._tallies = Tallies(now)
        self._lanes = Lanes(connection)
        self._succeeded: dict[tuple[str, bytes | None], list[int]] = {}
        self._ended: list[Row] = []
        self._ended_with_error: list[Row] = []
        self._history: list[Row] = []
        self._forgotten: list[tuple[int, int]] = []
        self._deleted: list[int] = []
        self._freed: list[tuple[str, int]] = []
        self._released: list[tuple[str, int]] = []

    def accept(self, row: Row, transition: Transition, verb: Verb) -> None:
        seq, _, _, _, _, queue, task, worker, due, started_at = row[:10]
        self._tallies.add(queue, task, worker, verb.value, due, started_at)
        if row[13] is not None:
            self._released += [(gate, seq) for gate in gates_of(limits_of(row[13]))]
        if FINISHING[verb] is State.WAITING:
            self._return(row, transition, verb)
        else:
            self._finish(row, transition, verb)

    def _return(self, row: Row, transition: Transition, verb: Verb) -> None:
        """The job waits again."""
        seq, queue, attempt, limits = row[0], row[5], row[10], row[13]
        due = self._now + span_us(transition.delay)
        lane, ready = None, 0
        if due <= self._now:
            ready = 3 if transition.solo else 1
            if ready == 1 and limits is not None:
                ready, lane = 2, self._lanes.enter(queue, limits_of(limits))
        if transition.refund:
            attempt = max(0, attempt - 1)
        self._remember(row, transition, verb)
        self._end(
            row, transition, verb, (seq, CODES[State.WAITING], ready, lane, due, attempt, None)
        )

    def _finish(self, row: Row, transition: Transition, verb: Verb) -> None:
        """The job is over."""
        seq = row[0]
        if frees_key_at_end(row[12]) or (row[11] is not None and not transition.keep):
            self._freed.append((row[11], seq))
        if not transition.keep:
            self._deleted.append(seq)
        elif verb is Verb.SUCCEED:
            group = (transition.by, transition.result)
            self._succeeded.setdefault(group, []).append(seq)
        else:
            self._remember(row, transition, verb)
            place = (seq, CODES[FINISHING[verb]], None, None, row[8], row[10], self._now)
            self._end(row, transition, verb, place)

    def _end(self, row: Row, transition: Transition, verb: Verb, place: Row) -> None:
        missed_at = None
        if verb is Verb.RELEASE:
            missed_at = row[14]
            if missed_at is None and transition.missed:
                missed_at = self._now
        values = (
            *place,
            verb.value,
            transition.by,
            transition.lost,
            int(transition.solo),
            missed_at,
        )
        error = transition.error
        if error is None:
            self._ended.append(values)
        else:
            self._ended_with_error.append((*values, error.kind, error.message, error.traceback))

    def _remember(self, row: Row, transition: Transition, verb: Verb) -> None:
        seq, number, worker, started_at, attempt = row[0], row[3], row[7], row[9], row[10]
        error = transition.error
        said = (None,) * 3 if error is None else (error.kind, error.message, error.traceback)
        self._history.append(
            (seq, number, attempt, verb.value, worker, started_at, self._now, *said)
        )
        if number > HISTORY:
            self._forgotten.append((seq, number - HISTORY))

    # --- writing ------------------------------------------------------------------------------

    def store(self) -> None:
        connection = self._connection
        self._store_successes()
        for statement, rows in (
            (_END, self._ended),
            (_END_WITH_ERROR, self._ended_with_error),
            (_REMEMBER, self._history),
            (_FORGET_OLD, self._forgotten),
        ):
            if rows:
                connection.executemany(statement, rows)
        if self._freed:
            free_keys(connection, self._freed)
        if self._deleted:
            delete(connection, self._deleted)
        if self._released:
            release(connection, self._released)
            open_gates(connection, {gate for gate, _ in self._released})
        self._lanes.settle()
        self._tallies.store(connection)

    def _store_successes(self) -> None:
        """Most handlers return the same, so most successes share a statement."""
        apart: list[Row] = []
        for (by, result), seqs in self._succeeded.items():
            if len(seqs) >= _TOGETHER:
                self._connection.execute(_SUCCEED, (seqs_text(seqs), self._now, by, result))
            else:
                apart += [(seq, self._now, by, result) for seq in seqs]
        if apart:
            self._connection.executemany(_SUCCEED_ONE, apart)


def delete(connection: apsw.Connection, seqs: Sequence[int]) -> None:
    """Remove jobs with their history. Their keys are the caller's to free."""
    text = seqs_text(seqs)
    connection.execute(_DELETE_JOBS, (text,))
    connection.execute(_DELETE_HISTORY, (text,))
