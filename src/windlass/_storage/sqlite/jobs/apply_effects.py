"""Effects of accepted transitions: collected first, then written in few statements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import apsw

from windlass._core.job.error_origin import frame_of
from windlass._core.job.job import LimitUse
from windlass._core.job.state import FAILURE_VERBS, FINISHING, State, Verb
from windlass._core.job.transition import Transition
from windlass._core.job.unique import Window
from windlass._core.values.instants import add_clamped_us, span_us
from windlass._storage.shared.sql_files import load_sql
from windlass._storage.shared.stored_text import metadata_text
from windlass._storage.sqlite.io.rows import CODES, WAITING, Row, fetch_shown, limits_of, seqs_text
from windlass._storage.sqlite.jobs.unique_keys import free_keys
from windlass._storage.sqlite.jobs.waiting_jobs import frees_key_at_end
from windlass._storage.sqlite.journal import forget_journal
from windlass._storage.sqlite.limits.budgets import SqliteBudgets, budgets_of, release_budgets
from windlass._storage.sqlite.limits.lanes import LaneChanges, unblock_lanes

__all__ = [
    "HISTORY_WITH_ERROR",
    "AcceptedTransition",
    "ApplyEffects",
    "Finish",
    "LimitedSuccess",
    "Successes",
    "delete_jobs",
]

_SQL = load_sql("windlass._storage.sqlite.sql", "apply.sql")
_DETAILS = _SQL["details"]
_END, _END_WITH_ERROR = _SQL["end"], _SQL["end_with_error"]
_REMEMBER, _FORGET_OLD = _SQL["remember"], _SQL["forget_old"]
_NOTE_METADATA = _SQL["note_metadata"]
_DELETE_JOBS, _DELETE_HISTORY = _SQL["delete_jobs"], _SQL["delete_history"]

HISTORY_WITH_ERROR = 32
"""Ended claims with an error that a job remembers."""
HISTORY_WITHOUT_ERROR = 8
"""And without one: snoozes and their like push no error out."""

_RETURNING = {verb for verb, state in FINISHING.items() if state is State.WAITING}


class AcceptedTransition(NamedTuple):
    """An accepted transition, the verb that takes effect, and the row of ``claims``."""

    transition: Transition
    verb: Verb
    row: Row
    rests_until: int = 0
    """When the job's queue has rested: what comes back is due no sooner."""


class LimitedSuccess(NamedTuple):
    """A plain success of a job with limits: what it frees is all that is left to do."""

    seq: int
    limits: bytes


class _Details(NamedTuple):
    """A row of ``details`` in apply.sql."""

    seq: int
    attempt: int
    priority: int
    key: str | None
    window: str | None
    limits: str | None
    missed_at: int | None
    key_spent: int


Finish = tuple[Verb, Row]
"""An accepted finish, as rollups count it."""

Successes = dict[tuple[str, bytes | None], list[Row]]
"""Successes, by who ended them and their result."""


