"""Claims that the store says a worker holds, and that the worker never heard of."""

from __future__ import annotations

from windlass._core.job.job import Claim, ClaimedJob, JobRecord

__all__ = ["claimed_again"]


def claimed_again(job: JobRecord, claim: Claim, worker: str) -> ClaimedJob:
    """Return a stored job as the answer to its claim would have had it, as far as
    events need it.
    """
    return ClaimedJob(
        claim=claim,
        task=job.task,
        queue=job.queue,
        payload=job.payload,
        attempt=job.attempt,
        max_attempts=job.max_attempts,
        budget=job.budget,
        due=job.due,
        started_at=job.started_at or job.due,
        worker=worker,
        lost=job.lost,
        solo=job.solo,
        tenant=job.tenant,
        principal=job.principal,
        correlation_id=job.correlation_id,
        tags=job.tags,
    )
