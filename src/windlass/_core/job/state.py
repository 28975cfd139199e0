"""States, verbs, and the one table that says which verb leads where."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

from windlass.errors import IllegalTransition

__all__ = [
    "FAILURE_VERBS",
    "FINISHING",
    "TERMINAL",
    "TRANSITIONS",
    "Shown",
    "State",
    "Verb",
    "shown_state",
    "target_state",
    "verb_of",
]


class State(StrEnum):
    """The stored states. ``failed`` is terminal and waits for an operator; it is no retry pool."""

    WAITING = "waiting"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    DISCARDED = "discarded"


class Shown(StrEnum):
    """The states that people see. ``waiting`` is shown as scheduled (due later), ready, or retrying
    (an attempt was spent since it was enqueued or requeued, due at any time). A job that its flow
    blocks counts as scheduled, and is shown as blocked.
    """

    SCHEDULED = "scheduled"
    READY = "ready"
    RETRYING = "retrying"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    DISCARDED = "discarded"


class Verb(StrEnum):
    """Everything that can happen to a job; nothing else changes a state."""

    CLAIM = "claim"
    SUCCEED = "succeed"
    RETRY = "retry"
    SNOOZE = "snooze"
    THROTTLE = "throttle"
    RELEASE = "release"
    FAIL = "fail"
    CANCEL = "cancel"
    REQUEUE = "requeue"
    DISCARD = "discard"
    EXPIRE = "expire"


TRANSITIONS: Mapping[State, Mapping[Verb, State]] = {
    State.WAITING: {
        Verb.CLAIM: State.RUNNING,
        Verb.CANCEL: State.CANCELLED,
        Verb.EXPIRE: State.DISCARDED,
    },
    State.RUNNING: {
        Verb.SUCCEED: State.SUCCEEDED,
        Verb.RETRY: State.WAITING,
        Verb.SNOOZE: State.WAITING,
        Verb.THROTTLE: State.WAITING,
        Verb.RELEASE: State.WAITING,
        Verb.FAIL: State.FAILED,
        Verb.CANCEL: State.CANCELLED,
    },
    State.SUCCEEDED: {},
    State.FAILED: {Verb.REQUEUE: State.WAITING, Verb.DISCARD: State.DISCARDED},
    State.CANCELLED: {Verb.REQUEUE: State.WAITING},
    State.DISCARDED: {Verb.REQUEUE: State.WAITING},
}

TERMINAL = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELLED, State.DISCARDED})
FINISHING: Mapping[Verb, State] = TRANSITIONS[State.RUNNING]
"""The verbs that end a claim, and the state each leads to."""
FAILURE_VERBS = frozenset({Verb.RETRY, Verb.FAIL})
"""The verbs that a breaker counts: an attempt was spent. A cancelled run is not the task's failure.
"""


def target_state(state: State, verb: Verb) -> State:
    """Return the state that ``verb`` leads to from ``state``. An edge that is not in the table is
    refused.
    """
    edges = TRANSITIONS[state]
    after = edges.get(verb)
    if after is None:
        raise IllegalTransition(state, verb, list(edges))
    return after


def shown_state(
    state: State, *, due: datetime, now: datetime, failed_before: bool, blocked: bool = False
) -> str:
    """Return the state that people see: ``waiting`` splits into blocked (by its flow), scheduled,
    ready and retrying.

    A job is eligible when its due time is at or before now, so equality is ready.
    """
    if state is not State.WAITING:
        return state.value
    if blocked:
        return "blocked"
    if failed_before:
        return "retrying"
    return "scheduled" if due > now else "ready"


def verb_of(text: str) -> Verb | str:
    """Return the verb of a stored word. An unknown word, of a newer version or a person, is
    returned as it is.
    """
    try:
        return Verb(text)
    except ValueError:
        return text
