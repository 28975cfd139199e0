"""The values most tests of the core begin with."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from hypothesis import settings

from windlass._core.job.job import AttemptError, Claim, ClaimedJob, JobId

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
WORKER = "w0123456789ab"

few = settings(max_examples=30)
"""For properties with few ways to be wrong: the whole folder is to take a moment only."""

ERROR = AttemptError("builtins.ValueError", "no such order", "Traceback …")

_JOB = ClaimedJob(
    claim=Claim(JobId("0195511c7a0070008000000000000001"), number=7, seq=41),
    task="shop.send_email",
    queue="mail",
    payload=b"{}",
    attempt=1,
    max_attempts=5,
    budget=5,
    due=NOW - timedelta(seconds=2),
    started_at=NOW - timedelta(seconds=1),
    worker=WORKER,
)


def claimed(**changes: Any) -> ClaimedJob:
    """A running job on attempt 1 of 5, changed as wanted."""
    return msgspec.structs.replace(_JOB, **changes)