class ApplyEffects:
    """The effects of every ending that is no plain success, and of all endings on limits."""

    def __init__(
        self, connection: apsw.Connection, now: int, finishes: list[Finish], successes: Successes
    ) -> None:
        """Make it. The endings are added to ``finishes``, successes that are kept to
        ``successes``: the caller stores those with its own.
        """
        self._connection, self._now = connection, now
        self._finishes, self._successes = finishes, successes
        self._lanes, self._gates = LaneChanges(connection), SqliteBudgets(connection, now)
        self._ended: list[Row] = []
        self._ended_with_error: list[Row] = []
        self._history: list[Row] = []
        self._forgotten: list[tuple[int, int, int]] = []
        self._noted: list[tuple[int, str | None]] = []
        self._deleted: list[int] = []
        self._freed: list[tuple[str, int]] = []
        self._released: list[tuple[str, int]] = []
        self._unstarted: list[tuple[int, str]] = []

    def collect(
        self, endings: Sequence[AcceptedTransition | LimitedSuccess]
    ) -> list[tuple[int, str]]:
        """Collect all effects, in this order: breakers count failures in a row. The answer: jobs
        that were not started, and the keys they held before the claim.
        """
        seqs = [ending.row[0] for ending in endings if isinstance(ending, AcceptedTransition)]
        rows = fetch_shown(self._connection, _DETAILS, (seqs_text(seqs),)) if seqs else ()
        details = {row[0]: _Details(*row) for row in rows}
        for ending in endings:
            if isinstance(ending, AcceptedTransition):
                self._accept(ending, details[ending.row[0]])
            else:
                uses = limits_of(ending.limits)
                self._release(ending.seq, uses)
                self._gates.close(uses)
        return self._unstarted

    def _release(self, seq: int, uses: tuple[LimitUse, ...]) -> None:
        for gate in budgets_of(uses):
            self._released.append((gate, seq))

    def _accept(self, ending: AcceptedTransition, job: _Details) -> None:
        transition, verb, row, _ = ending
        self._finishes.append((verb, row))
        if transition.metadata:
            self._noted.append((job.seq, metadata_text(transition.metadata)))
        if job.limits is not None:
            uses = limits_of(job.limits)
            self._release(job.seq, uses)
            self._tell_gates(ending, uses)
        if verb in _RETURNING:
            self._return(ending, job)
            return
        keep = transition.keep or row[10] is not None  # a member stays as long as its flow
        if job.key is not None and (not keep or frees_key_at_end(job.window)):
            self._freed.append((job.key, job.seq))
        if not keep:
            self._deleted.append(job.seq)
        elif verb is Verb.SUCCEED:
            self._successes.setdefault((transition.by, transition.result), []).append(row)
        else:
            state, due = CODES[FINISHING[verb]], row[7]
            self._end(ending, job, (state, None, None, due, job.attempt, self._now))

    def _tell_gates(self, ending: AcceptedTransition, uses: tuple[LimitUse, ...]) -> None:
        """Apply the effect of the outcome on jobs that draw on the same gates."""
        if ending.verb in FAILURE_VERBS:
            self._gates.trip(uses)
        elif ending.verb is Verb.SUCCEED:
            self._gates.close(uses)
        elif ending.verb is Verb.THROTTLE and ending.transition.drains:
            self._gates.drain(uses)

    def _return(self, ending: AcceptedTransition, job: _Details) -> None:
        """Let the job wait again."""
        transition, row = ending.transition, ending.row
        due = max(add_clamped_us(self._now, span_us(transition.delay)), ending.rests_until)
        lane, ready = None, 0
        if due <= self._now:
            ready = 3 if transition.solo else 1
            if ready == 1 and job.limits is not None:
                place = (job.priority, due, job.seq)
                uses = limits_of(job.limits)
                # An unreadable job is left to the step that makes it ready, and fails there.
                ready = 2 if uses else 0
                lane = self._lanes.enter(row[4], uses, place) if uses else None
        attempt = max(0, job.attempt - 1) if transition.refund else job.attempt
        until_started = job.window == Window.UNTIL_STARTED.value and not job.key_spent
        if job.key is not None and until_started and not transition.started:
            self._unstarted.append((job.seq, job.key))
        self._end(ending, job, (WAITING, ready, lane, due, attempt, None))

    def _end(self, ending: AcceptedTransition, job: _Details, place: Row) -> None:
        """Store where the job is now, and remember this claim."""
        transition, verb, row, _ = ending
        number, worker, started_at = row[2], row[6], row[8]
        missed_at = why = None
        error = transition.error
        if verb is Verb.RELEASE:
            missed_at = job.missed_at or (self._now if transition.missed else None)
            if transition.missed:
                why, error = "" if error is None else error.message, None
        said = () if error is None else (error.kind, error.message, error.traceback)
        begun = int(transition.started and verb in _RETURNING)
        marks = (transition.by, transition.lost, int(transition.solo), missed_at, begun)
        if error is None:
            self._ended.append((job.seq, *place, verb.value, *marks, why))
        else:
            frame = frame_of(error.traceback)
            self._ended_with_error.append((job.seq, *place, verb.value, *marks, *said, frame))
        if why is not None:
            return  # nothing ran, so there is nothing to remember
        self._history.append(
            (job.seq, number, job.attempt, verb.value, worker, started_at, self._now)
            + (said or (None, None, None))
            + (metadata_text(transition.metadata),)
        )
        most = HISTORY_WITHOUT_ERROR if error is None else HISTORY_WITH_ERROR
        if number > most:
            self._forgotten.append((job.seq, most, int(error is None)))

    def write(self) -> None:
        """Write everything but the successes, which must be stored before: they drop metadata."""
        statements: Sequence[tuple[str, Sequence[tuple[Any, ...]]]] = (
            (_END, self._ended),
            (_END_WITH_ERROR, self._ended_with_error),
            (_REMEMBER, self._history),
            (_FORGET_OLD, self._forgotten),
            (_NOTE_METADATA, self._noted),
        )
        for statement, rows in statements:
            self._connection.executemany(statement, rows)
        free_keys(self._connection, self._freed)
        delete_jobs(self._connection, self._deleted)
        release_budgets(self._connection, self._released)
        unblock_lanes(self._connection, {gate for gate, _ in self._released})
        self._lanes.settle()
        self._lanes.store(self._gates, {})


def delete_jobs(connection: apsw.Connection, seqs: Sequence[int]) -> None:
    """Remove jobs with all that is written down of them. Their keys are the caller's to free."""
    if seqs:
        text = seqs_text(seqs)
        connection.execute(_DELETE_JOBS, (text,))
        connection.execute(_DELETE_HISTORY, (text,))
        forget_journal(connection, seqs)
