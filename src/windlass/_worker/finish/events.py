"""Events for listeners about a claim that has ended."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime

from windlass._core.job.event import Event, JobMoved, QueueCooled, enqueued_event
from windlass._core.job.job import ClaimedJob, JobId
from windlass._core.job.state import Verb
from windlass._core.job.transition import Transition
from windlass._storage.protocol.jobs import TransitionAnswer

__all__ = ["side_events", "transition_event"]


def transition_event(
    job: ClaimedJob, transition: Transition, answer: TransitionAnswer, at: datetime
) -> JobMoved:
    """Make the event of a transition that was accepted."""
    verb = answer.verb or transition.verb
    back = verb in (Verb.RETRY, Verb.SNOOZE, Verb.THROTTLE, Verb.RELEASE)
    delay = transition.delay
    if answer.cool_until is not None:  # the queue cools down: none of its jobs starts before
        delay = max(delay, answer.cool_until - at)
    return JobMoved(
        verb=verb,
        job=job.claim.job,
        task=job.task,
        queue=job.queue,
        claim_number=job.claim.number,
        attempt=job.attempt,
        max_attempts=job.max_attempts,
        worker=job.worker,
        at=at,
        waited=job.started_at - job.due,
        ran=at - job.started_at,
        delay=delay if back else None,
        error=transition.error,
        missed=transition.missed and verb is Verb.RELEASE,
        correlation_id=job.correlation_id,
        tenant=job.tenant,
        record=job,
    )


def side_events(
    job: ClaimedJob,
    transition: Transition,
    answer: TransitionAnswer,
    at: datetime,
    left_out: Collection[JobId] = (),
) -> Iterator[Event]:
    """Make the events of what else happened in the same write. ``left_out``: jobs to follow that
    were not stored.
    """
    if answer.cooled and answer.cool_until is not None:
        yield QueueCooled(
            queue=job.queue,
            until=answer.cool_until,
            at=at,
            job=job.claim.job,
            task=job.task,
            worker=job.worker,
        )
    if answer.verb is transition.verb:
        yield from (enqueued_event(one) for one in transition.new_jobs if one.id not in left_out)
