"""The current run, for logging and tracing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context, ContextVar, copy_context
from typing import Any, Protocol

from windlass._core.job.job import Claim, ClaimedJob
from windlass._core.values.redaction import secret_names, secret_values
from windlass.errors import MissingDependency

__all__ = [
    "CARRIED",
    "RUN",
    "WithJob",
    "context_in_trace",
    "current_trace",
    "job_fields",
    "job_of_run",
    "secrets_of_run",
]


class _HasClaim(Protocol):
    @property
    def claimed(self) -> ClaimedJob: ...


RUN: ContextVar[Any] = ContextVar("windlass_context")
"""The `Context` of this asyncio task, of the tasks it starts and of its threads."""

CARRIED: ContextVar[Callable[[], str | None]] = ContextVar("windlass_carried")
"""Returns the current trace as text, if runs are traced."""


def current_trace() -> str | None:
    """Return the trace that this code is in; None if runs are not traced."""
    carried = CARRIED.get(None)
    return None if carried is None else carried()


def context_in_trace(trace: str | None) -> Context:
    """Return a copy of this context in ``trace``, which came from another process."""
    context = copy_context()
    if trace is not None:
        try:
            from windlass._observe.otel_tracing import attach_context
        except MissingDependency:
            return context  # traced by the worker alone
        context.run(attach_context, trace)
    return context


_REMEMBERED = 256
_secrets: dict[Claim, Sequence[str]] = {}
"""The secrets of a job, cached: reading a payload for every log line would cost more than the
line.
"""


def job_of_run() -> ClaimedJob | None:
    """Return the job that this code is part of, or None."""
    run: _HasClaim | None = RUN.get(None)
    return None if run is None else run.claimed


def secrets_of_run(job: ClaimedJob | None) -> Sequence[str]:
    """Return what logs and spans of ``job`` must not contain: see `secret_values`."""
    if job is None:
        return ()
    found = _secrets.get(job.claim)
    if found is None:
        if len(_secrets) >= _REMEMBERED:
            _secrets.clear()
        found = _secrets[job.claim] = secret_values(job.payload, secret_names(job.tags))
    return found


def job_fields(job: ClaimedJob) -> Mapping[str, Any]:
    """Return the fields that every log record of a run has about its job."""
    return {
        "job_id": job.claim.job,
        "task": job.task,
        "queue": job.queue,
        "attempt": job.attempt,
        "correlation_id": job.correlation_id,
        "tenant": job.tenant,
    }


class WithJob(logging.Filter):
    """A logging filter that adds the current job to records.

    It sets ``job_id``, ``task``, ``queue``, ``attempt``, ``correlation_id`` and ``tenant`` on every
    record that is logged inside a run. Elsewhere they are None, so that a format can name them. It
    does not replace attributes that a record has.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the attributes, and let the record pass."""
        job = job_of_run()
        fields = _NOTHING if job is None else job_fields(job)
        for name, value in fields.items():
            vars(record).setdefault(name, value)
        return True


_NOTHING: Mapping[str, None] = dict.fromkeys(
    ("job_id", "task", "queue", "attempt", "correlation_id", "tenant")
)
