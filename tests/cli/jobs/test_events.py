"""``windlass jobs events``."""

from __future__ import annotations

from datetime import timedelta

from tests.cli.fixtures import Desk
from windlass._app.parts import parts_of
from windlass._core.job.job import JobId, NewJob
from windlass._storage.protocol.journal import EventRecord
from windlass._system.seams import new_job_id


def logged(desk: Desk) -> tuple[JobId, JobId]:
    """Two jobs, enqueued half an hour ago, and one of them started two hours before."""

    async def append() -> tuple[JobId, JobId]:
        storage = await parts_of(desk.app).storage()
        first, second = new_job_id(), new_job_id()
        await storage.jobs.insert([NewJob(id=job, task="send") for job in (first, second)])
        now = await storage.now()
        ages = ((first, "enqueued", 30), (second, "enqueued", 20), (first, "started", 120))
        await storage.journal.append_events(
            [
                EventRecord(
                    at=now - timedelta(minutes=age), kind=kind, job=job, task="send", queue="mail"
                )
                for job, kind, age in ages
            ]
        )
        return first, second

    jobs: tuple[JobId, JobId] = desk.run(append())
    return jobs


def test_events_are_listed_oldest_first_also_those_of_one_job(everywhere: Desk) -> None:  # API-3
    desk = everywhere
    assert "There are no events" in desk("jobs", "events").out
    first, second = logged(desk)
    rows = desk("jobs", "events").rows
    assert [(row[1], row[4]) for row in rows] == [("enqueued", first), ("enqueued", second)]
    told = desk("jobs", "events", "--since", "3h", "--job", first, "--json").json
    assert [one["kind"] for one in told] == ["started", "enqueued"]
    cut = desk("jobs", "events", "--since", "3h", "--limit", "1")
    assert "Continue with --after" in cut.err


def test_events_are_filtered_and_continue_where_a_page_ended(everywhere: Desk) -> None:  # API-3
    desk = everywhere
    first, second = logged(desk)
    always = ("jobs", "events", "--since", "3h", "--json")
    assert desk(*always, "--kind", "failed").json == []
    told = desk(*always, "--kind", "started", "--task", "send", "--queue", "mail").json
    assert [one["job"] for one in told] == [first]
    assert desk(*always, "--until", "1h").json == told
    assert desk(*always, "--worker", "w1").json == []
    newest = desk(*always, "--newest", "--limit", "1")
    assert [one["job"] for one in newest.json] == [second]
    after = newest.err.split()[-1]
    rest = desk(*always, "--newest", "--after", after)
    assert [one["kind"] for one in rest.json] == ["enqueued", "started"]
    assert rest.err == ""
    assert "after takes" in desk(*always, "--after", "yesterday").err


def test_a_job_that_is_not_stored_and_a_wrong_instant_are_refused(desk: Desk) -> None:
    assert "No job" in desk("jobs", "events", "--job", "0198c3a7…9c4e07").err
    assert "--since takes an instant" in desk("jobs", "events", "--since", "soon").err
