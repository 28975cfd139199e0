"""Handlers of plugins in child processes have the rights they have anywhere."""

from __future__ import annotations

from tests.plugins.process_app import app, mailer
from windlass import testing
from windlass._storage.protocol.lists.job_list import JobFilter


async def test_a_child_process_leads_no_further_than_the_worker_does() -> None:
    with testing.isolated(app):
        async with app, app.worker(queues=["default"], slots=1):
            job = await app.tasks["heavy.probe"].enqueue()
            said = await job.result(timeout=30)
            (made,) = await app.admin.jobs.find(JobFilter(task="heavy.note"))
    assert said == [
        "not_granted",
        "not_granted",
        "not_granted",
        "service_missing",
        "a job of 'heavy.note' asks for queue 'vip'",
        "plugin 'heavy' enqueues a job of task 'host.task'",
        "mailer",
    ]
    assert (made.queue, made.tags, made.parent) == ("mail", ("mine", "plugin:heavy"), job.id)
    assert mailer.sent == [], "the child has a mailer of its own"
