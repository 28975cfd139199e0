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
    WAITING,
    Row,
    fetch,
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

# The columns of ``claims``, in order.
_SEQ, _STATE, _NUMBER, _CANCEL, _QUEUE, _TASK, _WORKER, _DUE, _STARTED, _ATTEMPT = range(10)
_KEY, _WINDOW, _LIMITS, _MISSED, _ENDED, _ENDED_VERB, _ENDED_BY, _PRIORITY = range(10, 18)

_SUCCESS = Verb.SUCCEED
_RETURNING = {verb for verb, state in FINISHING.items() if state is State.WAITING}

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
        if row is None:
            answers.append(_UNKNOWN)
        elif row[_STATE] != RUNNING or row[_NUMBER] != claim.number:
            answers.append(_answer_late(row, transition))
        else:
            verb = transition.verb
            if row[_CANCEL] and transition.if_cancelled is not None:
                verb = transition.if_cancelled
            endings.accept(row, transition, verb)
            answers.append(_APPLIED[verb])
    endings.store()
    return answers


def _answer_late(row: Row, transition: Transition) -> Answer:
    if (row[_ENDED], row[_ENDED_BY]) == (transition.claim.number, transition.by):
        return _REPEATED[row[_ENDED_VERB]]
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
        self._tallies.add(row[_QUEUE : _WORKER + 1], verb, row[_DUE], row[_STARTED])
        if row[_LIMITS] is not None:
            self._released += [(gate, row[_SEQ]) for gate in gates_of(limits_of(row[_LIMITS]))]
        if verb in _RETURNING:
            self._return(row, transition, verb)
            return
        if row[_KEY] is not None and (not transition.keep or frees_key_at_end(row[_WINDOW])):
            self._freed.append((row[_KEY], row[_SEQ]))
        if not transition.keep:
            self._deleted.append(row[_SEQ])
        elif verb is _SUCCESS:
            group = (transition.by, transition.result)
            self._succeeded.setdefault(group, []).append(row[_SEQ])
        else:
            self._remember(row, transition, verb)
            end = (CODES[FINISHING[verb]], None, None, row[_DUE], row[_ATTEMPT], self._now)
            self._end(row, transition, verb, end)

    def _return(self, row: Row, transition: Transition, verb: Verb) -> None:
        """The job waits again."""
        due = self._now + span_us(transition.delay)
        lane, ready = None, 0
        if due <= self._now:
            ready = 3 if transition.solo else 1
            if ready == 1 and row[_LIMITS] is not None:
                place = (row[_PRIORITY], due, row[_SEQ])
                ready, lane = 2, self._lanes.enter(row[_QUEUE], limits_of(row[_LIMITS]), place)
        attempt = max(0, row[_ATTEMPT] - 1) if transition.refund else row[_ATTEMPT]
        self._remember(row, transition, verb)
        self._end(row, transition, verb, (WAITING, ready, lane, due, attempt, None))

    def _end(self, row: Row, transition: Transition, verb: Verb, place: Row) -> None:
        missed_at = None
        if verb is Verb.RELEASE:
            missed_at = row[_MISSED]
            if missed_at is None and transition.missed:
                missed_at = self._now
        values = (
            row[_SEQ],
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
        error = transition.error
        said = (None,) * 3 if error is None else (error.kind, error.message, error.traceback)
        self._history.append(
            (
                row[_SEQ],
                row[_NUMBER],
                row[_ATTEMPT],
                verb.value,
                row[_WORKER],
                row[_STARTED],
                self._now,
                *said,
            )
        )
        if row[_NUMBER] > HISTORY:
            self._forgotten.append((row[_SEQ], row[_NUMBER] - HISTORY))

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
