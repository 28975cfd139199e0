"""Transitions as arguments of a statement, and its answer as verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from windlass._core.job.error_origin import frame_of
from windlass._core.job.state import FINISHING, Verb
from windlass._core.job.transition import Transition
from windlass._storage.postgres.flows.new_flows import user_flow_of
from windlass._storage.postgres.io.rows import stored_span, stored_text
from windlass._storage.postgres.jobs.job_json import job_json_of
from windlass._storage.protocol.jobs import TransitionAnswer, Verdict
from windlass._storage.shared.insert_rules import skip_if_key_held
from windlass._storage.shared.stored_text import metadata_text

__all__ = [
    "answers_of",
    "by_seq",
    "cooldown_args",
    "flow_args",
    "frame_args",
    "metadata_args",
    "start_args",
    "success_args",
    "transition_args",
]

_encode = msgspec.json.encode
_APPLIED = {verb: TransitionAnswer(Verdict.APPLIED, verb) for verb in FINISHING}
_VERBLESS = {verdict: TransitionAnswer(verdict) for verdict in (Verdict.REFUSED, Verdict.UNKNOWN)}


def by_seq(transitions: Sequence[Transition]) -> list[int]:
    """Their places, in the order in which everybody locks rows; of one job, as they were given."""
    seqs = [transition.claim.seq for transition in transitions]
    return sorted(range(len(seqs)), key=seqs.__getitem__)


def success_args(transitions: Sequence[Transition]) -> tuple[Any, ...] | None:
    """Return the arguments from ``p_seqs`` to ``p_result`` of ``apply_successes``, or, if they are
    not kept, to ``p_results`` of ``delete_successes``. None: they are not alike enough.

    The numbers travel as one text: the driver looks at every element of an array.
    """
    if not transitions:
        return None
    first = transitions[0]
    number, by, result, keep = first.claim.number, first.by, first.result, first.keep
    seqs: set[int] = set()
    for transition in transitions:
        if (
            transition.verb is not Verb.SUCCEED
            or transition.claim.number != number
            or transition.by != by
            or transition.keep is not keep
            or (keep and transition.result != result)
            or transition.then
            or transition.flows
            or transition.metadata
        ):
            return None
        seqs.add(transition.claim.seq)
    if len(seqs) < len(transitions):
        return None
    text = ",".join([str(transition.claim.seq) for transition in transitions])
    if keep:
        return f"{{{text}}}", number, by, result
    # Members of flows stay, with their results.
    results = [transition.result for transition in transitions]
    return f"{{{text}}}", number, by, results if any(one is not None for one in results) else None


def transition_args(transitions: Sequence[Transition]) -> tuple[Any, ...]:
    """Return the arguments from ``p_seqs`` to ``p_if_cancelleds`` of ``apply_transitions``."""
    claims = [transition.claim for transition in transitions]
    verbs = [transition.verb for transition in transitions]
    results = [transition.result for transition in transitions]
    keeps = [transition.keep for transition in transitions]
    return (
        [claim.seq for claim in claims],
        [claim.number for claim in claims],
        verbs,
        [transition.by for transition in transitions],
        None if not any(result is not None for result in results) else results,
        None if all(keeps) else keeps,
        *(_other_args(transitions) if set(verbs) != {Verb.SUCCEED} else _NO_OTHERS),
    )


_NO_OTHERS = (None,) * 9


def _other_args(transitions: Sequence[Transition]) -> tuple[Any, ...]:
    """Return the arguments that no success has."""
    errors = [transition.error for transition in transitions]
    return (
        [stored_span(transition.delay) for transition in transitions],
        [transition.refund for transition in transitions],
        [None if error is None else stored_text(error.kind) for error in errors],
        [None if error is None else stored_text(error.message) for error in errors],
        [None if error is None else stored_text(error.traceback) for error in errors],
        [transition.lost for transition in transitions],
        [transition.solo for transition in transitions],
        [transition.missed for transition in transitions],
        [transition.if_cancelled for transition in transitions],
    )


_NO_FLOW = (None, None, None, None)


def cooldown_args(transitions: Sequence[Transition], order: Sequence[int]) -> tuple[Any, ...]:
    """Return the arguments from ``p_cools`` to ``p_order``; ``order`` is where each of them was
    before `by_seq`.
    """
    turns = None
    if any(place > 0 and order[place - 1] > at for place, at in enumerate(order)):
        turns = [place + 1 for place in sorted(range(len(order)), key=order.__getitem__)]
    if not any(
        transition.cools or transition.drains or transition.then for transition in transitions
    ):
        return (*_NO_FLOW[:3], turns)
    cools = [_cools(transition) for transition in transitions]
    thens = [
        _encode([job_json_of(skip_if_key_held(job)) for job in transition.then]).decode()
        if transition.then
        else None
        for transition in transitions
    ]
    return (
        cools if any(cools) else None,
        [transition.drains for transition in transitions],
        thens if any(thens) else None,
        turns,
    )


def frame_args(transitions: Sequence[Transition]) -> list[str | None] | None:
    """``p_error_frames``: where the errors were raised; None: there are none."""
    if all(transition.error is None for transition in transitions):
        return None
    return [
        None if error is None else stored_text(frame_of(error.traceback))
        for error in [transition.error for transition in transitions]
    ]


def start_args(transitions: Sequence[Transition]) -> list[bool] | None:
    """``p_starteds``: whether the handlers were entered; None: all of them were."""
    if all(transition.started for transition in transitions):
        return None
    return [transition.started for transition in transitions]


def metadata_args(transitions: Sequence[Transition]) -> list[str | None] | None:
    """``p_metadatas``: the facts that handlers noted; None: there are none."""
    if not any(transition.metadata for transition in transitions):
        return None
    return [metadata_text(transition.metadata) for transition in transitions]


def flow_args(transitions: Sequence[Transition], at: datetime | None) -> list[str | None] | None:
    """``p_flows``: the flows that successes add; None: there are none."""
    if not any(transition.flows for transition in transitions):
        return None
    return [
        _encode([user_flow_of(flow, at, None) for flow in transition.flows]).decode()
        if transition.flows
        else None
        for transition in transitions
    ]


def _cools(transition: Transition) -> str | None:
    """Return each array as text: arrays inside an array need not have the same length."""
    if not transition.cools:
        return None
    return f"{{{','.join(str(stored_span(span)) for span in transition.cools)}}}"


def answers_of(
    transitions: Sequence[Transition],
    verdicts: Sequence[str] | None,
    verbs: Sequence[str | None] | None,
    cool_untils: Sequence[datetime | None] | None = None,
    cooleds: Sequence[bool] | None = None,
) -> list[TransitionAnswer]:
    """Return the answer of ``apply_transitions``, in the order of the transitions it was given."""
    if verdicts is None or verbs is None:
        return [_APPLIED[transition.verb] for transition in transitions]
    answers = [
        _VERBLESS[Verdict(verdict)]
        if verb is None
        else TransitionAnswer(Verdict(verdict), Verb(verb))
        for verdict, verb in zip(verdicts, verbs, strict=True)
    ]
    if cool_untils is None or cooleds is None:
        return answers
    return [
        answer if until is None else TransitionAnswer(answer.verdict, answer.verb, until, cooled)
        for answer, until, cooled in zip(answers, cool_untils, cooleds, strict=True)
    ]
