"""The sentence at the top of the overview: what needs somebody, or that nothing does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import msgspec

from windlass.observe.log import brief
from windlass.web.pages.overview_queues import QueueLine

__all__ = ["Verdict", "verdicts"]

_LATE = timedelta(minutes=1)
_SHOWN = 4


class Verdict(msgspec.Struct, frozen=True):
    """One thing to know, and where to go about it."""

    kind: str
    """``bad``, ``warn`` or ``good``: the colour."""
    sentence: str
    words: str = ""
    url: str = ""


def verdicts(
    rows: Sequence[QueueLine],
    workers: int,
    free: int,
    now: datetime,
    url: Callable[..., str],
    *,
    resting: int = 0,
) -> Sequence[Verdict]:
    """The worst first; when there is nothing to say, that. ``workers``: who takes something new;
    ``resting``: who was told not to.
    """
    ready = sum(row.counts.ready for row in rows)
    found: list[Verdict] = []
    if workers == 0 and ready:
        why = "every worker was told to take nothing new" if resting else "no worker is live"
        found.append(Verdict("bad", f"Jobs are ready and {why}.", "Workers", url("/workers")))
    for row in rows:
        if row.counts.paused and row.counts.ready:
            sentence = f"Queue {row.name} is paused while jobs are ready in it."
            where = url("/queues/one", queue=row.name)
            found.append(Verdict("warn", sentence, "The queue", where))
        elif workers and (late := _late(row, now)) is not None:
            busy = "; every slot is busy" if not free else ""
            sentence = f"In queue {row.name} a job has been ready for {brief(late)}{busy}."
            jobs = url("/jobs", state="ready", queue=row.name)
            found.append(Verdict("warn", sentence, "Its jobs", jobs))
    failed = sum(row.failed for row in rows)
    if failed:
        sentence = f"{_jobs(failed)} failed for good in the last hour."
        found.append(Verdict("bad", sentence, "Failed jobs", url("/jobs", state="failed")))
    if not found:
        words = (
            "Workers keep up: nothing waits that could run, and nothing failed in the last hour."
        )
        if workers == 0:
            words = "Nothing waits. No worker is live: jobs will wait until one is started."
            if resting:
                words = "Nothing waits. Every worker was told to take nothing new: jobs will wait."
        return [Verdict("good", words)]
    return sorted(found, key=lambda one: one.kind != "bad")[:_SHOWN]


def _late(row: QueueLine, now: datetime) -> timedelta | None:
    since = row.counts.oldest_due
    return None if since is None or now - since < _LATE else now - since


def _jobs(number: int) -> str:
    return "1 job" if number == 1 else f"{number:,} jobs"
