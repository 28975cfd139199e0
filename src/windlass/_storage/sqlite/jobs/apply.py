"""Ending claims: the fence, the cancel request, and everything that follows in one transaction."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence

import apsw
import msgspec

from windlass._core.flows.part import ended_as
from windlass._core.job.job import JobId, NewJob
from windlass._core.job.state import FINISHING, State, Verb
from windlass._core.job.transition import Transition
from windlass._core.limits.cooldown import RESET_AFTER
from windlass._core.stats.rollup import BUCKET_TOPS
from windlass._core.values.instants import instant_of, span_us
from windlass._storage.protocol.jobs import Applied, TransitionAnswer, Verdict
from windlass._storage.shared.insert_rules import skip_if_key_held
from windlass._storage.shared.job_ids import id_of
from windlass._storage.shared.sql_files import load_sql
from windlass._storage.sqlite.flows.added import FlowAdditions, FlowToAdd, add_flows
from windlass._storage.sqlite.flows.parts import PartChanges, places_of
from windlass._storage.sqlite.flows.settle import store_and_settle
from windlass._storage.sqlite.flows.start import timing_text
from windlass._storage.sqlite.io.rows import RUNNING, Row, first, ids_text
from windlass._storage.sqlite.jobs.apply_effects import (
    AcceptedTransition,
    ApplyEffects,
    Finish,
    LimitedSuccess,
    Successes,
)
from windlass._storage.sqlite.jobs.insert import insert, require_limits
from windlass._storage.sqlite.jobs.unique_keys import retake_keys
from windlass._storage.sqlite.queues import CooldownChanges

__all__ = ["apply", "histogram"]

_SQL = load_sql("windlass._storage.sqlite.sql", "apply.sql")
_CLAIMS, _ENDED = _SQL["claims"], _SQL["ended"]
_SUCCEED_MANY, _SUCCEED_ONE = _SQL["succeed"], _SQL["succeed_one"]
_FLOWS = load_sql("windlass._storage.sqlite.sql", "flows.sql")
_JOIN, _NOTE_TIMING = _FLOWS["join"], _FLOWS["note_timing"]
_FORGIVABLE = load_sql("windlass._storage.sqlite.sql", "queues.sql")["forgivable"]
_ROLLUPS = load_sql("windlass._storage.sqlite.sql", "rollups.sql")
_ROLLUP, _PUT = _ROLLUPS["rollup"], _ROLLUPS["put_rollup"]

# Columns of ``claims`` in apply.sql.
_STATE, _NUMBER, _CANCEL, _QUEUE, _FREES, _PART = 1, 2, 3, 4, 9, 10
_KEY = 1
"""In `_FREES`: the end frees a key."""

_SUCCEED = Verb.SUCCEED
_SUCCEEDED = TransitionAnswer(Verdict.APPLIED, Verb.SUCCEED)
_APPLIED = {verb: TransitionAnswer(Verdict.APPLIED, verb) for verb in FINISHING}
_REPEATED = {verb.value: TransitionAnswer(Verdict.REPEATED, verb) for verb in FINISHING}
_REFUSED, _UNKNOWN = TransitionAnswer(Verdict.REFUSED), TransitionAnswer(Verdict.UNKNOWN)

_GRACE = span_us(RESET_AFTER)
_TOGETHER = 4
"""Successes with one result that are worth a statement of their own."""
_MINUTE = 60_000_000

_encode = msgspec.json.Encoder().encode
_counts_of = msgspec.json.Decoder(dict[str, int]).decode
_buckets_of = msgspec.json.Decoder(dict[int, int]).decode


_NOTHING_ADDED = FlowAdditions()


class _After(msgspec.Struct):
    """The work that is left when all transitions of a call were judged."""

    following: list[tuple[NewJob, int | None]] = []
    """Jobs to insert, each with the part that it joins."""
    flows: list[FlowToAdd] = []
    unstarted: list[tuple[int, str]] = []
    members: list[Finish] = []
    """Finishes of jobs of flows."""


def apply(connection: apsw.Connection, now: int, transitions: Sequence[Transition]) -> Applied:
    """`JobStore.apply` at the instant ``now``."""
    announced = [job for one in transitions if one.then or one.flows for job in one.new_jobs]
    if announced:
        require_limits(connection, announced)
    after = _After()
    seqs = [transition.claim.seq for transition in transitions]
    if len(set(seqs)) == len(seqs):
        answers = _apply(connection, transitions, now, after)
    else:
        # One job twice in a batch: each must see what the one before it did.
        answers = [
            answer
            for transition in transitions
            for answer in _apply(connection, [transition], now, after)
        ]
    if after.unstarted:
        retake_keys(connection, sorted(after.unstarted), now)
    if not after.members and not after.following and not after.flows:
        return Applied(instant_of(now), answers)
    # After all of them: the follow-up jobs may take keys that any of them released.
    stored = _follow(connection, now, after.following) if after.following else {}
    added = add_flows(connection, now, after.flows) if after.flows else _NOTHING_ADDED
    if after.members:
        _end_members(connection, now, after.members, stored, added.parts)
    left_out = [job.id for job, _ in after.following if job.id not in stored]
    return Applied(instant_of(now), answers, [*left_out, *added.left_out])


def _apply(
    connection: apsw.Connection,
    transitions: Sequence[Transition],
    now: int,
    after: _After,
) -> list[TransitionAnswer]:
    """Judge each on its own, then write all together; what is to follow is collected."""
    seqs = _encode([transition.claim.seq for transition in transitions]).decode()
    rows: dict[int, Row] = {row[0]: row for row in connection.execute(_CLAIMS, (seqs,))}
    # Queues whose cool-downs a success forgets: the last one lies long enough in the past. Asked
    # for once, and not per job: most often there are none.
    forgivable = {name for (name,) in connection.execute(_FORGIVABLE, (now - _GRACE,))}
    cooldowns: CooldownChanges | None = None
    successes: Successes = {}
    others: list[AcceptedTransition | LimitedSuccess] = []
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
            and not transition.then
            and not transition.flows
            and not transition.metadata
            and row[_FREES] != _KEY
            and row[_QUEUE] not in forgivable
        ):
            successes.setdefault((transition.by, transition.result), []).append(row)
            answers.append(_SUCCEEDED)
            if row[_FREES] is not None:
                others.append(LimitedSuccess(row[0], row[_FREES]))
        else:
            verb = transition.verb
            if row[_CANCEL] and transition.if_cancelled is not None:
                verb = transition.if_cancelled
            if cooldowns is None:
                cooldowns = CooldownChanges(connection, now, forgivable)
            ending, answer = _judge(transition, verb, row, cooldowns)
            others.append(ending)
            answers.append(answer)
            if verb is transition.verb:
                part = row[_PART] if verb is _SUCCEED else None
                after.following.extend((skip_if_key_held(job), part) for job in transition.then)
                after.flows.extend((flow, row[_PART]) for flow in transition.flows)
    finishes = [(_SUCCEED, row) for alike in successes.values() for row in alike]
    effects = ApplyEffects(connection, now, finishes, successes) if others else None
    if effects is not None:
        after.unstarted.extend(effects.collect(others))
    _store_successes(connection, now, successes)
    if cooldowns is not None:
        cooldowns.store()
    if effects is not None:
        effects.write()
    _count(connection, now, finishes)
    after.members.extend([finish for finish in finishes if finish[1][_PART] is not None])
    return answers


def _end_members(
    connection: apsw.Connection,
    now: int,
    members: Sequence[Finish],
    added: Mapping[JobId, int | None],
    new_parts: Sequence[int],
) -> None:
    """Count members and what they added for their parts, and settle. ``new_parts``: of flows that
    they added.
    """
    changes = PartChanges(connection, now)  # behind the insert, which may end other members
    if new_parts:
        changes.touch(new_parts)
    ended = Counter((row[_PART], FINISHING[verb]) for verb, row in members)
    changes.load({part for part, _ in ended})
    if added:
        for joined, number in Counter(added.values()).items():
            if joined is not None:
                changes.add(joined, total=number, open=number)
    for (part, state), number in ended.items():
        if state is not State.WAITING:
            changes.add(part, **{str(ended_as(state)): number}, open=-number)
    store_and_settle(connection, changes, now)


def _follow(
    connection: apsw.Connection, now: int, following: Sequence[tuple[NewJob, int | None]]
) -> dict[JobId, int | None]:
    """Insert what is to follow. What members added joins their parts, unless their flow was
    cancelled. Return the jobs that were stored, each with its part.
    """
    parts = {part for _, part in following if part is not None}
    places = places_of(connection, parts) if parts else {}
    wanted = [(job, part) for job, part in following if part is None or not places[part].cancelled]
    stored = {
        job.id: part
        for (job, part), answer in zip(
            wanted, insert(connection, now, [job for job, _ in wanted]), strict=True
        )
        if answer.created and not answer.repeated
    }
    for part in places:
        ids = ids_text(job for job, its in stored.items() if its == part)
        connection.execute(_JOIN, (part, ids))
    timed = [(job, timing_text(job)) for job, part in wanted if stored.get(job.id) is not None]
    connection.executemany(_NOTE_TIMING, [(id_of(job.id), text) for job, text in timed if text])
    return stored


def _judge(
    transition: Transition, verb: Verb, row: Row, rests: CooldownChanges
) -> tuple[AcceptedTransition, TransitionAnswer]:
    """Apply the effect of an accepted transition on its queue, and by that on the job."""
    if verb is Verb.THROTTLE and transition.cools:
        until, cooled = rests.cool(row[_QUEUE], transition.cools, transition.delay)
        answer = TransitionAnswer(Verdict.APPLIED, verb, instant_of(until), cooled)
        return AcceptedTransition(transition, verb, row, until), answer
    if verb is Verb.SUCCEED and row[_QUEUE] in rests.forgivable:
        rests.forgive(row[_QUEUE])
    return AcceptedTransition(transition, verb, row), _APPLIED[verb]


def _answer_late(connection: apsw.Connection, transition: Transition) -> TransitionAnswer:
    """Return the answer for a claim that does not hold: a repeat of the same caller, or
    a refusal.
    """
    number, verb, by = first(connection, _ENDED, (transition.claim.seq,)) or (None, "", "")
    if number == transition.claim.number and by == transition.by:
        return _REPEATED[verb]
    return _REFUSED


def _store_successes(connection: apsw.Connection, now: int, successes: Successes) -> None:
    """Write successes. Most handlers return the same, so most of them share a statement."""
    apart: list[tuple[int, int, str, bytes | None]] = []
    for (by, result), rows in successes.items():
        seqs = [row[0] for row in rows]
        if len(seqs) >= _TOGETHER:
            connection.execute(_SUCCEED_MANY, (_encode(seqs).decode(), now, by, result))
        else:
            apart += [(seq, now, by, result) for seq in seqs]
    connection.executemany(_SUCCEED_ONE, apart)


def _count(connection: apsw.Connection, now: int, finishes: Sequence[Finish]) -> None:
    """Add accepted finishes to the rollups of this minute, one for each queue, task and worker."""
    minute = now - now % _MINUTE
    sums: dict[tuple[str, str, str], tuple[dict[str, int], list[int], list[int]]] = {}
    for verb, row in finishes:
        _, _, _, _, queue, task, worker, due, started_at, *_ = row
        whose = (queue, task, worker)
        if (known := sums.get(whose)) is None:
            known = sums[whose] = ({}, [], [])
        counts, wait, run = known
        counts[verb.value] = counts.get(verb.value, 0) + 1
        wait.append(started_at - due)
        run.append(now - started_at)
    for whose, (counts, wait, run) in sums.items():
        waits: dict[int, int] = {}
        runs: dict[int, int] = {}
        stored: list[Row] = connection.execute(_ROLLUP, (minute, *whose)).fetchall()
        if stored:
            for name, count in _counts_of(stored[0][0]).items():
                counts[name] = counts.get(name, 0) + count
            waits, runs = _buckets_of(stored[0][1]), _buckets_of(stored[0][2])
        texts = (counts, histogram(wait, waits), histogram(run, runs))
        connection.execute(_PUT, (minute, *whose, *(_encode(part).decode() for part in texts)))


def histogram(durations: list[int], counts: dict[int, int]) -> dict[int, int]:
    """Add durations to the counts of their buckets. Sorted, a bucket is a slice: most share a few
    of them.
    """
    durations.sort()
    start = 0
    while start < len(durations):
        bucket = bisect_left(BUCKET_TOPS, durations[start])
        end = bisect_right(durations, BUCKET_TOPS[bucket], start)
        counts[bucket] = counts.get(bucket, 0) + end - start
        start = end
    return counts
