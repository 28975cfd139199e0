"""What people are shown of pages and logs: everything but secrets."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windlass.core.job import Job
from windlass.core.redact import redacted_job, redacted_text, secret_names, secret_values
from windlass.storage.journal import LogChunk
from windlass.storage.looks import Page

__all__ = ["redacted_chunk", "redacted_page", "values_of"]


def redacted_page(page: Page) -> Page:
    """The same jobs without their secrets."""
    return Page([redacted_job(job) for job in page], page.next, page.reached)


def values_of(job: Job | None) -> Sequence[str]:
    """What must not turn up in the texts around a job."""
    return () if job is None else secret_values(job.payload, secret_names(job.tags))


def redacted_chunk(chunk: LogChunk, values: Sequence[str]) -> LogChunk:
    """The lines without these values, and without what looks like a secret."""
    lines = [
        msgspec.structs.replace(line, text=redacted_text(line.text, values)) for line in chunk.lines
    ]
    return msgspec.structs.replace(chunk, lines=lines)
