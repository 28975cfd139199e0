"""Why is my job not running? In sentences, with what they were read from."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial

import msgspec

from windlass._admin.explain.cause import Cause
from windlass._admin.explain.facts import JobFacts, gather
from windlass._admin.explain.flows import FlowFacts, blocked_cause, gather_flow
from windlass._admin.explain.limits import limit_causes
from windlass._admin.explain.running_and_ended import end_causes, run_causes, unique_key_causes
from windlass._admin.explain.waiting import before, due_time_causes, queue_causes, worker_causes
from windlass._admin.jobs.ids import resolve_id
from windlass._admin.jobs.redaction import redacted, values_of
from windlass._admin.session import AdminSession
from windlass._core.job.job import JobRecord
from windlass._core.job.state import State, shown_state
from windlass._core.values.hidden_keys import has_digest, mask_digests
from windlass._observe.log import brief
from windlass._storage.protocol.storage import Storage
from windlass.errors import JobNotFound

__all__ = ["Cause", "Explanation", "explain_facts", "explain_job"]

_NO_KNOWN_END = (
    "after_jobs",
    "expired",
    "queue_paused",
    "no_worker",
    "workers_quiet",
    "unknown_task",
    "misfit",
    "breaker_trial",
    "limit_full",
    "queue_full",
    "solo",
    "slots_busy",
    "ready",
)
"""The weight of causes that an operator must end."""
_REMARKS = (
    *("worker_gone", "worker_silent", "cancel_requested", "expires_soon"),
    *("versions_differ", "workers_too_old", "clock_skew"),
)
"""Worth knowing, and holding nothing back."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Where a job is, why, and when it is expected to run."""

    job: JobRecord
    state: str
    """As people see it: ``waiting`` is scheduled, ready or retrying."""
    at: datetime
    """The store's now when it was asked."""
    causes: Sequence[Cause]
    """The decisive one first: the one that holds it longest. Never empty."""
    expected_at: datetime | None
    """The expected start; None: unknown, or it has started."""


async def explain_job(session: AdminSession, job_id: str) -> Explanation:
    """Explain a stored job, without its secrets; JobNotFound."""
    storage, masks = await session.storage(), session.masks
    (job,) = await storage.admin.get([await resolve_id(session, job_id)])
    if job is None:
        raise JobNotFound(job_id)
    facts = await gather(storage, job)
    if job.blocked:
        facts = msgspec.structs.replace(facts, flow=await _gather_root(storage, job))
    if has_digest(job.key):  # before it is part of a sentence, where it may be cut
        key = await masks.text(job.key or "")
        facts = msgspec.structs.replace(facts, job=msgspec.structs.replace(job, key=key))
    told = explain_facts(facts)
    secrets = values_of(job)
    (seen,) = await masks.jobs([await redacted(job)])
    causes = list(told.causes)
    if any(has_digest(text) for cause in causes for text in cause.texts()):
        mask = partial(mask_digests, secret=await masks.secret())
        causes = [cause.changed(mask) for cause in causes]
    causes = [cause.without(secrets) for cause in causes]
    return msgspec.structs.replace(told, job=seen, causes=causes)


async def _gather_root(storage: Storage, job: JobRecord) -> FlowFacts | None:
    """Read what a blocked job waits for, and why the job at the root of it has not ended."""
    flow = await gather_flow(storage, job)
    if flow is None or flow.root is None or flow.root.blocked:
        return flow
    cause = explain_facts(await gather(storage, flow.root)).causes[0]
    return msgspec.structs.replace(flow, cause=cause.without(values_of(flow.root)))


def explain_facts(facts: JobFacts) -> Explanation:
    """Turn the facts around a job into causes."""
    job, now = facts.job, facts.now
    match job.state:
        case State.WAITING:
            causes = _waiting(facts)
        case State.RUNNING:
            causes = [*run_causes(facts), *unique_key_causes(facts)]
        case _:
            causes = [*end_causes(facts), *unique_key_causes(facts)]
    retrying = job.attempt > job.max_attempts - job.budget
    return Explanation(
        job=job,
        state=shown_state(
            job.state, due=job.due, now=now, failed_before=retrying, blocked=job.blocked
        ),
        at=now,
        causes=causes,
        expected_at=_expected(facts, causes),
    )


def _waiting(facts: JobFacts) -> list[Cause]:
    if facts.job.blocked:
        # Nothing before it is open: only a worker can place it, or end it.
        settled = [] if facts.flow is not None and facts.flow.path else worker_causes(facts)
        return [blocked_cause(facts.job, facts.flow), *settled, *unique_key_causes(facts)]
    found = [
        *due_time_causes(facts),
        *queue_causes(facts),
        *limit_causes(facts),
        *worker_causes(facts),
    ]
    holding = [cause for cause in found if cause.code not in _REMARKS]
    remarks = [cause for cause in found if cause.code in _REMARKS]
    if not holding:
        holding = [_ready(facts)]
    return [*sorted(holding, key=_weight), *remarks, *unique_key_causes(facts)]


def _weight(cause: Cause) -> tuple[int, float]:
    """Sort causes without a known end first, then those that end last."""
    if cause.until is None:
        return _NO_KNOWN_END.index(cause.code), 0.0
    return len(_NO_KNOWN_END), -cause.until.timestamp()


def _ready(facts: JobFacts) -> Cause:
    job, now, crew = facts.job, facts.now, facts.crew
    return Cause(
        code="ready",
        sentence=f"Nothing holds it: it has been due for {brief(now - job.due)}. Ahead of it: "
        f"{before(facts.line)}. Busy slots of queue {job.queue}: {crew.running:,} of "
        f"{crew.slots:,}.",
        evidence={
            "due": job.due,
            "ahead": len(facts.line.ahead),
            "ahead_is_exact": not facts.line.more,
            "slots": crew.slots,
            "running": crew.running,
        },
        until=None if facts.line.more else now,
        fix="Explain it again in a moment",
    )


def _expected(facts: JobFacts, causes: Sequence[Cause]) -> datetime | None:
    if facts.job.state is not State.WAITING:
        return None
    holding = [cause for cause in causes if cause.code not in (*_REMARKS, "key_held")]
    ends = [cause.until for cause in holding]
    if not all(ends):
        return None
    expected = max(end for end in ends if end is not None)
    expires = facts.job.expires_at
    return None if expires is not None and expires <= expected else expected
