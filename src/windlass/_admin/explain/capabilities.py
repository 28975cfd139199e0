"""Facts that the workers of a queue registered: their tasks, their release, their clock."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from windlass._admin.explain.cause import Cause, few
from windlass._admin.explain.facts import JobFacts
from windlass._observe.log import brief
from windlass._plugins.names import plugin_of
from windlass._storage.protocol.workers import WorkerRecord
from windlass._version import __version__

__all__ = ["capability_causes", "missing_task_advice"]

_SKEW = timedelta(seconds=2)
_NAMED = 20


def capability_causes(facts: JobFacts) -> Iterator[Cause]:
    """Yield the causes: no worker has the task, all of them are old, or a clock is off."""
    if not facts.crew.serving:
        return
    if facts.job.missed_at is None and facts.crew.lacks(facts.job.task):
        yield _nobody_has_it(facts)
    yield from _versions(facts)
    yield from _clocks(facts)


def missing_task_advice(facts: JobFacts) -> str:
    """Return the advice that makes workers know a job's task."""
    plugin = plugin_of(facts.job.tags)
    if plugin is not None:
        return f"install plugin {plugin} in their app, app.install(…)"
    return "import its module in the app, or list it in Windlass(imports=[…])"


def _nobody_has_it(facts: JobFacts) -> Cause:
    job, crew = facts.job, facts.crew
    elsewhere = [worker for worker in crew.elsewhere if job.task in worker.start.tasks]
    queues = sorted({queue for worker in elsewhere for queue in worker.start.queues})
    others = f" Workers of {few(queues)} have it." if elsewhere else ""
    return Cause(
        code="unknown_task",
        sentence=f"Live workers serve queue {job.queue}, but none of them had task {job.task} when "
        f"it started.{others}",
        evidence={
            "task": job.task,
            "plugin": plugin_of(job.tags),
            "tasks": {
                worker.start.id: list(worker.start.tasks) for worker in crew.serving[:_NAMED]
            },
            "elsewhere": [worker.start.id for worker in elsewhere[:_NAMED]],
        },
        fix=f"Start workers of queue {job.queue} with the code that defines {job.task}: "
        f"{missing_task_advice(facts)}",
    )


def _versions(facts: JobFacts) -> Iterator[Cause]:
    job, crew = facts.job, facts.crew
    versions = sorted({worker.start.version for worker in crew.serving}, key=_numbers)
    told = {worker.start.id: worker.start.version for worker in crew.serving[:_NAMED]}
    if len(versions) > 1:
        yield Cause(
            code="versions_differ",
            sentence=f"The workers of queue {job.queue} run different versions of Windlass "
            f"({few(versions)}): an older one may not be able to run every job.",
            evidence={"versions": told},
            fix="Finish the deploy: restart the workers with the oldest version",
        )
    newest = max((*_all_versions(crew.elsewhere), __version__), key=_numbers)
    if _numbers(versions[-1]) < _numbers(newest):
        yield Cause(
            code="workers_too_old",
            sentence=f"Every worker of queue {job.queue} runs Windlass {versions[-1]} or older, "
            f"and {newest} is in use: an older release may not be able to read what a newer one "
            f"stores.",
            evidence={"versions": told, "newest": newest},
            fix=f"Finish the deploy: restart the workers of queue {job.queue} with {newest}",
        )


def _all_versions(workers: Sequence[WorkerRecord]) -> list[str]:
    return [worker.start.version for worker in workers]


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version: 1.10 is newer than 1.9. The rest does not count."""
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])


def _clocks(facts: JobFacts) -> Iterator[Cause]:
    for worker in facts.crew.serving:
        said = worker.start.clock
        skew = timedelta(0) if said is None else said - worker.started_at
        if abs(skew) < _SKEW:
            continue
        where = "ahead of" if skew > timedelta(0) else "behind"
        evidence: dict[str, Any] = {
            "worker": worker.start.id,
            "host": worker.start.host,
            "skew": skew.total_seconds(),
        }
        yield Cause(
            code="clock_skew",
            sentence=f"The clock of worker {worker.start.id} on {worker.start.host} was "
            f"{brief(abs(skew))} {where} the store's when it started. Jobs start by the store's "
            f"clock; times that this machine gives to jobs, and its log lines, are wrong by that.",
            evidence=evidence,
            fix=f"Synchronize the clock of {worker.start.host} with NTP, then restart the worker",
        )
