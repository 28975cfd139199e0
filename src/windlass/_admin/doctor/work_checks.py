"""Whether what waits can run: workers, queues, tasks, payloads, clocks, wake-ups."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from windlass._admin.doctor.finding import Finding, bad, ok, warn
from windlass._admin.explain.cause import few, plural, shell_command
from windlass._core.flows.pending import has_pending
from windlass._core.job.job import JobRecord
from windlass._core.values.names import shown
from windlass._observe.log import brief
from windlass._storage.protocol.admin import QueueCounts
from windlass._storage.protocol.storage import Storage
from windlass._storage.protocol.workers import HEARD, Duty, Standing, WorkerRecord
from windlass._system.seams import monotonic
from windlass._tasks.task import TaskRegistry

__all__ = [
    "LiveWorkers",
    "check_argument_mismatches",
    "check_clocks",
    "check_payloads",
    "check_queues",
    "check_schedules",
    "check_tasks",
    "check_wakeups",
    "check_workers",
]

_SKEW = (timedelta(seconds=2), timedelta(seconds=30))
_HINT_QUEUE = "windlass-doctor"
"""An unused queue. Pausing and resuming it at once is the smallest write that wakes all workers."""
_PATIENCE, _AGAIN = 6.0, 0.5
_SLOW = 1.0


class LiveWorkers(msgspec.Struct, frozen=True):
    """The workers as the store knows them."""

    live: Sequence[WorkerRecord]
    silent: Sequence[WorkerRecord]

    @classmethod
    def of(cls, records: Sequence[WorkerRecord], now: datetime) -> LiveWorkers:
        """Return those that are not dead or gone, by whether they were heard of in time."""
        return cls(
            [one for one in records if one.standing(now) in HEARD],
            [one for one in records if one.standing(now) is Standing.SILENT],
        )

    def serving(self, queue: str) -> list[WorkerRecord]:
        """List the workers that would run a job of this queue."""
        return [one for one in self.live if queue in one.start.queues and one.duty is Duty.WORK]

    def resting(self, queue: str) -> WorkerRecord | None:
        """Find a paused worker of this queue."""
        resting = (one for one in self.live if one.duty is Duty.QUIET)
        return next((one for one in resting if queue in one.start.queues), None)


def check_workers(crew: LiveWorkers) -> Iterator[Finding]:
    """Check that workers are live and run the same version."""
    if crew.silent:
        names = few([f"{one.start.id} on {one.start.host}" for one in crew.silent])
        yield warn(
            "workers",
            f"{plural(len(crew.silent), 'worker')} sent no heartbeat within the lease: {names}.",
            "Check whether the machine is up; other workers take over its jobs",
        )
    elif not crew.live:
        yield warn(
            "workers",
            "No worker is live: enqueued jobs wait.",
            f"Start one: {shell_command('worker', 'MODULE:APP')}",
        )
    else:
        slots = sum(one.start.slots for one in crew.live)
        yield ok(
            "workers",
            f"Live: {plural(len(crew.live), 'worker')} with {plural(slots, 'slot')}.",
        )
    versions = sorted({one.start.version for one in crew.live})
    if len(versions) > 1:
        yield warn(
            "versions",
            f"Workers run different versions of Windlass: {few(versions)}.",
            "Finish the deploy: restart the workers with the oldest version",
        )


def check_queues(counts: Sequence[QueueCounts], crew: LiveWorkers) -> Iterator[Finding]:
    """Find queues with waiting jobs and without a worker."""
    waiting = {one.queue: one for one in counts if one.ready or one.scheduled}
    deserted = [name for name in waiting if not crew.serving(name)]
    for name in deserted:
        one = waiting[name]
        text = f"{_many(one)} on queue {shown(name)}, which no live worker serves."
        fix = f"Start one: {shell_command('worker', 'MODULE:APP', '--queue', name)}"
        if (resting := crew.resting(name)) is not None:
            text = f"{_many(one)} on queue {shown(name)}, whose workers are paused."
            fix = f"Resume one: {shell_command('workers', 'resume', resting.start.id)}"
        yield (
            bad("queue_without_worker", text, fix)
            if one.ready
            else warn("queue_without_worker", text, fix)
        )
    paused = [name for name, one in waiting.items() if one.paused and name not in deserted]
    for name in paused:
        yield warn(
            "queue_paused",
            f"{_many(waiting[name])} on queue {shown(name)}, which is paused.",
            f"Resume it: {shell_command('queues', 'resume', name)}",
        )
    if not deserted:
        text = f"{plural(len(waiting), 'queue')} with waiting jobs, all served."
        yield ok("queues", text if waiting else "No job waits in any queue.")


def _many(one: QueueCounts) -> str:
    waiting = one.ready + one.scheduled
    least = one.cap is not None and one.cap in (one.ready, one.scheduled)
    more, verb = " or more" if least else "", "waits" if waiting == 1 else "wait"
    return f"{plural(waiting, 'job')}{more} {verb}"


def check_schedules(paused: datetime | None, now: datetime) -> Iterator[Finding]:
    """Find that an operator paused all schedules."""
    if paused is not None:
        yield warn(
            "schedules_paused",
            f"All schedules are paused, for {brief(now - paused)}: none enqueues a job.",
            f"Resume them: {shell_command('schedules', 'resume', '--all')}",
        )


def check_tasks(
    sample: Sequence[JobRecord], crew: LiveWorkers, known_here: Collection[str]
) -> Iterator[Finding]:
    """Find waiting jobs whose task no worker of their queue has."""
    waiting: dict[tuple[str, str], JobRecord] = {}
    for job in sample:
        waiting.setdefault((job.task, job.queue), job)
    everywhere = {name for one in crew.live for name in one.start.tasks}
    found = False
    for (task, queue), job in sorted(waiting.items()):
        serving = crew.serving(queue)
        # A worker that does not say what it has, an older one, may have anything.
        if any(not one.start.tasks or task in one.start.tasks for one in serving):
            continue
        if not serving and task in known_here:
            continue  # a worker of this app would have it
        found = True
        where = f"Jobs of task {shown(task)} wait on queue {shown(queue)} (such as {job.id})"
        if task in everywhere or task in known_here:
            whose = "workers of other queues have" if task in everywhere else "this app has"
            yield warn(
                "unknown_task",
                f"{where}; {whose} that task, but no live worker of this queue has it.",
                "Restart the workers of that queue with the code that defines it",
            )
        else:
            yield bad(
                "unknown_task",
                f"{where}; no live worker has that task.",
                "Deploy the code that defines it: import its module in the app, or list it in "
                f"Windlass(imports=[…]). Or cancel the jobs: "
                f"{shell_command('jobs', 'cancel', '--all', '--task', task)}",
            )
    if waiting and not found:
        number = len({task for task, _ in waiting})
        yield ok("tasks", f"{plural(number, 'task')} with waiting jobs, all known.")


def check_payloads(sample: Sequence[JobRecord], registry: TaskRegistry) -> Iterator[Finding]:
    """Find waiting jobs whose arguments do not fit the function any more."""
    wrong: dict[str, list[tuple[JobRecord, Exception]]] = {}
    looked = 0
    for job in sample:
        task = registry.find(job.task)
        if task is None or has_pending(job.payload):
            continue
        looked += 1
        decode = task.codec.decode_known if has_pending(job.payload) else task.codec.decode
        try:
            decode(job.payload)
        except Exception as error:  # noqa: BLE001 -- decoding runs code of the user's types
            wrong.setdefault(job.task, []).append((job, error))
    for name, those in sorted(wrong.items()):
        job, why = those[0]
        yield bad(
            "undecodable_payload",
            f"{plural(len(those), 'waiting job')} of task {shown(name)} cannot be run by this "
            f"code (such as {job.id}): {why}",
            "Give new parameters a default and keep the old ones until those jobs have run; a "
            "job that does not fit waits for workers with other code, and fails after an hour",
        )
    if looked and not wrong:
        yield ok("payloads", f"{plural(looked, 'waiting job')} checked: the arguments fit.")


def check_argument_mismatches(sample: Sequence[JobRecord]) -> Iterator[Finding]:
    """Find jobs that workers released because their arguments do not fit."""
    those: dict[tuple[str, str], list[JobRecord]] = {}
    for job in sample:
        if job.missed_why is not None and job.missed_why.startswith("Misfit:"):
            those.setdefault((job.task, job.queue), []).append(job)
    for (task, queue), jobs in sorted(those.items()):
        job = jobs[0]
        yield warn(
            "misfit",
            f"{plural(len(jobs), 'job')} of task {shown(task)} on queue {shown(queue)} "
            f"{'waits because its' if len(jobs) == 1 else 'wait because their'} arguments do not "
            f"fit the code of the workers (such as {job.id}): {job.missed_why}",
            "Finish the deploy: start workers of that queue with the code that the producers run. "
            "Next time deploy workers before producers",
        )


# --- time -----------------------------------------------------------------------------------------


def check_clocks(store: datetime, here: datetime, crew: LiveWorkers) -> Iterator[Finding]:
    """Compare the clocks of this machine and of the workers with the store's."""
    off: Mapping[str, timedelta] = {"this machine": here - store} | {
        f"worker {one.start.id} on {one.start.host}": one.start.clock - one.started_at
        for one in crew.live
        if one.start.clock is not None
    }
    far = {name: skew for name, skew in off.items() if abs(skew) >= _SKEW[0]}
    for name, skew in far.items():
        ahead = "ahead of" if skew > timedelta(0) else "behind"
        found: Any = bad if abs(skew) >= _SKEW[1] else warn
        yield found(
            "clock",
            f"The clock of {name} is {brief(abs(skew))} {ahead} the store's. Jobs start by the "
            f"store's clock; times that your code computes (at=) and log lines do not.",
            "Synchronize the clocks with NTP or chrony, on the server too",
        )
    if not far:
        agree = f"{plural(len(off), 'clock')} {'agrees' if len(off) == 1 else 'agree'}"
        yield ok("clock", f"{agree} with the store's within 2 s.")


