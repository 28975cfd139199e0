"""What people are shown of pages and logs: everything but secrets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from windlass.core.job import Attempt, Job
from windlass.core.redact import (
    redacted_history,
    redacted_job,
    redacted_text,
    secret_names,
    secret_values,
)
from windlass.storage.aside import aside
from windlass.storage.journal import LogChunk
from windlass.storage.looks import Page

__all__ = ["redacted", "redacted_attempts", "redacted_chunks", "redacted_page", "values_of"]

T = TypeVar("T")


_LARGE = 64 * 1024
"""Bytes that are looked through for secrets on the event loop, at most."""


async def redacted_page(page: Page) -> Page:
    """The same jobs without their secrets."""
    jobs = await _off_the_loop(
        sum(_weight(job) for job in page), lambda: [redacted_job(job) for job in page]
    )
    return Page(jobs, page.next, page.reached)


async def redacted(job: Job) -> Job:
    """One job without its secrets."""
    return await _off_the_loop(_weight(job), lambda: redacted_job(job))


async def redacted_attempts(job: Job, attempts: Sequence[Attempt]) -> Sequence[Attempt]:
    """The ended claims of ``job`` without its secrets."""
    said = sum(len(one.error.traceback) for one in attempts if one.error is not None)
    weight = len(job.payload) + said
    return await _off_the_loop(weight, lambda: redacted_history(job, attempts))


async def _off_the_loop(weight: int, work: Callable[[], T]) -> T:
    return await aside(work) if weight > _LARGE else work()


def _weight(job: Job) -> int:
    error = 0 if job.error is None else len(job.error.message) + len(job.error.traceback)
    return len(job.payload) + len(job.result or b"") + error


def values_of(job: Job | None) -> Sequence[str]:
    """What must not turn up in the texts around a job."""
    return () if job is None else secret_values(job.payload, secret_names(job.tags))


async def redacted_chunks(chunks: Sequence[LogChunk], job: Job | None) -> Sequence[LogChunk]:
    """The lines of a job's log without its secrets, and without what looks like one."""
    weight = sum(len(line.text) for chunk in chunks for line in chunk.lines)
    weight += 0 if job is None else len(job.payload)

    def work() -> Sequence[LogChunk]:
        values = values_of(job)
        return [_redacted_chunk(chunk, values) for chunk in chunks]

    return await _off_the_loop(weight, work)


def _redacted_chunk(chunk: LogChunk, values: Sequence[str]) -> LogChunk:
    lines = [
        msgspec.structs.replace(line, text=redacted_text(line.text, values)) for line in chunk.lines
    ]
    return msgspec.structs.replace(chunk, lines=lines)
