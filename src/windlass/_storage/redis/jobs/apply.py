"""Ending claims: transitions as apply.lua reads them, and its answers."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from windlass._core.job.error_origin import frame_of
from windlass._core.job.job import JobId
from windlass._core.job.state import FAILURE_VERBS, FINISHING, Verb
from windlass._core.job.transition import Transition
from windlass._core.values.instants import LAST_US, instant_of, span_us
from windlass._storage.protocol.jobs import Applied, TransitionAnswer, Verdict
from windlass._storage.redis.flows.records import start_args
from windlass._storage.redis.io.layout import VERB_CODES
from windlass._storage.redis.io.records import error_bytes
from windlass._storage.redis.jobs import insert
from windlass._storage.redis.jobs.insert import as_text
from windlass._storage.shared.insert_rules import skip_if_key_held
from windlass._storage.shared.job_ids import known_id
from windlass._storage.shared.stored_text import metadata_text

__all__ = [
    "AnswerOrder",
    "ApplyBatch",
    "apply_answers",
    "apply_batch_of",
    "transition_bytes",
]

AnswerOrder = Sequence[int] | None
"""For each answer the place of its transition; None: they are in order."""

_CLAIM = struct.Struct(">16sId")
_BY = struct.Struct(">cH")
_RESULT = struct.Struct(">BI")
_NOBODY = b"\0" * 16
_NONE = -1

_SUCCEED = Verb.SUCCEED
_pack = msgspec.msgpack.Encoder().encode

_ANSWERS: Final = {
    **{65 + VERB_CODES[verb]: TransitionAnswer(Verdict.APPLIED, verb) for verb in FINISHING},
    **{97 + VERB_CODES[verb]: TransitionAnswer(Verdict.REPEATED, verb) for verb in FINISHING},
    ord("-"): TransitionAnswer(Verdict.REFUSED),
    ord("?"): TransitionAnswer(Verdict.UNKNOWN),
}


class ApplyBatch(NamedTuple):
    """The arguments of apply.lua, and which answer is whose."""

    items: list[bytes | str]
    order: AnswerOrder


def apply_batch_of(transitions: Sequence[Transition], *, breakers: bool) -> ApplyBatch:
    """Transitions as few items. ``breakers``: to those the order of outcomes matters."""
    seqs = {transition.claim.seq for transition in transitions}
    if len(seqs) < len(transitions):
        # One job twice in a batch: each must see what the one before it did.
        return ApplyBatch(["", *(b"T" + transition_bytes(one) for one in transitions)], None)
    in_order = breakers or any(transition.cools for transition in transitions)
    sections = _sections(transitions, in_order=in_order)
    texts: list[bytes | str] = ["1" if len(sections[0].verdicts) > 1 else ""]
    order: list[int] = []
    for section in sections:
        for group, places in section.groups.items():
            texts.append(_successes(group, [transitions[place] for place in places]))
            order += places
        texts += [b"T" + transition_bytes(transitions[place]) for place in section.others]
        order += section.others
    return ApplyBatch(texts, None if order == list(range(len(order))) else order)


class _SuccessGroup(NamedTuple):
    """The fields that plain successes sent together have in common."""

    by: str
    result: bytes | None
    keep: bool


class _Section:
    """Transitions whose order among each other does not matter."""

    def __init__(self) -> None:
        self.groups: dict[_SuccessGroup, list[int]] = {}
        """Places of plain successes."""
        self.others: list[int] = []
        self.verdicts: set[bool] = set()


def _sections(transitions: Sequence[Transition], *, in_order: bool) -> list[_Section]:
    """Successes close breakers and forgive queues, failures do the opposite: of those, the later
    counts, so ``in_order`` they share no section.
    """
    sections = [section := _Section()]
    for place, transition in enumerate(transitions):
        verb = transition.verb
        if verb is _SUCCEED or verb in FAILURE_VERBS or transition.cools:
            if in_order and (verb is not _SUCCEED) in section.verdicts:
                sections.append(section := _Section())
            section.verdicts.add(verb is _SUCCEED)
        if (
            verb is _SUCCEED
            and transition.if_cancelled is None
            and not transition.lost
            and not transition.solo
            and not transition.then
            and not transition.flows
            and not transition.metadata
        ):
            keep = transition.keep
            group = _SuccessGroup(transition.by, transition.result if keep else None, keep)
            places = section.groups.get(group)
            if places is None:
                places = section.groups[group] = []
            places.append(place)
        else:
            section.others.append(place)
    return sections


def _successes(group: _SuccessGroup, transitions: Sequence[Transition]) -> bytes:
    name = group.by.encode()
    result = group.result if group.keep else _results(transitions)
    pack, fromhex = _CLAIM.pack, bytes.fromhex
    parts = [
        _BY.pack(b"S" if group.keep else b"D", len(name)),
        name,
        _RESULT.pack(result is not None, len(result or b"")),
        result or b"",
    ]
    for transition in transitions:
        claim = transition.claim
        try:
            parts.append(pack(fromhex(claim.job), claim.number, claim.seq))
        except (ValueError, struct.error):
            parts.append(pack(_NOBODY, 0, 0))  # what cannot be stored is never found
    return b"".join(parts)


def _results(transitions: Sequence[Transition]) -> bytes | None:
    """Return all results, for members of flows, which are kept; None: there are none."""
    results = [transition.result for transition in transitions]
    if not any(result is not None for result in results):
        return None
    return _pack([False if result is None else as_text(result) for result in results])


def transition_bytes(transition: Transition) -> bytes:
    """Return a transition as shared/endings.lua reads it."""
    claim, error = transition.claim, transition.error
    cancelled, then = transition.if_cancelled, transition.then
    return _pack(
        (
            as_text(known_id(claim.job)),
            claim.number,
            claim.seq,
            VERB_CODES[transition.verb],
            _NONE if cancelled is None else VERB_CODES[cancelled],
            transition.by,
            max(0, min(span_us(transition.delay), LAST_US)),
            transition.refund,
            False if transition.result is None else as_text(transition.result),
            "" if error is None else as_text(error_bytes(error)),
            "" if error is None else error.traceback,
            transition.lost,
            transition.solo,
            transition.missed,
            transition.keep,
            [max(0, min(span_us(cool), LAST_US)) for cool in transition.cools],
            transition.drains,
            [as_text(part) for part in insert.insert_args([skip_if_key_held(one) for one in then])]
            if then
            else False,
            "" if error is None else frame_of(error.traceback),
            transition.started,
            metadata_text(transition.metadata) or "",
            [[as_text(part) for part in start_args(flow)] for flow in transition.flows] or False,
        )
    )


def apply_answers(reply: Sequence[Any], order: AnswerOrder) -> Applied:
    """Return the answers of apply.lua, in the order of the transitions."""
    insert.require_limits(reply)
    now, characters, rests, left_out = reply
    given = [_ANSWERS[character] for character in characters]
    for place, until, begins in rests:
        given[place] = TransitionAnswer(
            Verdict.APPLIED, given[place].verb, instant_of(until), cooled=bool(begins)
        )
    names = [JobId(job.hex()) for job in left_out]
    if order is None:
        return Applied(instant_of(now), given, names)
    answers = list(given)
    for place, answer in zip(order, given, strict=True):
        answers[place] = answer
    return Applied(instant_of(now), answers, names)