# --- wake-ups -------------------------------------------------------------------------------------


async def check_wakeups(listening: Storage, speaking: Storage) -> Finding:
    """Send a wake-up through one storage and wait until the other receives it."""
    heard = asyncio.Event()
    undo = listening.wakeups.subscribe(heard.set)
    try:
        took = await _until_heard(speaking, heard)
    finally:
        undo()
    if took is None:
        return warn(
            "notifications",
            f"A wake-up did not arrive within {_PATIENCE:g} s: workers find new jobs by polling, "
            f"and start them later.",
            "Behind PgBouncer use a pool in session mode, or a direct connection for workers; "
            "otherwise look for a firewall that cuts idle connections",
        )
    text = f"A wake-up arrived after {brief(timedelta(seconds=took))}."
    if took >= _SLOW:
        return warn(
            "notifications",
            text,
            "Check the load of the storage and the network: jobs start late",
        )
    return ok("notifications", text)


async def _until_heard(speaking: Storage, heard: asyncio.Event) -> float | None:
    """Measure the seconds from a wake-up to its arrival. It repeats the wake-up, because the
    listener may still be connecting.

    It measures twice: the first arrival may only show that the connection is up.
    """
    took: float | None = None
    until = monotonic() + _PATIENCE
    for _ in range(2):
        heard.clear()
        while not heard.is_set():
            if monotonic() >= until:
                return took
            said = monotonic()
            await speaking.admin.pause(_HINT_QUEUE)
            await speaking.admin.resume(_HINT_QUEUE)
            try:
                async with asyncio.timeout(_AGAIN):
                    await heard.wait()
            except TimeoutError:
                continue
            took = monotonic() - said
    return took
