"""What is stored about an error: bounded, readable, and safe against errors that misbehave."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import pytest

from tests.worker.fixtures import Bench, bench
from windlass._core.job.job import AttemptError, JobRecord
from windlass._core.job.state import State
from windlass._worker.run.error_text import attempt_error_of, exception_name, truncate_middle

LIMIT = 64 * 1024


async def failed(it: Bench, function: Callable[[], Any]) -> AttemptError:
    """The stored error of a job that runs ``function`` once."""

    @it.app.task(name="job", max_attempts=1)
    async def job() -> None:
        function()

    record: JobRecord = await it.run(job.call())
    assert record.state is State.FAILED
    assert it.engine.slots.used == 0
    assert record.error is not None
    return record.error


def size(error: AttemptError) -> int:
    return len(error.message.encode()) + len(error.traceback.encode())


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even that")


class Deadly(Exception):
    def __str__(self) -> str:
        raise SystemExit(1)


@pytest.mark.parametrize("kind", [Unspeakable, Deadly])
async def test_an_error_whose_text_raises_is_stored_without_its_text(kind: type[Exception]) -> None:
    def speak() -> NoReturn:
        raise kind

    async with bench() as it:
        error = await failed(it, speak)
        assert error.kind.endswith(kind.__name__)
        assert "whose text raised" in error.message
        assert "in speak" in error.traceback


async def test_fifty_megabytes_of_text_are_clipped_to_the_limit_with_head_and_tail() -> None:
    def rant() -> NoReturn:
        raise ValueError("HEAD" + "x" * 50_000_000 + "TAIL")

    async with bench() as it:
        error = await failed(it, rant)
        assert size(error) <= LIMIT
        assert error.message.startswith("HEAD")
        assert error.message.endswith("TAIL")
        assert "bytes cut" in error.message
        assert error.traceback.startswith("Traceback")
        assert error.traceback.endswith("TAIL\n")


async def test_the_limit_is_a_setting() -> None:
    def rant() -> NoReturn:
        raise ValueError("x" * 100_000)

    async with bench(error_limit=2000) as it:
        assert size(await failed(it, rant)) <= 2000


async def test_a_deep_recursion_is_stored_in_few_lines() -> None:
    def dig(depth: int) -> int:
        return dig(depth + 1) + 1

    async with bench() as it:
        error = await failed(it, lambda: dig(0))
        assert error.kind == "RecursionError"
        assert size(error) <= LIMIT
        assert "in dig" in error.traceback


async def test_a_long_chain_of_causes_is_bounded() -> None:
    def chain() -> NoReturn:
        error: Exception = ValueError("root")
        for number in range(2000):
            following = ValueError(f"link {number}")
            following.__cause__ = error
            error = following
        raise error

    async with bench() as it:
        error = await failed(it, chain)
        assert size(error) <= LIMIT
        assert "link 1999" in error.traceback


async def test_causes_are_part_of_the_traceback() -> None:
    def wrap() -> NoReturn:
        raise ValueError("no such setting") from KeyError("missing")

    async with bench() as it:
        error = await failed(it, wrap)
        assert "KeyError: 'missing'" in error.traceback
        assert "direct cause" in error.traceback


async def test_the_frames_of_the_worker_are_left_out() -> None:
    def fail() -> NoReturn:
        raise ValueError("x")

    async with bench() as it:
        error = await failed(it, fail)
        assert error.traceback.count('File "') == 2
        assert "windlass/_worker" not in error.traceback


async def test_lone_surrogates_and_null_bytes_can_be_stored() -> None:
    def mumble() -> NoReturn:
        raise ValueError("a\ud800b\x00c")

    async with bench() as it:
        error = await failed(it, mumble)
        assert error.message == "a?b\x00c"
        error.traceback.encode()


def test_a_class_keeps_its_module_unless_it_is_a_builtin() -> None:
    assert exception_name(ValueError()) == "ValueError"
    assert exception_name(Unspeakable()) == f"{__name__}.Unspeakable"


def test_a_monstrous_class_name_is_clipped_too() -> None:
    monster = type("M" * 1_000_000, (Exception,), {})
    assert len(attempt_error_of(monster("x"), limit=LIMIT).kind) <= 256


def test_short_text_is_not_touched() -> None:
    assert truncate_middle("tiny", 100) == "tiny"
    assert truncate_middle("x" * 100, 100) == "x" * 100


def test_clipping_counts_bytes_and_cuts_no_character_in_half() -> None:
    clipped = truncate_middle("ä€😀" * 1000, 300)
    assert len(clipped.encode()) <= 300
    assert clipped.startswith("ä€")
    assert clipped.endswith("😀")
    assert "�" not in clipped


def test_secrets_are_taken_out_before_anything_is_cut() -> None:
    secret = "canary" * 50
    for room in range(300, 1200, 37):
        text = "x" * room + secret + "y" * 3000
        told = attempt_error_of(ValueError(text), limit=2048, secrets=(secret,))
        assert "canary" not in told.message + told.traceback
    assert (
        "***"
        in attempt_error_of(ValueError(f"at {secret}."), limit=2048, secrets=(secret,)).message
    )
