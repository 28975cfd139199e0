"""``windlass jobs logs``."""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from tests.cli.fixtures import Desk
from tests.cli.processes import Running
from windlass._app.parts import parts_of
from windlass._core.job.job import ClaimedJob, NewJob
from windlass._core.job.transition import succeed
from windlass._storage.protocol.jobs import Want
from windlass._storage.protocol.journal import LogChunk, LogLine
from windlass._system.seams import new_job_id
from windlass.testing._clock import START
from windlass.testing.conformance.steps import HOUR, a_worker

FIRST = LogLine(START, logging.INFO, "resizing \x1b[2J")
SECOND = LogLine(START, logging.ERROR, "too large")


def at_work(desk: Desk) -> ClaimedJob:
    async def claimed() -> ClaimedJob:
        storage = await parts_of(desk.app).storage()
        await storage.workers.register(a_worker("w1", lease=HOUR))
        await storage.jobs.insert([NewJob(id=new_job_id(), task="resize")])
        (job,) = (await storage.jobs.claim("w1", [Want("default", 1)], total=1)).jobs
        return job

    job: ClaimedJob = desk.run(claimed())
    return job


def logged(desk: Desk, job: ClaimedJob, number: int, *lines: LogLine) -> None:
    async def append() -> None:
        storage = await parts_of(desk.app).storage()
        await storage.journal.append_logs([LogChunk(job.claim, number, lines)])

    desk.run(append())


def test_lines_are_printed_run_by_run(everywhere: Desk) -> None:
    desk = everywhere
    job = at_work(desk)
    assert desk("jobs", "logs", job.claim.job).out == ""
    logged(desk, job, 1, FIRST)
    logged(desk, job, 2, SECOND)
    first, second = desk("jobs", "logs", job.claim.job).out.splitlines()
    assert first == f"{START:%Y-%m-%d %H:%M:%S}.000  run 1  INFO     resizing \\x1b[2J"
    assert second.endswith("ERROR    too large")
    told: list[dict[str, Any]] = desk("jobs", "logs", job.claim.job, "--json").json
    assert [(line["run"], line["level"]) for line in told] == [(1, "INFO"), (1, "ERROR")]
    assert [line["text"] for line in told] == [FIRST.text, SECOND.text]
    errors = desk("jobs", "logs", job.claim.job, "--level", "error", "--json").json
    assert [line["text"] for line in errors] == ["too large"]
    unknown = desk("jobs", "logs", "0" * 32)
    assert unknown.code == 1
    assert "is stored. Check the id" in unknown.err


def test_lines_are_followed_until_the_job_has_ended(desk: Desk, tmp_path: Any) -> None:
    job = at_work(desk)
    logged(desk, job, 1, FIRST)
    words = ("jobs", "logs", job.claim.job, "--follow", "--json", "--url", desk.url)
    with Running(*words, cwd=tmp_path) as running:
        running.wait_for("resizing")
        logged(desk, job, 2, SECOND)
        running.wait_for("too large")

        async def end() -> None:
            storage = await parts_of(desk.app).storage()
            await storage.jobs.apply([succeed(job, by="w1", result=None)])

        desk.run(end())
        assert running.wait() == 0
    assert len([line for line in running.lines if msgspec.json.decode(line)]) == 2
