"""Programs as handlers: one process per job or warm ones, and what becomes of their replies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.worker.child_process.test_pool import alive, eventually, gone
from tests.worker.fixtures import logged
from tests.worker.program import program_app
from tests.worker.program.program_app import app, warm
from windlass import Context, Program, Windlass, errors, testing
from windlass._core.job.job import JobRecord
from windlass._core.job.state import State
from windlass._tasks.handle import Job
from windlass._worker.worker import Worker


@pytest.fixture
async def worker() -> AsyncIterator[Worker]:
    with testing.isolated(app):
        async with app, app.worker(slots=4) as worker:
            yield worker


async def failed(job: Job[Any]) -> JobRecord:
    with pytest.raises(errors.JobFailed):
        await job.result(timeout=20)
    return await job.refresh()


async def noted(job: Job[Any]) -> tuple[int, ...]:
    """The process ids that a program has reported."""

    async def said() -> bool:
        return (await job.refresh()).progress is not None

    await eventually(said)
    progress = (await job.refresh()).progress
    assert progress is not None
    return tuple(int(part) for part in progress.note.split())


async def pid_of_warm() -> int:
    return int(await (await warm.enqueue("pid")).result(timeout=20))


async def stored_lines(job: Job[Any], count: int) -> list[str]:
    async def stored() -> list[str]:
        chunks = await app.admin.jobs.logs(job.id)
        return [line.text for chunk in chunks for line in chunk.lines]

    async def enough() -> bool:
        return len(await stored()) >= count

    await eventually(enough)
    return await stored()


# --- warm processes ------------------------------------------------------------------------------


async def test_a_warm_process_runs_one_job_after_the_other(worker: Worker) -> None:
    assert len({await pid_of_warm() for _ in range(3)}) == 1


async def test_jobs_at_the_same_time_have_a_process_each(worker: Worker) -> None:
    jobs = [await warm.enqueue("endless") for _ in range(2)]
    (first,), (second,) = [await noted(job) for job in jobs]
    assert len({first, second, await pid_of_warm()}) == 3
    for job in jobs:
        await job.cancel()


async def test_a_request_says_which_job_it_is(worker: Worker) -> None:
    call = warm.options(correlation_id="r-1", tenant="acme", timeout=30)
    job = await call.enqueue("request", value=[1, {"a": None}])
    assert await job.result(timeout=20) == {
        "job": job.id,
        "task": "warm",
        "queue": "default",
        "attempt": 1,
        "max_attempts": 2,
        "timeout": 30.0,
        "correlation_id": "r-1",
        "tenant": "acme",
        "arguments": {"what": "request", "value": [1, {"a": None}]},
    }


async def test_defaults_of_the_function_reach_the_program(worker: Worker) -> None:
    request = await (await warm.enqueue("request")).result(timeout=20)
    assert request["arguments"] == {"what": "request", "value": None}


async def test_a_program_has_its_variables_and_its_directory(worker: Worker) -> None:
    shop, folder = await (await warm.enqueue("variable", "SHOP")).result(timeout=20)
    assert (shop, Path(folder)) == ("corner", Path(__file__).parent)


async def test_progress_and_log_lines_are_stored_with_the_run(worker: Worker) -> None:
    job = await warm.enqueue("talk")
    assert await job.result(timeout=20) is None
    progress = (await job.refresh()).progress
    assert progress is not None
    assert (progress.fraction, progress.note) == (0.5, "half")
    lines = await stored_lines(job, 2)
    assert sorted(lines) == ["a careful line", "a line of standard error"]


async def test_a_process_is_replaced_after_its_number_of_jobs() -> None:
    worn = Windlass("memory://", child_max_jobs=2)
    task = worn.task(run_in=program_app.WARM, name="warm")(warm.function)
    async with worn, worn.worker(slots=1):
        pids = [await (await task.enqueue("pid")).result(timeout=20) for _ in range(4)]
        assert pids[0] == pids[1] != pids[2] == pids[3]
        await gone(pids[0])


async def test_warm_processes_end_with_their_worker() -> None:
    with testing.isolated(app):
        async with app, app.worker(slots=1):
            pid = await pid_of_warm()
            assert alive(pid)
    assert not alive(pid)


# --- one process per job -------------------------------------------------------------------------


async def test_standard_output_is_the_result_of_a_program_that_runs_once(worker: Worker) -> None:
    job = await program_app.repeats.enqueue("x")
    request = await job.result(timeout=20)
    assert (request["job"], request["arguments"]) == (job.id, {"value": "x"})
    assert await (await program_app.ignores.enqueue()).result(timeout=20) == [1, 2]
    assert await (await program_app.says_nothing.enqueue()).result(timeout=20) is None


async def test_a_program_need_not_read_a_large_request(worker: Worker) -> None:
    job = await program_app.ignores.enqueue("x" * 500_000)
    assert await job.result(timeout=20) == [1, 2]


async def test_a_large_request_arrives_whole(worker: Worker) -> None:
    request = await (await program_app.repeats.enqueue("x" * 500_000)).result(timeout=20)
    assert request["arguments"] == {"value": "x" * 500_000}


async def test_an_exit_code_fails_the_job_with_the_last_line_of_standard_error(
    worker: Worker,
) -> None:
    job = await program_app.fails.enqueue()
    record = await failed(job)
    assert record.error is not None
    assert record.attempt == 2  # retried like any failure
    assert record.error.kind == "ProgramFailed"
    assert "the program 'sh' ended with exit code 3" in record.error.message
    assert record.error.message.endswith("standard error: the disk is full")
    assert (await stored_lines(job, 4))[:2] == ["first", "the disk is full"]


async def test_an_exit_code_can_say_that_no_retry_helps(worker: Worker) -> None:
    assert (await failed(await program_app.gives_up.enqueue())).attempt == 1


async def test_output_that_is_not_json_gets_advice(worker: Worker) -> None:
    record = await failed(await program_app.no_json.enqueue())
    assert record.error is not None
    assert (record.attempt, record.error.kind) == (1, "BadReply")
    assert "'done' to standard output, which is not JSON" in record.error.message
    assert "everything else to standard error" in record.error.message


async def test_endless_output_is_cut_off(worker: Worker) -> None:
    record = await failed(await program_app.floods.enqueue())
    assert record.error is not None
    assert "more than result_limit=1,048,576 bytes" in record.error.message


# --- replies -------------------------------------------------------------------------------------


async def test_a_program_names_the_kind_of_its_error_and_when_to_retry(worker: Worker) -> None:
    record = await failed(
        await warm.enqueue("error", {"error": "no such page", "kind": "NotFound"})
    )
    assert record.error is not None
    assert (record.attempt, record.error.kind, record.error.message) == (
        2,
        "NotFound",
        "no such page",
    )
    final = await failed(await warm.enqueue("error", {"error": "no", "retry": False}))
    assert final.attempt == 1
    job = await warm.enqueue("error", {"error": "later", "after": 3600})

    async def put_off() -> bool:
        return (await job.refresh()).state is State.WAITING and (await job.refresh()).attempt == 1

    await eventually(put_off)
    waits = await job.refresh()
    assert waits.started_at is not None
    assert (waits.due - waits.started_at).total_seconds() > 3000


async def test_a_process_stays_warm_after_an_error(worker: Worker) -> None:
    pid = await pid_of_warm()
    await failed(await warm.enqueue("error", {"error": "no", "retry": False}))
    assert await pid_of_warm() == pid


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("Hello!", "'Hello!' to standard output, which is no reply"),
        ("[1]", "Expected `object`, got `array`"),
        ('{"job": "JOB", "error": 5}', "Expected `str | null`, got `int` - at `$.error`"),
        ('{"job": "JOB", "resutl": 5}', "unknown field `resutl`"),
        ('{"job": "JOB"}', "it wrote none. Write one line for each"),
        ('{"job": "JOB", "result": 1, "error": "x"}', "it wrote result and error"),
        ('{"job": "JOB", "result": 1, "retry": true}', "'retry' belongs to 'error'"),
        ('{"job": "JOB", "result": NaN}', "is no reply"),
        (r'{"job": "JOB", "error": "x", "kind": "a\u0000b"}', "'kind' is a name such as"),
        ('{"job": "other", "result": 1}', "its result names job 'other' while it runs job"),
        ('{"result": null}', "its result names no job"),
        ('{"progress": 2}', "progress must be between 0 and 1, got 2.0"),
        ('{"log": "x", "level": "loud"}', "Invalid enum value 'loud'"),
    ],
)
async def test_a_bad_reply_fails_the_job_and_says_why(worker: Worker, line: str, why: str) -> None:
    record = await failed(await warm.options(max_attempts=1).enqueue("raw", line))
    assert record.error is not None
    assert record.error.kind == "BadReply"
    assert why in record.error.message
    assert await pid_of_warm()  # in a process that has not lost its way


async def test_a_second_reply_never_counts_for_the_next_job(worker: Worker) -> None:
    before = await pid_of_warm()
    with logged() as lines:
        twice = '{"job": "JOB", "result": 1}\n{"job": "JOB", "result": 2}'
        assert await (await warm.enqueue("raw", twice)).result(timeout=20) == 1
        assert await pid_of_warm() != before
    assert lines.having("or a second reply, and is replaced: write one result")


async def test_a_result_must_fit_the_annotation(worker: Worker) -> None:
    assert await (await program_app.number.enqueue("pid")).result(timeout=20) > 0
    record = await failed(await program_app.number.enqueue("request"))
    assert record.error is not None
    assert "does not fit its return annotation" in record.error.message


async def test_a_reply_that_is_too_long_fails_the_job() -> None:
    small = Windlass("memory://", result_limit=1000)
    task = small.task(run_in=program_app.WARM, name="warm")(warm.function)
    async with small, small.worker(slots=1):
        for size, why in ((5_000, "5,0.. bytes"), (200_000, "more than result_limit=1,000 bytes")):
            reply = '{"job": "JOB", "result": "' + "x" * size + '"}'
            job = await task.enqueue("raw", reply)
            with pytest.raises(errors.JobFailed, match=why):
                await job.result(timeout=20)
            assert (await job.refresh()).attempt == 1


async def test_secrets_are_masked_in_the_errors_of_a_program(worker: Worker) -> None:
    reply = {"error": "the token hunter2-hunter2 was refused", "retry": False}
    record = await failed(await program_app.secret.enqueue("error", reply, "hunter2-hunter2"))
    assert record.error is not None
    assert record.error.message == "the token *** was refused"


# --- in tests and in code ------------------------------------------------------------------------


async def test_a_drain_runs_the_program_and_replaced_runs_a_function() -> None:
    with testing.isolated(app):
        job = await warm.enqueue("request")
        await testing.drain(app)
        assert (await job.result())["job"] == job.id

        def fake(what: str, value: object = None) -> str:
            return f"fake {what}"

        with testing.replaced(app, warm, fake):
            job = await warm.enqueue("request")
            await testing.drain(app)
            assert await job.result() == "fake request"


def test_calling_a_task_runs_its_function() -> None:
    assert warm("x", 5) == ["the function", "x", 5]


async def test_middleware_is_around_a_program() -> None:
    kept: list[str] = []
    layered = Windlass("memory://", max_attempts=1)
    task = layered.task(run_in=program_app.WARM, name="warm")(warm.function)

    @layered.middleware
    async def twice(ctx: Context, call_next: Any) -> Any:
        try:
            return await call_next()
        except errors.ProgramFailed as error:
            kept.append(f"{ctx.task} {error.kind}")
            return await call_next()

    async with layered, layered.worker(slots=1):
        assert await (await task.enqueue("pid")).result(timeout=20)
        job = await task.enqueue("leave", 3)
        with pytest.raises(errors.JobFailed, match="exit code 3"):
            await job.result(timeout=20)
    assert kept == ["warm ProgramFailed"]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"command": "./resize --fast"}, "is a list such as"),
        ({"command": []}, "is a list such as"),
        ({"command": ["./resize", 5]}, "text without NUL, got 5"),
        ({"command": ["", "x"]}, "must not be empty"),
        ({"command": ["a\0b"]}, "text without NUL"),
        ({"command": ["x"], "warm": "yes"}, "warm must be True or False"),
        ({"command": ["x"], "env": ["A=b"]}, "env is a mapping"),
        ({"command": ["x"], "env": {"A": 5}}, r"env\['A'\] must be text"),
        ({"command": ["x"], "env": {"A=B": "c"}}, "must not hold '='"),
        ({"command": ["x"], "cwd": 5}, "cwd must be a path"),
        ({"command": ["x"], "give_up_codes": [0]}, "exit codes from 1 to 255"),
        ({"command": ["x"], "give_up_codes": 3}, "exit codes from 1 to 255"),
    ],
)
def test_a_wrong_program_is_refused_where_it_is_written(given: dict[str, Any], why: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=why):
        Program(**given)


def test_a_program_gets_no_context() -> None:
    here = Windlass("memory://")
    with pytest.raises(errors.DefinitionError, match="gets no Context: leave the parameter out"):

        @here.task(run_in=Program(["x"]))
        def resize(ctx: Context, path: str) -> None: ...


async def test_many_jobs_share_few_processes() -> None:
    busy = Windlass("memory://")
    task = busy.task(run_in=program_app.WARM, name="warm")(warm.function)
    async with busy, busy.worker(slots=2):
        jobs = await busy.enqueue_many([task.call("pid") for _ in range(50)])
        pids = await asyncio.gather(*(job.result(timeout=20) for job in jobs))
    assert 1 <= len(set(pids)) <= 2


# --- one process per job, and no more ---


async def test_a_program_that_reads_nothing_runs_once_for_each_job(tmp_path: Path) -> None:
    shop, ran = Windlass("memory://", lease=30), tmp_path / "ran"

    @shop.task(run_in=Program(["sh", "-c", f"echo ran >> {ran}; echo 1"]), name="count")
    def count() -> int:
        raise NotImplementedError

    async with shop, shop.worker(slots=4):
        jobs = [await count.enqueue() for _ in range(40)]
        assert [await job.result(timeout=30) for job in jobs] == [1] * 40
    assert ran.read_text(encoding="ascii").splitlines() == ["ran"] * 40


async def test_a_job_that_middleware_refuses_starts_no_program(tmp_path: Path) -> None:
    shop, ran = Windlass("memory://", lease=30), tmp_path / "ran"

    @shop.middleware
    async def refuse(context: Context, call_next: Any) -> Any:
        raise errors.InvalidArgument("not today")

    @shop.task(run_in=Program(["sh", "-c", f"echo ran >> {ran}"]), name="wipe", max_attempts=1)
    def wipe() -> None:
        raise NotImplementedError

    async with shop, shop.worker(slots=1):
        job = await wipe.enqueue()
        error = (await failed(job)).error
        assert error is not None
        assert error.message == "not today"
    assert not ran.exists()
