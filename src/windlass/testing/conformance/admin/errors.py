"""`AdminStore.errors`: failed jobs by exception and place."""

from __future__ import annotations

from windlass._core.job.error_origin import frame_of
from windlass._core.job.job import AttemptError, JobId
from windlass._core.job.outcome import GaveUp, Raised
from windlass._core.job.state import State
from windlass._storage.protocol.actions import Discard, Requeue
from windlass._storage.protocol.admin import ErrorGroup
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._storage.protocol.storage import Storage
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    HOUR,
    INSTANT,
    MINUTE,
    OOPS,
    a_job,
    add,
    claim,
    enlist,
    every,
    happened,
    obeyed,
    started,
)

__all__ = ["ErrorGroupConformance"]


def raised(kind: str, place: str = "send", line: int = 1, text: str = "no") -> AttemptError:
    """Return an error from a line of a function."""
    traceback = (
        "Traceback (most recent call last):\n"
        f'  File "/srv/shop/jobs/mail.py", line {line}, in {place}\n'
        "    deliver()\n"
        f"{kind}: {text}\n"
    )
    return AttemptError(kind, text, traceback)


async def failing(
    storage: Storage, error: AttemptError, *, queue: str = "default", task: str = "conform"
) -> JobId:
    """Return a job that failed by this."""
    await enlist(storage)
    (job,) = await add(storage, a_job(queue=queue, task=task, priority=-1))
    (running,) = await claim(storage, queue=queue)
    await happened(storage, running, GaveUp(error))
    return job


async def groups(storage: Storage) -> list[ErrorGroup]:
    look = await storage.admin.errors()
    assert look.complete
    return list(look.groups)


class ErrorGroupConformance:
    """The same exception at the same place is the same fault."""

    async def test_the_same_exception_at_the_same_place_is_one_group(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # ERRH-3
        first = clock.now()
        await failing(storage, raised("E", text="first"), queue="b", task="y")
        clock.advance(MINUTE)
        await failing(storage, raised("E", line=7, text="second"), queue="a", task="y")
        clock.advance(MINUTE)
        last = await failing(storage, raised("E", line=9, text="third"), queue="b", task="x")
        assert await groups(storage) == [
            ErrorGroup(
                kind="E",
                frame=frame_of(raised("E").traceback),
                count=3,
                first=first,
                last=clock.now(),
                job=last,
                text="third",
                tasks=["x", "y"],
                queues=["a", "b"],
            )
        ]

    async def test_another_exception_or_another_place_is_another_group(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        for error in (raised("E"), raised("F"), raised("E", "receive"), raised("E")):
            await failing(storage, error)
            clock.advance(MINUTE)
        told = [(group.kind, group.frame, group.count) for group in await groups(storage)]
        assert told == [
            ("E", "jobs/mail.py send", 2),
            ("E", "jobs/mail.py receive", 1),
            ("F", "jobs/mail.py send", 1),
        ]

    async def test_an_error_without_a_traceback_has_no_place(self, storage: Storage) -> None:
        await failing(storage, AttemptError("WorkerLost", "gone"))
        await failing(storage, AttemptError("WorkerLost", "gone", "nothing to read here"))
        (group,) = await groups(storage)
        assert (group.kind, group.frame, group.count) == ("WorkerLost", "", 2)

    async def test_only_failed_jobs_are_counted(self, storage: Storage) -> None:
        await happened(storage, await started(storage), Raised(raised("E")))
        discarded = await failing(storage, raised("E"))
        await obeyed(storage, Discard("no use"), discarded)
        back = await failing(storage, raised("E"))
        assert [group.count for group in await groups(storage)] == [1]
        await obeyed(storage, Requeue(), back)
        assert await groups(storage) == []

    async def test_the_last_error_of_a_job_is_the_one_that_counts(self, storage: Storage) -> None:
        running = await started(storage)
        await happened(storage, running, Raised(raised("Early"), 0 * MINUTE))
        (again,) = await claim(storage)
        await happened(storage, again, GaveUp(raised("Late", "other")))
        (group,) = await groups(storage)
        assert (group.kind, group.frame) == ("Late", "jobs/mail.py other")

    async def test_errors_since_then_begin_with_that_instant(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await failing(storage, raised("E"))
        clock.advance(MINUTE)
        since = clock.now()
        await failing(storage, raised("E"))
        clock.advance(MINUTE)
        await failing(storage, raised("E"))
        (all_three,) = (await storage.admin.errors(since=since - HOUR)).groups
        (recent,) = (await storage.admin.errors(since=since)).groups
        (last,) = (await storage.admin.errors(since=since + INSTANT)).groups
        assert [one.count for one in (all_three, recent, last)] == [3, 2, 1]
        assert recent.first == since
        assert list((await storage.admin.errors(since=clock.now() + HOUR)).groups) == []

    async def test_errors_of_one_queue_or_task(self, storage: Storage) -> None:
        await failing(storage, raised("E"), queue="a", task="x")
        await failing(storage, raised("E"), queue="a", task="y")
        await failing(storage, raised("F"), queue="b", task="x")
        by_queue = (await storage.admin.errors(queue="a")).groups
        by_task = (await storage.admin.errors(task="x")).groups
        by_both = (await storage.admin.errors(queue="a", task="x")).groups
        assert [(one.kind, one.count, one.tasks) for one in by_queue] == [("E", 2, ["x", "y"])]
        assert sorted((one.kind, one.count) for one in by_task) == [("E", 1), ("F", 1)]
        assert [(one.kind, one.tasks, one.queues) for one in by_both] == [("E", ["x"], ["a"])]

    async def test_a_look_that_is_too_short_says_so_and_sees_the_last_failures(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        for kind in ("Old", "New", "New"):
            await failing(storage, raised(kind))
            clock.advance(MINUTE)
        short = await storage.admin.errors(look=2)
        assert not short.complete
        assert [(group.kind, group.count) for group in short.groups] == [("New", 2)]
        whole = await storage.admin.errors(look=3)
        assert (whole.complete, len(whole.groups)) == (True, 2)

    async def test_a_long_text_is_cut(self, storage: Storage) -> None:
        await failing(storage, raised("E", text="é" * 600))
        (group,) = await groups(storage)
        assert group.text == "é" * 500

    async def test_a_group_leads_to_its_jobs(self, storage: Storage) -> None:
        jobs = [await failing(storage, raised("E", line=n)) for n in range(3)]
        await failing(storage, raised("E", "elsewhere"))
        await failing(storage, OOPS)
        (group,) = [one for one in await groups(storage) if one.count == 3]
        wanted = JobFilter(states=[State.FAILED], error=group.kind, frame=group.frame)
        assert await every(storage, wanted) == jobs[::-1]
