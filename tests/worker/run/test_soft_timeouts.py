"""``soft_timeout=``: a handler learns that its time is nearly up, and may clean up."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from tests.worker.fixtures import bench
from windlass import Context, SoftTimeout, Windlass
from windlass._core.job.job import JobRecord
from windlass._core.job.state import State
from windlass.errors import InvalidArgument, JobCancelled

SOON = 0.05


async def run(handler: Any, *, layers: bool = False, **options: Any) -> JobRecord:
    async with bench() as it:
        if layers:

            @it.app.middleware
            async def around(ctx: Context, call_next: Any) -> Any:
                return await call_next()

        given = {"soft_timeout": SOON, "max_attempts": 1, **options}
        task = it.app.task(name="work", **given)(handler)
        return await it.run(task.call())


async def cleans_up() -> str:
    try:
        await asyncio.sleep(60)
    except SoftTimeout as error:
        await asyncio.sleep(0)  # the next await is not disturbed
        return f"half done: {error}"
    return "done"


async def leaves_it() -> None:
    await asyncio.sleep(60)


async def ignores_errors() -> None:
    while True:
        with suppress(Exception):
            await asyncio.sleep(60)


async def in_a_group() -> str:
    ended: list[str] = []

    async def part() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("part")

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(part())
            group.create_task(part())
    except SoftTimeout:
        return ",".join(ended)
    return "never"


async def waits_for_others() -> str:
    try:
        await asyncio.gather(asyncio.sleep(60), asyncio.sleep(61))
    except SoftTimeout:
        async with asyncio.timeout(5):
            await asyncio.sleep(0.01)
        return "tidy"
    return "never"


@pytest.mark.parametrize("layers", [False, True])
@pytest.mark.parametrize(
    ("handler", "result"),
    [
        (cleans_up, b'"half done: the soft timeout of 0.05 s is over"'),
        (in_a_group, b'"part,part"'),
        (waits_for_others, b'"tidy"'),
    ],
)
async def test_a_coroutine_gets_it_once_and_may_still_succeed(
    handler: Any, result: bytes, *, layers: bool
) -> None:
    job = await run(handler, layers=layers, timeout=30)
    assert (job.state, job.result) == (State.SUCCEEDED, result)


@pytest.mark.parametrize("handler", [leaves_it, ignores_errors])
async def test_a_coroutine_that_lets_it_pass_fails_like_one_that_timed_out(handler: Any) -> None:
    job = await run(handler)
    assert job.state is State.FAILED
    assert job.error is not None
    assert job.error.kind == "windlass.errors.JobTimeout"
    assert job.error.message == "ran longer than its soft timeout of 0.05 s"


async def test_it_is_an_error_like_others_and_is_retried() -> None:
    job = await run(leaves_it, max_attempts=2)
    assert (job.state, job.attempt) == (State.WAITING, 1)


async def test_the_timeout_still_ends_a_coroutine_that_goes_on() -> None:
    async def stubborn() -> None:
        try:
            await asyncio.sleep(60)
        except SoftTimeout:
            await asyncio.sleep(60)

    job = await run(stubborn, timeout=SOON * 3)
    assert job.error is not None
    assert job.error.message == "ran longer than its timeout of 0.15 s"


@pytest.mark.parametrize("layers", [False, True])
async def test_a_thread_sees_it_in_its_token(*, layers: bool) -> None:
    def plain(ctx: Context) -> bool:
        assert not ctx.cancelled
        return ctx.cancelled.wait(30)

    job = await run(plain, layers=layers, timeout=30)
    assert (job.state, job.result) == (State.SUCCEEDED, b"true")


async def test_a_handler_in_time_is_not_disturbed() -> None:
    async def quick() -> str:
        await asyncio.sleep(0)
        return "quick"

    job = await run(quick, soft_timeout=60)
    assert job.result == b'"quick"'


async def test_a_cancel_request_is_no_soft_timeout() -> None:
    seen: list[str] = []
    async with Windlass("memory://") as app:
        begun = asyncio.Event()

        @app.task(name="work", soft_timeout=60)
        async def work() -> None:
            begun.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError as error:
                seen.append(type(error).__name__)
                raise

        job = await work.enqueue()
        async with app.worker():
            await begun.wait()
            await job.cancel()
            with pytest.raises(JobCancelled):
                await job.result(timeout=30)
    assert seen == ["CancelledError"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"soft_timeout": 60, "timeout": 60}, "must be shorter than timeout"),
        ({"soft_timeout": "soon"}, "soft_timeout"),
        ({"soft_timeout": 0}, "soft_timeout must be longer than nothing"),
    ],
)
def test_times_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        Windlass("memory://").task(name="work", **options)(leaves_it)
