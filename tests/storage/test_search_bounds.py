"""One text search reads a bounded part of the jobs, and paging on reaches all of them."""

from __future__ import annotations

import pytest

from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._storage.protocol.storage import Storage
from windlass.testing.conformance.flows.steps import Plan, start
from windlass.testing.conformance.steps import a_job, add

LONG = b'"' + b"https://example.org/?token=x " * 700 + b'"'
"""About 20 KB, of a kind that takes long to mask."""


@pytest.mark.parametrize("storage", ["sqlite", "postgres", "redis"], indirect=True)
async def test_a_search_stops_after_half_a_megabyte_and_the_next_continues(
    storage: Storage,
) -> None:
    (wanted,) = await add(storage, a_job(payload=b'"needle"'))
    await add(storage, *(a_job(payload=LONG) for _ in range(80)))
    asked, looks = JobFilter(text="needle"), 0
    while True:
        page = await storage.admin.find(asked, limit=10)
        looks += 1
        if page.next is None:
            break
        asked = JobFilter(text="needle", before=page.next)
    assert [job.id for job in page] == [wanted]
    assert 2 <= looks <= 10


@pytest.mark.parametrize("storage", ["sqlite", "postgres", "redis"], indirect=True)
async def test_a_search_in_a_flow_reads_none_of_the_other_jobs(storage: Storage) -> None:
    plan = Plan()
    (job,) = plan.part("a", payload=b'"needle"')
    await start(storage, plan)
    await add(storage, *(a_job(payload=LONG) for _ in range(80)))
    page = await storage.admin.find(JobFilter(flow=plan.id, text="needle"), limit=10)
    assert ([one.id for one in page], page.next) == ([job.id], None)
