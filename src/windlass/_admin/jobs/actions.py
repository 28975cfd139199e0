"""Actions on one job: carried out or refused, recorded, and published on the bus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from windlass._admin.explain.cause import shell_command
from windlass._admin.session import AdminSession
from windlass._client.job_events import publish_action_events
from windlass._core.job.job import JobId, JobRecord
from windlass._core.job.state import State, Verb
from windlass._core.values.instants import aware
from windlass._core.values.names import check_queue
from windlass._storage.protocol.actions import (
    ActionResult,
    AuditNote,
    Cancel,
    Delete,
    Discard,
    Edit,
    JobAction,
    Requeue,
    RunNow,
)
from windlass._storage.protocol.admin import AdminStore
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._tasks.options import check_priority
from windlass.errors import InvalidArgument, JobNotFound, KeyConflict, WrongState

__all__ = [
    "NEEDS",
    "act",
    "action_name_of",
    "audit_detail_of",
    "audit_name_of",
    "carry_out",
    "edit_of",
    "flow_refusal",
    "try_action",
]

NEEDS: Mapping[type[Any], str] = {
    Requeue: "failed, cancelled or discarded",
    Discard: "failed",
    Cancel: "waiting or running",
    RunNow: "waiting",
    Delete: "stored",
    Edit: "waiting",
}
"""The states each action is for, in words."""
_REQUEUED = frozenset({State.FAILED, State.CANCELLED, State.DISCARDED})
_WORDS: Mapping[type[Any], str] = {
    Requeue: "requeue",
    Discard: "discard",
    Cancel: "cancel",
    RunNow: "run now",
    Delete: "delete",
    Edit: "edit",
}
_VERBS: Mapping[type[Any], Verb] = {
    Requeue: Verb.REQUEUE,
    Discard: Verb.DISCARD,
    Cancel: Verb.CANCEL,
}


def action_name_of(action: JobAction) -> str:
    """Name an action as people call it."""
    return _WORDS[type(action)]


def audit_name_of(action: JobAction) -> str:
    """Name an action as the audit record does."""
    return f"jobs.{action_name_of(action).replace(' ', '-')}"


def audit_detail_of(action: JobAction) -> str:
    """Describe an action's arguments for the audit record."""
    match action:
        case Discard(reason=reason):
            return reason
        case Edit(due=due, priority=priority, queue=queue):
            said = {"due": due and due.isoformat(), "priority": priority, "queue": queue}
            return ", ".join(f"{name}={value}" for name, value in said.items() if value is not None)
        case _:
            return ""


def edit_of(
    *, due: datetime | None = None, priority: int | None = None, queue: str | None = None
) -> Edit:
    """Make an `Edit` of checked values."""
    if due is None and priority is None and queue is None:
        message = "nothing to change: give due, priority or queue"
        raise InvalidArgument(message)
    if due is not None:
        aware(due, "due")
    if priority is not None:
        check_priority(priority)
    if queue is not None:
        check_queue(queue)
    return Edit(due=due, priority=priority, queue=queue)


async def act(session: AdminSession, action: JobAction, job_id: JobId) -> ActionResult:
    """Carry out an action on one job, or raise the reason why not."""
    answer = await try_action(session, action, job_id)
    if answer in (ActionResult.DONE, ActionResult.REQUESTED):
        return answer
    store = (await session.storage()).admin
    (job,) = await store.get([job_id])
    if answer is ActionResult.UNKNOWN or job is None:
        raise JobNotFound(job_id)
    if (why := flow_refusal(action, job, answer)) is not None:
        raise WrongState(job_id, job.state, action_name_of(action), why=why)
    if answer is ActionResult.CONFLICT:
        raise KeyConflict(await session.masks.text(job.key or ""), await _key_holder(store, job))
    raise WrongState(job_id, job.state, action_name_of(action), NEEDS[type(action)])


def flow_refusal(action: JobAction, job: JobRecord, answer: ActionResult) -> str | None:
    """Say why its flow does not allow an action on a member; None: that is not the reason."""
    if job.flow is None:
        return None
    flow = job.flow.flow
    retry = shell_command("flows", "retry", flow)
    match action:
        case Requeue() if answer is ActionResult.CONFLICT and job.key is None:
            return f"another running flow holds the key of its flow {flow}. Wait for its end."
        case Requeue() if answer is ActionResult.WRONG_STATE and job.state in _REQUEUED:
            return f"its flow {flow} ended it. Requeue the job that failed, or {retry}"
        case RunNow() | Edit() if job.blocked:
            explain = shell_command("jobs", "explain", job.id)
            return f"it waits for other jobs of its flow {flow}. See {explain}"
        case Delete():
            return f"it belongs to flow {flow}, which is deleted as a whole after its retention."
        case _:
            return None


async def try_action(session: AdminSession, action: JobAction, job_id: JobId) -> ActionResult:
    """Carry out an action on one job, and return the store's answer."""
    note = session.note(audit_name_of(action), f"job {job_id}", audit_detail_of(action))
    (answer,) = await carry_out(session, action, [job_id], note)
    return answer


async def carry_out(
    session: AdminSession, action: JobAction, ids: Sequence[JobId], note: AuditNote
) -> Sequence[ActionResult]:
    """Carry out an action on some jobs in one transaction, and publish their events."""
    storage, bus = await session.storage(), session.bus
    verb = _VERBS.get(type(action))
    seen: dict[JobId, JobRecord] = {}
    if verb is Verb.REQUEUE and bus.heard:
        # Requeue leads out of several states: the event needs the one before.
        found = await storage.admin.get(ids)
        seen = {job.id: job for job in found if job is not None}
    answers = await storage.orders.order(action, ids, note)
    if verb is not None:
        pairs = zip(ids, answers, strict=True)
        done = [job for job, answer in pairs if answer is ActionResult.DONE]
        await publish_action_events(storage, bus, verb, done, seen)
    return answers


async def _key_holder(store: AdminStore, job: JobRecord) -> str:
    """Name the job that has the unique key, as far as that can still be told."""
    alike = await store.find(JobFilter(key=job.key), limit=100)
    # An ended job, too, may hold its key for a time.
    return next((one.id for one in alike if one.key_held), "another job")
