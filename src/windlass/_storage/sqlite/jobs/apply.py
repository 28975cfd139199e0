"""Ending claims: the fence, the cancel request, and everything that follows in one transaction."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from windlass._core.job.job import NewJob
from windlass._core.job.state import FINISHING, Verb
from windlass._core.job.transition import Transition
from windlass._storage.protocol.jobs import TransitionAnswer, Verdict
from windlass._storage.shared.insert_rules import skip_if_key_held
from windlass._storage.shared.sql_files import load_sql
from windlass._storage.shared.time_bounds import instant_of
from windlass._storage.sqlite.io.rows import RUNNING, Row, fetch, first, seqs_text
from windlass._storage.sqlite.jobs.apply_effects import AcceptedTransition, ApplyEffects
from windlass._storage.sqlite.jobs.insert import insert, require_limits
from windlass._storage.sqlite.jobs.unique_keys import retake_keys
from windlass._storage.sqlite.queues import CooldownChanges

__all__ = ["apply"]

_SQL = load_sql("windlass._storage.sqlite.sql", "apply.sql")
_CLAIMS, _ENDED = _SQL["claims"], _SQL["ended"]

# Columns of ``claims`` in apply.sql.
_STATE, _NUMBER, _CANCEL, _QUEUE, _FREES = 1, 2, 3, 4, 9

_SUCCEED = Verb.SUCCEED
_SUCCEEDED = TransitionAnswer(Verdict.APPLIED, Verb.SUCCEED)
_APPLIED = {verb: TransitionAnswer(Verdict.APPLIED, verb) for verb in FINISHING}
_REPEATED = {verb.value: TransitionAnswer(Verdict.REPEATED, verb) for verb in FINISHING}
_REFUSED, _UNKNOWN = TransitionAnswer(Verdict.REFUSED), TransitionAnswer(Verdict.UNKNOWN)


def apply(
    connection: apsw.Connection, transitions: Sequence[Transition], now: int
) -> list[TransitionAnswer]:
    """`JobStore.apply` at the instant ``now``."""
    announced = [transition.then for transition in transitions if transition.then is not None]
    if announced:
        require_limits(connection, announced)
    following: list[NewJob] = []
    unstarted: list[tuple[int, str]] = []
    seqs = [transition.claim.seq for transition in transitions]
    if len(set(seqs)) == len(seqs):
        answers = _apply(connection, transitions, now, following, unstarted)
    else:
        # One job twice in a batch: each must see what the one before it did.
        answers = [
            answer
            for transition in transitions
            for answer in _apply(connection, [transition], now, following, unstarted)
        ]
    if unstarted:
        retake_keys(connection, sorted(unstarted), now)
    if following:
        # After all of them: what follows may take whatever any of them gave back.
        insert(connection, following, now)
    return answers


def _apply(
    connection: apsw.Connection,
    transitions: Sequence[Transition],
    now: int,
    following: list[NewJob],
    unstarted: list[tuple[int, str]],
) -> list[TransitionAnswer]:
    """Judge each on its own, then write all together; what is to follow is added to lists."""
    seqs = seqs_text([transition.claim.seq for transition in transitions])
    rows: dict[int, Row] = {row[0]: row for row in fetch(connection, _CLAIMS, (seqs,))}
    endings, rests = ApplyEffects(connection, now), CooldownChanges(connection, now)
    succeed, others = endings.succeed, endings.others
    answers: list[TransitionAnswer] = []
    for transition in transitions:
        claim = transition.claim
        row = rows.get(claim.seq)
        if row is None:
            answers.append(_UNKNOWN)
        elif row[_STATE] != RUNNING or row[_NUMBER] != claim.number:
            answers.append(_answer_late(connection, transition))
        elif (
            transition.verb is _SUCCEED
            and transition.keep
            and transition.then is None
            and not row[_FREES]
            and row[_QUEUE] not in rests.forgivable
        ):
            succeed(row, transition)
            answers.append(_SUCCEEDED)
        else:
            verb = transition.verb
            if row[_CANCEL] and transition.if_cancelled is not None:
                verb = transition.if_cancelled
            ending, answer = _judge(transition, verb, row, rests)
            others.append(ending)
            answers.append(answer)
            if verb is transition.verb and transition.then is not None:
                following.append(skip_if_key_held(transition.then))
    rests.store()
    endings.store()
    unstarted += endings.unstarted
    return answers


def _judge(
    transition: Transition, verb: Verb, row: Row, rests: CooldownChanges
) -> tuple[AcceptedTransition, TransitionAnswer]:
    """What an accepted transition means for its queue, and by that for the job."""
    if verb is Verb.THROTTLE and transition.cools:
        until, cooled = rests.cool(row[_QUEUE], transition.cools, transition.delay)
        answer = TransitionAnswer(Verdict.APPLIED, verb, instant_of(until), cooled)
        return AcceptedTransition(transition, verb, row, until), answer
    if verb is Verb.SUCCEED and row[_QUEUE] in rests.forgivable:
        rests.forgive(row[_QUEUE])
    return AcceptedTransition(transition, verb, row), _APPLIED[verb]


def _answer_late(connection: apsw.Connection, transition: Transition) -> TransitionAnswer:
    """The claim does not hold: because this very caller has ended it, or for another reason."""
    number, verb, by = first(connection, _ENDED, (transition.claim.seq,)) or (None, "", "")
    if number == transition.claim.number and by == transition.by:
        return _REPEATED[verb]
    return _REFUSED
